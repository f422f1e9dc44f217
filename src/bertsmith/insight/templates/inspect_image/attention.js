// ---- attention: one head, the mean of a layer's heads, or rollout, over the image ----

const SOURCES = [["head", "one head"], ["mean", "mean of the layer"], ["rollout", "rollout"]];
const EXPLAINED = {
  head: "The attention weights of one head: those of a row, with the special tokens, add up to 100 %.",
  mean: "The mean over all heads of the layer.",
  rollout: "Rollout (Abnar & Zuidema 2020): how much of each patch reaches the token through all layers up to this one.",
};

/** A picture, and below it what is read out of it. */
function makeReadout(label, pick = null) {
  const output = el("p", { className: "reading", role: "status" });
  let row = null;
  let rest = "";
  const picture = new Picture({
    label,
    pick,
    enter: (patch) => {
      if (patch === null || !row) output.textContent = rest;
      else output.replaceChildren(el("b", { textContent: tokenName(patch + specials.length) }), ` ${percent(row[patch])}`);
    },
  });
  const legend = el("div");
  return {
    host: el("div", {}, picture.host, legend, output),
    show(shares, text) {
      row = shares.patches;
      rest = text;
      picture.show(row, patchOf(state.token), state.style);
      legend.replaceChildren(state.style === 1 ? "" : makeLegend(row));
      output.textContent = rest;
    },
  };
}

/** The legend of colours, from the smallest share to the largest. */
function makeLegend(row) {
  const [least, most] = [Math.min(...row), Math.max(...row)];
  const bar = el("div", { className: "scale-bar warm" });
  const mark = (at, text) => {
    const made = el("span", { textContent: text });
    made.style.left = `${100 * at}%`;
    return made;
  };
  return el("div", { className: "scale" }, bar, el("div", { className: "scale-marks" }, mark(0, percent(least)), mark(0.5, percent((least + most) / 2)), mark(1, percent(most))));
}

function shareText(shares) {
  const said = specials.map((name, at) => `${name} ${percent(shares.special[at])}`);
  return [`patches ${percent(shares.whole)}`, ...said].join(" · ");
}

function makeAttention() {
  const host = section("attention");
  const sources = SOURCES.map(([source, text]) => el("button", { type: "button", textContent: text, value: source, onclick: () => set({ source }) }));
  const number = (label, key, count) => {
    const input = el("input", { type: "number", min: 1, max: count, value: 1, oninput: () => input.value && set({ [key]: clamp(+input.value, 1, count) - 1 }) });
    return { input, label: el("label", { className: "control" }, el("span", { textContent: label }), input) };
  };
  const [layer, head] = [number("layer", "layer", inspection.model.layers), number("head", "head", inspection.model.heads)];
  const controls = el("div", { className: "controls" }, el("div", { className: "segments", role: "group", "aria-label": "what is shown" }, ...sources), layer.label, head.label,
    choice("shown as", STYLES, 0, (style) => set({ style })));
  const big = makeReadout("attention over the image; arrow keys choose the patch that looks", (patch) => set({ token: patch + specials.length }));
  const note = el("p", { className: "hint" });
  const strip = Array.from({ length: inspection.model.layers }, (_, index) => {
    const canvas = el("canvas", { "aria-hidden": "true" });
    return { canvas, button: el("button", { type: "button", className: "head", "aria-label": `layer ${index + 1}`, onclick: () => set({ layer: index }) }, canvas, el("span", { className: "head-name", textContent: index + 1 })) };
  });
  const side = el("div", {}, el("h3", { textContent: "The same, layer by layer" }), el("div", { className: "strip" }, ...strip.map((one) => one.button)), note);
  host.append(controls, el("div", { className: "split pictured" }, big.host, side));
  let ticket = 0;
  view(["reading", "token", "layer", "head", "source", "style", "theme"], async () => {
    const mine = ++ticket;
    const shares = parts(await attentionRow(state.source, state.token, state.layer, state.head));
    const rows = await Promise.all(strip.map((_, index) => attentionRow(state.source, state.token, index, state.head)));
    if (mine !== ticket) return;
    big.show(shares, `${tokenName(state.token)} looks at ${shareText(shares)}`);
    strip.forEach(({ canvas, button }, index) => {
      smallMap(canvas, parts(rows[index]).patches);
      button.setAttribute("aria-pressed", index === state.layer);
    });
    for (const button of sources) button.setAttribute("aria-pressed", button.value === state.source);
    if (document.activeElement !== layer.input || +layer.input.value) layer.input.value = state.layer + 1;
    if (document.activeElement !== head.input || +head.input.value) head.input.value = state.head + 1;
    head.label.hidden = state.source !== "head";
    host.querySelector(".lead").textContent = EXPLAINED[state.source];
    const { block } = reading.attention;
    note.textContent = block > 1 ? `The image has many patches: each row is the mean over ${block} × ${block} of them.` : "";
  });
}
