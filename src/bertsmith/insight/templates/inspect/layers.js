// ---- layers: what a position predicts at each layer, as a table of words and as a line of ranks ----

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}

/** Layers down, the five likeliest words across, each with a bar; the true word is marked. */
function topTable(layers, top, truth) {
  const line = (found, index) => el("tr", {}, el("th", { scope: "row", textContent: index ? layers[index] : layers[0] }), ...found.map(([word, share]) => {
    const bar = el("i");
    bar.style.width = `${Math.max(1, 100 * share)}%`;
    const right = truth !== null && truth !== undefined && word.trim() === truth.trim();
    return el("td", { className: right ? "right" : "" }, el("div", { className: "guess" }, el("span", {}, bdi(word.trim() || "␣")), el("span", { textContent: percent(share) }), bar));
  }));
  return el("div", { className: "results tops" }, el("table", {}, el("tbody", {}, ...top.map(line))));
}

/** A line over the layers. Ranks are drawn on a log scale with the best at the top; other values from zero. */
function layerLine(title, layers, values, { log = false, unit = "" } = {}) {
  const [width, height, left, bottom] = [400, 250, 48, 26];
  const known = values.filter((value) => value !== null);
  const most = Math.max(log ? 10 : 0.1, ...known);
  const power = log ? Math.ceil(Math.log10(most)) : most;
  const across = (index) => left + 10 + (index * (width - left - 24)) / Math.max(1, layers.length - 1);
  const down = (value) => 14 + (height - bottom - 24) * (log ? Math.log10(value) / power : 1 - value / most);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${values.map((value, index) => `${layers[index]} ${value ?? "–"}`).join(", ")}` });
  const levels = log ? Array.from({ length: power + 1 }, (_, exponent) => 10 ** exponent) : [0, most / 2, most];
  for (const level of levels) {
    drawing.append(svg("line", { class: "level", x1: left, x2: width, y1: down(level), y2: down(level) }), svg("text", { class: "value", x: left - 8, y: down(level) + 4 }, log ? counted(level) : level.toPrecision(2)));
  }
  const every = Math.ceil(layers.length / 13);
  layers.forEach((layer, index) => {
    if (index % every && index !== layers.length - 1) return;
    drawing.append(svg("text", { class: "place", x: across(index), y: height - 4 }, index === 0 && layer === "embeddings" ? "emb." : layer));
  });
  const points = values.map((value, index) => (value === null ? null : [across(index), down(value)]));
  drawing.append(svg("path", { class: "tone1", d: points.reduce((path, point) => (point ? `${path}${path ? "L" : "M"}${point[0].toFixed(1)},${point[1].toFixed(1)}` : path), "") }));
  const output = el("output");
  const rest = () => (output.textContent = values.at(-1) === null ? "" : `${layers.at(-1)}: ${print(values.at(-1))}`);
  const print = (value) => (log ? counted(value) : value.toFixed(2)) + unit;
  points.forEach((point, index) => {
    if (!point) return;
    const dot = svg("circle", { class: "tone1", r: 3.2, cx: point[0], cy: point[1] });
    const area = svg("rect", { x: point[0] - 14, width: 28, y: 0, height: height - bottom, fill: "transparent" });
    area.addEventListener("pointerenter", () => (output.textContent = `${layers[index]}: ${print(values[index])}`));
    area.addEventListener("pointerleave", rest);
    drawing.append(dot, area);
  });
  rest();
  return el("figure", { className: "layer-line" }, el("figcaption", {}, el("h3", { textContent: title }), el("p", { className: "legend" }, el("span", { className: "where" }, "layer ", output))), drawing);
}

/** Colour of a rank: 1 is darkest, 10,000 and beyond is the colour of paper. */
const rankShade = (rank) => (rank === null ? 0 : Math.round(255 * clamp(1 - Math.log10(rank) / 4, 0.02, 1)));
const RANKS = [[0, "10,000"], [0.25, "1,000"], [0.5, "100"], [0.75, "10"], [1, "rank 1"]];
