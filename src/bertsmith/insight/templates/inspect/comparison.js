// ---- comparison: two texts, or two models on one text, token by token ----

/** Both sides in one order: [i, j], [i, null] for what only the first has, [null, j] for the second. */
function aligned({ pairs, only_a: onlyA, only_b: onlyB }) {
  const found = [];
  let [a, b] = [0, 0];
  const rest = (endA, endB) => {
    for (; a < onlyA.length && onlyA[a] < endA; a++) found.push([onlyA[a], null]);
    for (; b < onlyB.length && onlyB[b] < endB; b++) found.push([null, onlyB[b]]);
  };
  for (const [i, j] of pairs) {
    rest(i, j);
    found.push([i, j]);
  }
  rest(Infinity, Infinity);
  return found;
}

function makeComparison() {
  const host = section("comparison");
  const [controls, scores, columns, differences] = [el("div", { className: "controls" }), el("p", { className: "scores" }), el("div", { className: "aligned" }), el("div")];
  const pieces = (index) => inspection.readings[index];
  const called = (one, index) => (one.what === "models" ? inspection.models[pieces(index).model].name : `text ${String.fromCharCode(65 + (pieces(index).text % 26))}`);
  let one = null;
  let choices = [];
  const labels = () => one.pairs.map(([i]) => pieces(one.a).tokens[i].shown);
  let distance = null;
  const apart = new Heat({ label: "distance by layer", ramp: "orange", read: (layer, pair) => `${one.layers[layer]}, ${labels()[pair]}: ${(distance[layer * one.pairs.length + pair] / 255).toFixed(2)} apart (1 − cosine)`, enter: (cell) => mine() && hover("tokens", cell ? token(cell[1]) : null), pick: (layer, pair) => mine() && pick("tokens", token(pair)) });
  const heads = new Heat({ label: "heads that changed", ramp: "orange", wide: 34, read: (layer, head) => `Head ${headName(layer, head)}: ${percent(one.heads[layer][head])} of its weight moved`, pick: (layer, head) => set({ layer, head }) });
  const mine = () => [one.a, one.b].some((index) => pieces(index) === reading);
  const token = (pair) => one.pairs[pair][pieces(one.b) === reading ? 1 : 0];
  const [distances, changes] = [el("div", {}, el("h3", { className: "wide-head", textContent: "How far the two are apart at equal tokens, by layer" }), apart.host, scale("orange", [[0, "0: the same"], ...CHANGES])), el("div", {}, el("h3", { className: "wide-head", textContent: "Heads that look elsewhere" }), heads.host)];
  const top = el("p", { className: "hint" });
  changes.append(top);
  host.append(controls, scores, columns, distances, changes, differences);

  const draw = async () => {
    const [a, b] = [pieces(one.a), pieces(one.b)];
    const names = [called(one, one.a), called(one, one.b)];
    host.querySelector(".lead").textContent = one.what === "models" ? "Two models read the same text. Underlined tokens stand only on one side; below, where their runs part." : "One model reads two texts. Underlined tokens stand only in one of them; below, where its runs part.";
    const cell = (tokens, index, className) => el("span", { className: index === null ? "empty" : className }, index === null ? "" : bdi(tokens[index].shown));
    columns.replaceChildren(el("span", { className: "aligned-names" }, bdi(names[0]), bdi(names[1])), ...aligned(one).map(([i, j]) => {
      const same = i !== null && j !== null;
      return el("span", { className: same ? "aligned-pair" : "aligned-pair differs" }, cell(a.tokens, i, "of-a"), cell(b.tokens, j, "of-b"));
    }));
    scores.hidden = !one.scores || one.scores.some((score) => score === null);
    if (!scores.hidden) {
      const [first, second] = one.scores;
      const apartBy = Math.abs(first - second);
      const likes = one.what === "models" ? ["", bdi(names[first >= second ? 0 : 1]), " finds the text likelier by "] : ["The model prefers ", bdi(names[first >= second ? 0 : 1]), " by "];
      scores.replaceChildren(...likes, el("b", { textContent: `${apartBy.toFixed(1)} nats` }), ` (log-likelihoods ${first.toFixed(1)} and ${second.toFixed(1)}).`);
    }
    distances.hidden = !one.distance || one.pairs.length === 0;
    changes.hidden = !one.heads || one.heads.length === 0;
    const current = one;
    if (!changes.hidden) {
      const most = Math.max(0.01, ...one.heads.flat());
      const values = Uint8Array.from(one.heads.flat(), (value) => (255 * value) / most);
      heads.show({ rows: one.heads.map((_, layer) => `layer ${layer + 1}`), columns: one.heads[0].map((_, head) => `${head + 1}`), values, rest: "Share of attention that moved (total variation), mean over equal tokens. Click a head to see it above." });
      const ranked = one.heads.flatMap((line, layer) => line.map((value, head) => [value, layer, head])).sort((x, y) => y[0] - x[0]).slice(0, 5);
      top.replaceChildren("Most: ", ...ranked.flatMap(([value, layer, head], index) => [index ? ", " : "", el("button", { type: "button", className: "link", textContent: `head ${headName(layer, head)}`, onclick: () => set({ layer, head }) }), ` ${percent(value)}`]), ".");
    }
    const side = (found) => el("td", {}, ...found.flatMap(([word, share], index) => [index ? ", " : "", bdi(word, "word"), ` ${percent(share)}`]));
    differences.hidden = one.predictions.length === 0;
    differences.replaceChildren(el("h3", { className: "wide-head", textContent: "Predictions that differ" }), el("div", { className: "results differ" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", { textContent: "at" }), ...names.map((text) => el("th", {}, bdi(text))))), el("tbody", {}, ...one.predictions.map(([where, first, second]) => el("tr", {}, el("td", {}, bdi(where)), side(first), side(second)))))));
    if (distances.hidden) return;
    const bytes = await decode(current, "distance");
    if (one !== current) return;
    distance = bytes;
    apart.show({ rows: one.layers, columns: labels(), values: rooted(bytes), rest: "Point at a cell to read it." });
  };
  view(["reading"], () => {
    const about = inspection.comparisons.filter(({ a, b }) => pieces(a) === reading || pieces(b) === reading);
    choices = about.length ? about : inspection.comparisons;
    host.hidden = choices.length === 0;
    if (host.hidden) return;
    const before = one;
    one = choices.includes(before) ? before : choices[0];
    controls.hidden = choices.length < 2;
    controls.replaceChildren(choice("compared", choices.map((each) => `${called(each, each.a)} and ${called(each, each.b)}`), choices.indexOf(one), (index) => {
      one = choices[index];
      attempt(draw);
    }));
    return draw();
  });
}
