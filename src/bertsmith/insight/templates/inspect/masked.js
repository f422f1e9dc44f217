// ---- masked: each word hidden in turn, what is put in its place, and whose vectors move ----

function makeMasked() {
  const host = section("masked");
  let [text, spans, at] = [null, [], 0];
  const words = el("div");
  const heading = el("h3", { className: "wide-head" });
  const table = el("div");
  const line = el("div");
  let change = null;
  const given = () => reading.masked;
  const heat = new Heat({
    label: "how far hidden vectors moved",
    ramp: "orange",
    read: (layer, token) => `${given().layers[layer]}, ${name("tokens", token)} moved by ${(change[(at * given().layers.length + layer) * reading.tokens.length + token] / 255).toFixed(2)} (1 − cosine)`,
    enter: (cell) => hover("tokens", cell ? cell[1] : null),
    pick: (layer, token) => pick("tokens", token),
  });
  host.append(words, heading, el("div", { className: "split" }, table, line), el("h3", { className: "wide-head", textContent: "How far each token’s hidden vector moved, by layer" }), heat.host, scale("orange", [[0, "0: as before"], ...CHANGES]));

  view(["reading"], () => {
    host.hidden = !given() || given().positions.length === 0;
    if (host.hidden) return;
    const masks = new Set(given().positions);
    text = running("tokens", "words that can be hidden", (span, index) => span.classList.add(masks.has(index) ? "maskable" : "never"));
    spans = text.spans;
    text.host.classList.add("small");
    words.replaceChildren(text.host);
    const last = given().layers.length - 1; // at first the word that surprises most
    const ranks = given().ranks.map((line) => line[last] ?? 0);
    at = ranks.indexOf(Math.max(...ranks));
  });
  view(["reading", "tokens"], async () => {
    if (host.hidden) return;
    const found = given().positions.indexOf(state.tokens);
    if (found >= 0) at = found;
    const { positions, layers, top, ranks } = given();
    const token = positions[at];
    spans.forEach((span, index) => {
      const is = index === token;
      span.classList.toggle("blanked", is);
      span.tabIndex = is ? 0 : -1;
      span.toggleAttribute("aria-selected", is);
    });
    const truth = reading.tokens[token].shown;
    heading.replaceChildren("With ", bdi(truth, "word"), " hidden");
    table.replaceChildren(topTable(layers, top[at], truth));
    line.replaceChildren(layerLine("Rank of the hidden word by layer", layers, ranks[at], { log: true }));
    const mine = given();
    const bytes = await decode(mine, "change");
    if (given() !== mine) return;
    change = bytes;
    const count = layers.length * reading.tokens.length;
    heat.show({ rows: layers, columns: reading.tokens.map((_, index) => name("tokens", index)), values: rooted(bytes.subarray(at * count, (at + 1) * count)), rest: "Point at a cell to read it.", chosen: [null, token] });
  });
}
