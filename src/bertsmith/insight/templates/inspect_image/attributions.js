// ---- attributions: the patches that decided, for and against ----

const MOST = 8; // patches that are named

function makeAttributions() {
  const host = section("attributions");
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
  const heading = el("p", { className: "scores" });
  const output = el("p", { className: "reading", role: "status" });
  const bars = el("div", { className: "bars" });
  const rest = () => (output.textContent = "Point at a patch to read its part.");
  const picture = new Picture({
    label: "which patches decided",
    signed: true,
    enter: (patch) => {
      if (patch === null) rest();
      else output.replaceChildren(el("b", { textContent: tokenName(patch + specials.length) }), ` ${signed(reading.attribution.scores[patch])}`);
    },
  });
  host.append(heading, el("div", { className: "split pictured" }, el("div", {}, picture.host, output), el("div", {}, el("h3", { textContent: "The most decisive patches" }), bars)));
  view(["reading", "style", "theme"], () => {
    host.hidden = !reading.attribution;
    if (host.hidden) return;
    const { label, scores, output: whole, baseline, gap, steps } = reading.attribution;
    heading.replaceChildren(bdi(label, "word"), ` has log-odds ${signed(whole)}; an image of the mean colour ${signed(baseline)}. The parts of all patches add up to ${signed(scores.reduce((sum, score) => sum + score, 0))}, a gap of ${gap < 0.0001 ? "less than 0.01 %" : percent(gap)} to the difference (${steps} steps).`);
    picture.show(Float32Array.from(scores), null, state.style === 2 ? 2 : 0);
    const order = scores.map((_, at) => at).sort((one, other) => Math.abs(scores[other]) - Math.abs(scores[one])).slice(0, MOST);
    const most = Math.abs(scores[order[0]]) || 1;
    bars.replaceChildren(...order.map((patch) => {
      const bar = el("i");
      bar.style.setProperty("--share", (Math.abs(scores[patch]) / most).toFixed(3));
      return el("p", { className: scores[patch] < 0 ? "bar-line against" : "bar-line" }, el("span", { textContent: tokenName(patch + specials.length) }), el("span", { className: "track" }, bar), el("output", { textContent: signed(scores[patch]) }));
    }));
    rest();
  });
}
