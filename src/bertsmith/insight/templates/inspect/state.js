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
let reading = null;

const views = [];
const changed = new Set();
let frame = 0;
let busy = 0;

/** `draw` is called once at the start, and whenever one of the values named has changed. */
function view(keys, draw) {
  views.push({ keys: new Set(keys), draw });
}

/** Calls with an element's width once it is laid out, and whenever it changes; nobody has to ask for a layout. */
function onWidth(element, react) {
  new ResizeObserver(([entry]) => react(entry.contentRect.width)).observe(element);
}

function set(values) {
  for (const [key, value] of Object.entries(values)) {
    if (state[key] === value) continue;
    state[key] = value;
    changed.add(key);
  }
  if (changed.has("model") || changed.has("text")) fit();
  if (changed.size && !frame) frame = requestAnimationFrame(redraw);
}

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

const waiting = new Set(); // views that are yet to be drawn
let later = 0;

function redraw() {
  frame = 0;
  const whole = changed.has("reading"); // no figure may stand beside one of another text
  for (const one of views) if ([...changed].some((key) => one.keys.has(key))) waiting.add(one);
  changed.clear();
  work(whole ? Infinity : 8);
}

/** Draws what waits from the top of the page down, and lets the browser show it every few milliseconds. */
function work(budget) {
  clearTimeout(later);
  later = 0;
  const until = performance.now() + budget;
  for (const one of views) {
    if (!waiting.delete(one)) continue;
    attempt(one.draw);
    if (performance.now() < until || !waiting.size) continue;
    later = setTimeout(work, 0, budget);
    break;
  }
  settle();
}

/** Tests and printing wait for `data-settled`: nothing is left to draw. */
async function attempt(draw) {
  busy += 1;
  delete document.body.dataset.settled;
  try {
    await draw();
  } finally {
    busy -= 1;
    settle();
  }
}

function settle() {
  if (!busy && !frame && !waiting.size) {
    document.body.dataset.settled = "true";
    if (!performance.getEntriesByName("drawn").length) performance.mark("drawn");
  }
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

const section = (name) => document.getElementById(name);
const tokensOf = (side) => reading[side] ?? reading.tokens;
const pick = (side, index) => set({ [side]: clamp(index, 0, tokensOf(side).length - 1) });

/** A labelled slider, with the value in words. */
function slider(name, low, high, step, value, print, choose) {
  const output = el("output", { textContent: print(value) });
  const input = el("input", { type: "range", min: low, max: high, step, "aria-label": name });
  input.value = value;
  input.addEventListener("input", () => {
    output.textContent = print(+input.value);
    choose(+input.value);
  });
  return el("label", { className: "control" }, el("span", { textContent: name }), input, output);
}
