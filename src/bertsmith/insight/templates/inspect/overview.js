// ---- overview: every head of the model as a small picture, in the colour of its kind ----

const ORDERS = [
  ["by layer", null],
  ["by kind", (head) => [Object.keys(KINDS).indexOf(head.kind), -head.share]],
  ["by entropy", (head) => [head.entropy]],
  ["by distance", (head) => [head.distance ?? 0]],
  ["by share on special tokens", (head) => [-head.special]],
];
const MEASURES = [null, (head) => percent(head.share), (head) => head.entropy.toFixed(2), (head) => (head.distance === null ? "–" : head.distance.toFixed(1)), (head) => percent(head.special)];

function describeHead(layer, head, found) {
  const pattern = found.kind in found.shares;
  const facts = [pattern ? `${kindOf(found.kind).what} with ${percent(found.share)} of its weight` : kindOf(found.kind).what];
  facts.push(`entropy ${found.entropy.toFixed(2)} nats`);
  if (found.distance !== null) facts.push(`distance ${found.distance.toFixed(1)} tokens`);
  facts.push(`${percent(found.special)} on special tokens`);
  return `Head ${headName(layer, head)} ${facts.join(" · ")}`;
}

function makeOverview() {
  const host = section("overview");
  const output = el("p", { className: "reading", role: "status" });
  const legend = el("div", { className: "kinds", role: "group", "aria-label": "kinds of heads" });
  const controls = el("div", { className: "controls" });
  const grid = el("div", { className: "heads", role: "listbox", "aria-label": "attention heads: arrow keys move between heads and layers" });
  let order = 0;
  let only = null;
  let cells = []; // one for each head, layer by layer
  const names = el("div", { className: "segments", role: "group", "aria-label": "kind of attention" });
  const sorter = choice("order", ORDERS.map(([text]) => text), 0, (index) => {
    order = index;
    arrange();
  });
  controls.append(names, sorter);
  host.append(controls, legend, output, grid);

  const attention = () => reading.attentions[state.attention];
  const rest = () => (output.textContent = describeHead(state.layer, state.head, attention().heads_by[state.layer][state.head]));

  const paint = async () => {
    const shownAttention = attention();
    if (!shownAttention) return;
    const pixels = await decode(shownAttention, "thumbnails");
    if (attention() !== shownAttention) return;
    const [n, m] = shownAttention.thumbnail_size;
    cells.forEach((cell, index) => {
      const [red, green, blue] = colours().kinds[KINDS[cell.found.kind] ? cell.found.kind : "mixed"];
      const image = new ImageData(m, n);
      const into = new Uint32Array(image.data.buffer);
      const base = (blue << 16) | (green << 8) | red;
      const from = index * n * m;
      for (let at = 0; at < n * m; at++) into[at] = (pixels[from + at] << 24) | base;
      cell.canvas.getContext("2d").putImageData(image, 0, 0);
    });
  };

  const arrange = () => {
    const { layers, heads } = attention();
    const key = ORDERS[order][1];
    const sorted = key ? [...cells].sort((a, b) => compare(key(a.found), key(b.found))) : cells;
    grid.classList.toggle("sorted", Boolean(key));
    grid.style.setProperty("--heads", heads);
    grid.setAttribute("aria-colcount", heads);
    const content = [];
    sorted.forEach((cell) => {
      if (!key && cell.head === 0) content.push(el("span", { className: "layer-name", textContent: `${cell.layer + 1}`, "aria-hidden": "true" }));
      cell.label.textContent = key ? headName(cell.layer, cell.head) : "";
      cell.measure.textContent = key ? MEASURES[order](cell.found) : "";
      cell.button.hidden = Boolean(key && only && cell.found.kind !== only);
      cell.button.classList.toggle("faint", Boolean(!key && only && cell.found.kind !== only));
      content.push(cell.button);
    });
    const columns = key ? [] : [el("span", { className: "corner", textContent: "layer", "aria-hidden": "true" }), ...Array.from({ length: heads }, (_, head) => el("span", { className: "head-name", textContent: head ? `${head + 1}` : "head 1", "aria-hidden": "true" }))];
    grid.replaceChildren(...columns, ...content);
    void layers;
  };

  const compare = (a, b) => a.reduce((found, value, index) => found || value - b[index], 0);

  view(["reading", "attention"], () => {
    host.hidden = !attention();
    if (host.hidden) return;
    names.replaceChildren(...reading.attentions.map((one, index) => el("button", { type: "button", textContent: one.name, "aria-pressed": index === state.attention, onclick: () => set({ attention: index, ...within(one) }) })));
    names.hidden = reading.attentions.length < 2;
    const [n, m] = attention().thumbnail_size;
    cells = attention().heads_by.flatMap((line, layer) => line.map((found, head) => {
      const canvas = el("canvas", { width: m, height: n });
      const label = el("span", { className: "head-label" });
      const measure = el("span", { className: "head-measure" });
      const sign = el("span", { className: "sign", textContent: kindOf(found.kind).sign });
      const button = el("button", { type: "button", className: `head kind-${kindOf(found.kind).style}`, role: "option", tabIndex: -1, "aria-label": `head ${headName(layer, head)}, ${found.kind}`, onclick: () => set({ layer, head }) }, canvas, el("span", { className: "head-foot" }, label, measure, sign));
      Object.assign(button.dataset, { layer, head, kind: found.kind });
      return { layer, head, found, canvas, label, measure, button };
    }));
    const counts = new Map();
    for (const { found } of cells) counts.set(found.kind, (counts.get(found.kind) ?? 0) + 1);
    if (!counts.has(only)) only = null;
    const known = [...Object.keys(KINDS).filter((kind) => counts.has(kind)), ...[...counts.keys()].filter((kind) => !(kind in KINDS))];
    legend.replaceChildren(...known.map((kind) => {
      const button = el("button", { type: "button", className: `kind kind-${kindOf(kind).style}`, title: kindOf(kind).note ?? kindOf(kind).what, "aria-pressed": only === kind, onclick: () => {
        only = only === kind ? null : kind;
        for (const one of legend.children) one.setAttribute("aria-pressed", one === button && only === kind);
        arrange();
      } }, el("span", { className: "sign", textContent: kindOf(kind).sign, "aria-hidden": "true" }), el("b", { textContent: counts.get(kind) }), ` ${kind}`);
      return button;
    }));
    arrange();
  });
  view(["reading", "attention", "theme"], paint);
  let chosen = null;
  view(["reading", "attention", "layer", "head"], () => {
    if (!attention()) return;
    chosen?.button.removeAttribute("aria-selected");
    if (chosen) chosen.button.tabIndex = -1;
    chosen = cells[state.layer * attention().heads + state.head];
    chosen.button.setAttribute("aria-selected", "true");
    chosen.button.tabIndex = 0;
    rest();
  });

  const within = (one) => ({ layer: Math.min(state.layer, one.layers - 1), head: Math.min(state.head, one.heads - 1) });
  const over = (event) => {
    const button = event.target.closest(".head");
    if (button) output.textContent = describeHead(+button.dataset.layer, +button.dataset.head, attention().heads_by[button.dataset.layer][button.dataset.head]);
  };
  grid.addEventListener("pointerover", over);
  grid.addEventListener("focusin", over);
  grid.addEventListener("pointerleave", rest);
  walk(grid, ".head", (key, at, members) => {
    const across = order ? Math.max(1, Math.floor(grid.clientWidth / (members[0].clientWidth + 6))) : attention().heads;
    return { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + across, ArrowUp: at - across, Home: 0, End: members.length - 1 }[key];
  });
}
