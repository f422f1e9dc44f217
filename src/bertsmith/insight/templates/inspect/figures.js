// ---- figures: bytes out of the page's data, words out of tokens, names of head kinds ----

// Each kind has a colour and a sign, since not everybody sees the colour.
const KINDS = {
  previous: { sign: "←", style: "previous", what: "looks at the token before" },
  next: { sign: "→", style: "next", what: "looks at the token after" },
  itself: { sign: "=", style: "itself", what: "looks at the token itself" },
  separator: { sign: "S", style: "separator", what: "looks at the separator", note: "[SEP] or whatever ends a text: what a head does that finds nothing (Clark et al. 2019)" },
  first: { sign: "1", style: "first", what: "looks at the first token" },
  "same word": { sign: "w", style: "word", what: "looks at the same word elsewhere" },
  broad: { sign: "○", style: "broad", what: "looks at many tokens at once" },
  mixed: { sign: "·", style: "mixed", what: "has no single pattern" },
};
const kindOf = (name) => KINDS[name] ?? KINDS.mixed;

/** Bytes by their square root, so that small changes can be seen. */
const rooted = (values) => Uint8Array.from(values, (value) => Math.sqrt(value * 255));
const CHANGES = [[0.5, "0.25"], [1, "1: at a right angle"]];

/** Whether a space stands before a token. */
function spaced(tokens, index) {
  if (index === 0) return false;
  const [before, token] = [tokens[index - 1], tokens[index]];
  if (before.end === 0 || token.end === 0) return token.word !== before.word || token.word < 0;
  return token.start > before.end || /^[Ġ▁ ]/.test(token.text);
}

/** Tokens grouped into words: lists of indices. Special tokens stand alone. */
function groups(tokens, merge, special) {
  const found = [];
  tokens.forEach((token, index) => {
    if (!special && token.special) return;
    const last = found.at(-1);
    const before = last && tokens[last.at(-1)];
    if (merge && last && token.word >= 0 && before.word === token.word && last.at(-1) === index - 1) last.push(index);
    else found.push([index]);
  });
  return found;
}

/** A word as people read it, and a blank that can be seen as one. */
const shown = (tokens, group) => group.map((index) => tokens[index].shown).join("") || "␣";
const name = (side, index) => shown(tokensOf(side), [index]);
const headName = (layer, head) => `${layer + 1}-${head + 1}`;

/** Running text of tokens, as spans that can be reached, clicked and marked. `styled` may dress each. */
function running(side, label, styled = () => {}) {
  const tokens = tokensOf(side);
  const host = el("p", { className: "running", role: "listbox", "aria-label": label, "aria-orientation": "horizontal", dir: "auto" });
  tokens.forEach((token, index) => {
    if (spaced(tokens, index)) host.append(" ");
    const span = el("bdi", { className: token.special ? "token special" : "token", role: "option", tabIndex: -1, textContent: shown(tokens, [index]) });
    span.dataset.index = index;
    if (token.text.startsWith("##") || (index && token.word >= 0 && tokens[index - 1].word === token.word)) span.classList.add("piece");
    if (token.shown.length > 30) span.classList.add("overlong");
    styled(span, index, token);
    host.append(span);
  });
  const spans = [...host.querySelectorAll(".token")];
  host.addEventListener("click", (event) => {
    const span = event.target.closest(".token");
    if (span) pick(side, +span.dataset.index);
  });
  host.addEventListener("pointerover", (event) => {
    const span = event.target.closest(".token");
    hover(side, span ? +span.dataset.index : null);
  });
  host.addEventListener("pointerleave", () => hover(side, null));
  walk(host, ".token", alongKeys);
  return { host, spans };
}

/** One of the spans is chosen, one is under the pointer. */
function marker(side) {
  let [chosen, under] = [null, null];
  return {
    choose(spans) {
      chosen?.removeAttribute("aria-selected");
      if (chosen) chosen.tabIndex = -1;
      chosen = spans[state[side]];
      if (!chosen) return;
      chosen.setAttribute("aria-selected", "true");
      chosen.tabIndex = 0;
    },
    hover(spans, index) {
      under?.classList.remove("under");
      under = index === null ? null : spans[index];
      under?.classList.add("under");
    },
  };
}
