// ---- words: attributions as coloured words, and nearest words of the chosen token ----

function makeAttributions() {
  const host = section("attributions");
  const [controls, words, facts, bars] = [el("div", { className: "controls" }), el("div"), el("p", { className: "hint" }), el("div", { className: "bars" })];
  const output = el("p", { className: "reading", role: "status" });
  host.append(controls, words, output, el("h3", { className: "wide-head", textContent: "Words that weigh most" }), bars, facts);
  const marks = marker("tokens");
  let [at, spans] = [0, []];
  const signed = (score) => `${score < 0 ? "−" : "+"}${Math.abs(score).toPrecision(3)}`;
  const printed = (value) => value.toPrecision(3).replace("-", "−");
  const say = (index) => output.replaceChildren(bdi(name("tokens", index), "word"), ` ${signed(reading.attributions[at].scores[index])}`);
  const draw = () => {
    const one = reading.attributions[at];
    const most = Math.max(1e-9, ...one.scores.map(Math.abs));
    const text = running("tokens", "words by what they add to the output", (span, index) => {
      const share = Math.abs(one.scores[index]) / most;
      span.style.setProperty("--share", share.toFixed(3));
      span.classList.add("scored", one.scores[index] < 0 ? "against" : "for");
      if (share < 0.05) span.classList.add("slight");
    });
    spans = text.spans;
    words.replaceChildren(text.host);
    marks.choose(spans);
    const ranked = [...one.words].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 12);
    const largest = Math.max(1e-9, ...ranked.map(([, score]) => Math.abs(score)));
    bars.replaceChildren(...ranked.map(([word, score]) => {
      const bar = el("i");
      bar.style.setProperty("--share", (Math.abs(score) / largest).toFixed(3));
      return el("div", { className: score < 0 ? "bar-line against" : "bar-line for" }, el("span", {}, bdi(word)), el("span", { className: "track" }, bar), el("output", { textContent: signed(score) }));
    }));
    facts.textContent = `The output is ${printed(one.output)}, and ${printed(one.baseline)} without words. The scores add up to the difference with a gap of ${percent(one.gap)} (completeness), in ${one.steps} steps.`;
    say(state.tokens);
  };
  view(["reading"], () => {
    host.hidden = reading.attributions.length === 0;
    if (host.hidden) return;
    at = Math.min(at, reading.attributions.length - 1);
    controls.replaceChildren(choice("output", reading.attributions.map((one) => one.name), at, (index) => {
      at = index;
      draw();
    }));
    draw();
  });
  view(["tokens"], () => {
    if (host.hidden) return;
    marks.choose(spans);
    say(state.tokens);
  });
  onHover(host, (side, index) => {
    if (host.hidden || side !== "tokens") return;
    marks.hover(spans, index);
    say(index ?? state.tokens);
  });
}

function makeNeighbours() {
  const host = section("neighbours");
  const body = el("div", { className: "charts" });
  host.append(body);
  const list = (title, found, none) => {
    const lines = (found ?? []).map(([text, cosine, index]) => {
      const bar = el("i");
      bar.style.width = `${100 * clamp(cosine, 0, 1)}%`;
      const word = index === undefined ? bdi(text) : el("button", { type: "button", className: "link", onclick: () => pick("tokens", index) }, bdi(text));
      return el("div", { className: "guess" }, el("span", {}, word), el("span", { textContent: cosine.toFixed(2) }), bar);
    });
    return el("div", {}, el("h3", { textContent: title }), ...(lines.length ? lines : [el("p", { className: "hint", textContent: none })]));
  };
  view(["reading", "tokens"], () => {
    const given = reading.neighbours;
    host.hidden = !given;
    if (!given) return;
    const here = (given.contextual?.[state.tokens] ?? []).map(([index, cosine]) => [`${name("tokens", index)} (${index + 1})`, cosine, index]);
    const word = name("tokens", state.tokens);
    const columns = [list("In the vocabulary, by the embedding table", given.static?.[state.tokens], "Special tokens have no neighbours here.")];
    if (given.contextual) columns.push(list("In this text, by the last layer", here, "No other token is near."));
    body.replaceChildren(...columns);
    body.classList.toggle("of1", columns.length === 1);
    body.setAttribute("aria-label", `neighbours of ${word}`);
  });
}
