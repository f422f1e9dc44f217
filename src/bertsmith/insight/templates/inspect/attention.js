// ---- attention: token to token, as lines and as a matrix ----

function makeAttention() {
  const host = section("attention");
  const options = { source: "head", merge: false, special: "shown", threshold: 0.05 };
  let shownNow = null; // what is drawn: rows and columns as groups of tokens, their labels and weights
  const output = el("p", { className: "reading", role: "status" });
  const note = el("p", { className: "hint" });

  const sources = el("div", { className: "segments", role: "group", "aria-label": "what is shown" });
  const number = (label, key) => {
    const input = el("input", { type: "number", min: 1, value: 1, oninput: () => input.value && set({ [key]: clamp(+input.value, 1, +input.max) - 1 }) });
    return { input, label: el("label", { className: "control" }, el("span", { textContent: label }), input) };
  };
  const [layer, head] = [number("layer", "layer"), number("head", "head")];
  const specials = ["shown", "left out", "left out, renormalised"];
  const controls = el("div", { className: "controls" }, sources, layer.label, head.label,
    tick("pieces as words", false, (merge) => change({ merge })),
    choice("special tokens", specials, 0, (index) => change({ special: ["shown", "hidden", "renormalised"][index] })),
    slider("lines from", 0, 0.5, 0.01, options.threshold, percent, (threshold) => {
      options.threshold = threshold;
      lines.set(threshold);
    }));
  const change = (values) => {
    Object.assign(options, values);
    attempt(draw);
  };

  const sides = () => [reading.attentions[state.attention].rows, reading.attentions[state.attention].columns];
  const position = (axis, token) => shownNow[axis === 0 ? "rows" : "columns"].findIndex((group) => group.includes(token));
  const chosen = () => {
    const [rows, columns] = sides();
    const at = [position(0, state[rows]), rows === columns ? null : position(1, state[columns])];
    return at.map((index) => (index === -1 ? null : index));
  };
  const say = (axis, index) => {
    const { values, labels } = shownNow;
    const width = labels[1].length;
    shade(axis, index);
    const weight = (other) => (axis === 0 ? values[index * width + other] : values[other * width + index]);
    const found = strongest(weight, labels[1 - axis].keys());
    const parts = found.flatMap((other, rank) => [rank ? ", " : "", bdi(labels[1 - axis][other], "word"), ` ${percent(weight(other))}`]);
    output.replaceChildren(bdi(labels[axis][index], "word"), axis === 0 ? " looks at " : " is looked at by ", ...(parts.length ? parts : ["nothing above 0.5 %"]));
  };
  // A long text does not fit beside the lines: it is shaded by the weights of the word that is read.
  const shaded = el("div", { className: "shaded" });
  let shades = [];
  const shade = (axis, index) => {
    if (!shades.length) return;
    const { values, labels, columns } = shownNow;
    const width = labels[1].length;
    columns.forEach((group, column) => {
      const share = axis === 0 ? Math.sqrt(values[index * width + column]) : column === index ? 1 : 0;
      for (const token of group) if (shades[token].share !== share) {
        shades[token].share = share;
        shades[token].style.setProperty("--share", share.toFixed(3));
      }
    });
  };
  const rest = () => {
    const [row] = chosen();
    if (row === null) output.replaceChildren("Point at a word or a cell to read its weights.");
    else say(0, row);
  };
  const enterWord = (axis, index) => {
    const side = sides()[axis];
    lines.mark(index === null ? null : [axis, index]);
    matrix.at = null;
    matrix.choose(index === null ? chosen() : axis === 0 ? [index, null] : [null, index]);
    if (index === null) rest();
    else say(axis, index);
    hover(side, index === null ? null : shownNow[axis === 0 ? "rows" : "columns"][index][0]);
  };
  const pickWord = (axis, index) => pick(sides()[axis], shownNow[axis === 0 ? "rows" : "columns"][index][0]);

  const lines = new Lines({ enter: enterWord, pick: pickWord });
  const matrix = new Heat({
    label: "attention weights",
    square: true,
    read: (row, column) => {
      const weight = shownNow.values[row * shownNow.labels[1].length + column];
      return `${shownNow.labels[0][row]} → ${shownNow.labels[1][column]}  ${percent(weight)}`;
    },
    enter: (cell) => {
      lines.mark(cell ? [0, cell[0]] : null);
      hover(sides()[0], cell ? shownNow.rows[cell[0]][0] : null);
      if (cell) say(0, cell[0]);
      else rest();
    },
    pick: (row) => pickWord(0, row),
  });
  matrix.host.append(scale("blue", [[0, "0"], [0.1, "1 %"], [0.316, "10 %"], [0.707, "50 %"], [1, "100 %"]]));
  host.append(controls, note, output, el("div", { className: "pair" }, lines.host, matrix.host), shaded);
  let ticket = 0;

  const draw = async () => {
    const attention = reading.attentions[state.attention];
    host.hidden = !attention;
    if (!attention) return;
    const mine = ++ticket;
    const source = options.source === "rollout" && !attention.rollout ? "head" : options.source;
    const weights = await tokenWeights(attention, source, state.layer, state.head);
    if (mine !== ticket) return;
    const [rowSide, columnSide] = sides();
    const rows = groups(tokensOf(rowSide), options.merge, options.special === "shown");
    const columns = groups(tokensOf(columnSide), options.merge, options.special === "shown");
    const values = grouped(weights, attention.size[1], rows, columns, options.special === "renormalised");
    const labels = [rows.map((group) => shown(tokensOf(rowSide), group)), columns.map((group) => shown(tokensOf(columnSide), group))];
    shownNow = { rows, columns, values, labels };
    lines.show({ rows: labels[0], columns: labels[1], values, threshold: options.threshold, chosen: chosen() });
    const bytes = new Uint8ClampedArray(values.length);
    for (let at = 0; at < values.length; at++) bytes[at] = 255 * Math.sqrt(values[at]);
    const largest = Math.max(rows.length, columns.length);
    matrix.show({ rows: labels[0], columns: labels[1], values: bytes, rest: "", chosen: chosen() });
    note.textContent = [
      source === "rollout" && "Rollout (Abnar & Zuidema 2020): how much of each token reaches another through all layers up to this one.",
      options.merge && "A word is looked at with the sum of its pieces, and looks with their mean.",
      options.special === "hidden" && "Special tokens are left out; the weights are as they were, so that rows add up to less than 100 %.",
      options.special === "renormalised" && "Special tokens are left out, and the rest of each row is scaled to 100 %.",
      largest > MANY && "The text is long: lines are drawn for one word at a time, and below the text is shaded by where that word looks.",
    ].filter(Boolean).join(" ");
    const text = largest > MANY ? running(columnSide, "the text, shaded by attention") : null;
    text?.host.classList.add("small");
    shades = text?.spans ?? [];
    shaded.replaceChildren(...(text ? [text.host] : []));
    rest();
    offer(attention, source);
  };

  const offer = (attention, source) => {
    const names = [["head", "one head"], ["mean", "mean of the layer"], ...(attention.rollout ? [["rollout", "rollout"]] : [])];
    if (sources.children.length !== names.length) sources.replaceChildren(...names.map(([key, text]) => el("button", { type: "button", textContent: text, value: key, onclick: () => change({ source: key }) })));
    for (const button of sources.children) button.setAttribute("aria-pressed", button.value === source);
    [layer.input.max, head.input.max] = [attention.layers, attention.heads];
    if (document.activeElement !== layer.input || +layer.input.value) layer.input.value = state.layer + 1;
    if (document.activeElement !== head.input || +head.input.value) head.input.value = state.head + 1;
    head.label.hidden = source !== "head";
  };

  view(["reading", "attention", "layer", "head"], draw);
  view(["tokens", "targets"], () => {
    if (!shownNow || host.hidden) return;
    lines.choose(chosen());
    matrix.choose(chosen());
    rest();
  });
  onHover(host, (side, index) => {
    if (!shownNow || host.hidden || host.matches(":hover")) return; // its own words are marked already
    const axis = sides().indexOf(side);
    const at = index === null || axis < 0 ? -1 : position(axis, index);
    lines.mark(at < 0 ? null : [axis, at]);
    matrix.choose(at < 0 ? chosen() : axis === 0 ? [at, null] : [null, at]);
  });
}
