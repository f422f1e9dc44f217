// ---- predictions: the language model's head on every layer, at every position ----

const PREDICTS = {
  masked: "The masked language model’s head, put on every layer: which word does each position hold so far? A [MASK] is filled in. At a word that can be seen, this is what its vector holds; what the model would predict there stands below, where each word is hidden in turn.",
  next: "The language model’s head, put on every layer (the logit lens): which token does each position expect next, and what rank has the one that follows?",
  replaced: "The discriminator’s head, put on every layer: does it take each token for one that was replaced?",
};

function makePredictions() {
  const host = section("predictions");
  const shades = ["rank of the true word", "probability of the true word", "entropy of the prediction"];
  let by = 0;
  const heading = el("h3", { className: "wide-head" });
  const table = el("div");
  const line = el("div");
  const control = choice("coloured by", shades, 0, (index) => {
    by = index;
    attempt(strip);
  });
  const given = () => reading.predictions;
  const label = (index) => name(given().where, given().positions[index]);
  const at = () => {
    const index = given().positions.indexOf(state[given().where]);
    return index < 0 ? given().positions.length - 1 : index;
  };
  const heat = new Heat({
    label: "predictions by layer and position",
    read: (layer, index) => {
      const { layers, top, truths, ranks, probabilities, entropy } = given();
      const rank = ranks[index][layer];
      const best = top[index][layer][0];
      const facts = [`${layers[layer]}, ${label(index)}: ${best ? `${best[0]} ${percent(best[1])}` : ""}`];
      if (rank !== null) facts.push(`${truths[index]} has rank ${counted(rank)}${probabilities[index][layer] === null ? "" : ` (${percent(probabilities[index][layer])})`}`);
      facts.push(`entropy ${entropy[index][layer].toFixed(2)} nats`);
      return facts.join(" · ");
    },
    enter: (cell) => hover(given().where, cell ? given().positions[cell[1]] : null),
    pick: (layer, index) => pick(given().where, given().positions[index]),
  });
  const legends = [scale("blue", RANKS), scale("blue", [[0, "0"], [0.5, "25 %"], [1, "100 %"]]), scale("blue", [[0, "unsure"], [1, "sure"]])];
  host.append(heading, el("div", { className: "split" }, table, line), el("div", { className: "controls" }, control), heat.host, ...legends);

  const strip = () => {
    const { positions, layers, ranks, probabilities, entropy } = given();
    const widest = Math.max(1, ...entropy.flat());
    const values = new Uint8Array(positions.length * layers.length);
    layers.forEach((_, layer) => positions.forEach((_, index) => {
      const share = probabilities[index][layer];
      values[layer * positions.length + index] = [() => rankShade(ranks[index][layer]), () => (share === null ? 0 : 255 * Math.sqrt(share)), () => 255 * (1 - entropy[index][layer] / widest)][by]();
    }));
    legends.forEach((legend, index) => (legend.hidden = index !== by));
    heat.show({ rows: layers, columns: positions.map((_, index) => label(index)), values, rest: "Point at a cell to read it, click it to choose its position.", chosen: [null, at()] });
  };
  view(["reading"], () => {
    host.hidden = !given() || given().positions.length === 0;
    if (host.hidden) return;
    host.querySelector(".lead").textContent = PREDICTS[given().kind] ?? "";
    strip();
  });
  view(["reading", "tokens", "targets"], () => {
    if (host.hidden) return;
    const index = at();
    const { layers, top, truths, ranks, entropy, kind } = given();
    const truth = truths[index];
    const where = kind === "next" ? "After " : "At ";
    heading.replaceChildren(where, bdi(label(index), "word"), ...(truth === null ? [": what stands there is not known"] : [kind === "next" ? ", the true next token is " : ", the true word is ", bdi(truth, "word")]));
    table.replaceChildren(topTable(layers, top[index], truth));
    const ranked = ranks[index].some((rank) => rank !== null);
    line.replaceChildren(ranked ? layerLine("Rank of the true word by layer", layers, ranks[index], { log: true }) : layerLine("Entropy by layer, in nats", layers, entropy[index]));
    heat.choose([null, index]);
  });
  onHover(host, (side, index) => {
    if (host.hidden || side !== given().where || host.matches(":hover")) return;
    const position = index === null ? -1 : given().positions.indexOf(index);
    heat.choose([null, position < 0 ? at() : position]);
  });
}
