// ---- answers: lists with bars ----

/** A name, a value in words, and a bar from 0 to 1. */
function bar(name, value, share, className = "") {
  const line = el("i");
  line.style.width = `${100 * clamp(share, 0, 1)}%`;
  return el("div", { className: `guess ${className}` }, el("span", {}, bdi(name)), el("span", { textContent: value }), line);
}

/** The same, to be chosen: a button. */
function barButton(name, value, share, choose) {
  const line = bar(name, value, share);
  return el("button", { type: "button", className: "guess", title: name, onclick: choose }, ...line.childNodes);
}

const SHOWN = 30; // bars of a list
const hint = (textContent) => el("p", { className: "hint", textContent });
const rest = (count) => (count > SHOWN ? [hint(`and ${counted(count - SHOWN)} more`)] : []);

function drawClasses(answer) {
  if ("number" in answer) return [el("p", { className: "figure", textContent: answer.number.toPrecision(4) })];
  if ("tags" in answer) return [el("div", { className: "chips" }, ...answer.words.map((word, at) => chip(word, answer.tags[at])))];
  const ranked = Object.entries(answer.probabilities).sort((a, b) => b[1] - a[1]);
  const chosen = new Set(answer.labels ?? [answer.label]);
  const bars = ranked.slice(0, SHOWN).map(([label, share]) => bar(label, percent(share), share, chosen.has(label) ? "right" : ""));
  const several = answer.labels ? [hint(answer.labels.length ? "The labels in green have a probability of 50 % or more." : "No label has a probability of 50 % or more.")] : [];
  return [el("div", { className: "bars" }, ...bars), ...rest(ranked.length), ...several];
}

function drawEndings(answer, { endings }) {
  const texts = lines(endings);
  const shares = Object.values(answer.probabilities).map((share, at) => [texts[at], share]);
  const bars = shares.sort((a, b) => b[1] - a[1]).map(([text, share]) => bar(text, percent(share), share, text === answer.ending ? "long right" : "long"));
  return [el("div", { className: "bars" }, ...bars)];
}

const drawSimilar = (cosines, { texts }) => drawRanked(lines(texts).map((text, at) => [text, cosines[at]]));
const drawReranked = (found, { texts }) => drawRanked(found.map(({ index, score }) => [lines(texts)[index], score]));

/** Texts by their number. Numbers that are neither cosines nor probabilities are drawn between the least and the most. */
function drawRanked(pairs) {
  const ranked = [...pairs].sort((a, b) => b[1] - a[1]);
  const [most, least] = [ranked[0][1], ranked.at(-1)[1]];
  const share = (score) => (most <= 1.001 && least >= -1.001 ? score : (score - least) / (most - least || 1));
  const bars = ranked.slice(0, SHOWN).map(([text, score]) => bar(text, score.toFixed(3).replace("-", "−"), share(score), "long"));
  return [el("div", { className: "bars wide" }, ...bars), ...rest(ranked.length)];
}
