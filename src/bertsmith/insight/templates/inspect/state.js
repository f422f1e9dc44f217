// ---- state: the values that are chosen, and what is drawn when they change ----

const inspection = JSON.parse(document.getElementById("inspection").textContent);

const state = {
  model: 0,
  text: 0,
  attention: 0, // which kind of attention
  layer: 0,
  head: 0,
  tokens: 0, // the chosen token
  targets: 0, // the chosen token of a decoder
  theme: "", // as the system has it, or light, or dark
  width: 0,
};
const WHOLE = ["model", "text"]; // values with which everything changes
let reading = null;

/** Another reading may have fewer layers, heads or tokens; what is chosen stays where it can. */
function fit() {
  reading = inspection.readings.find((one) => one.model === state.model && one.text === state.text);
  const limit = (key, count) => {
    const value = clamp(state[key], 0, Math.max(0, count - 1));
    if (value !== state[key]) changed.add(key);
    state[key] = value;
  };
  limit("attention", reading.attentions.length);
  const shown = reading.attentions[state.attention];
  limit("layer", shown ? shown.layers : 1);
  limit("head", shown ? shown.heads : 1);
  limit("tokens", reading.tokens.length);
  limit("targets", reading.targets ? reading.targets.length : 1);
  changed.add("reading");
}

// ---- hover: a token under the pointer is marked wherever it stands, without drawing anything again ----

const hovers = [];
const onScreen = new WeakSet();
let hovered = { side: "tokens", index: null };
const watch = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) onScreen[isIntersecting ? "add" : "delete"](target);
});

/** `react(side, index)` hears of the token under the pointer, while its section is on the screen, and of the end of it. */
function onHover(host, react) {
  hovers.push({ host, react, marked: false });
  watch.observe(host);
}

function hover(side, index) {
  if (hovered.side === side && hovered.index === index) return;
  hovered = { side, index };
  for (const one of hovers) {
    if (!one.marked && (index === null || !onScreen.has(one.host))) continue;
    one.marked = index !== null;
    one.react(side, index);
  }
}

const tokensOf = (side) => reading[side] ?? reading.tokens;
const pick = (side, index) => set({ [side]: clamp(index, 0, tokensOf(side).length - 1) });
