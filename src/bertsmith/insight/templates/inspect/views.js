// ---- views: what is drawn when a chosen value changes; the page defines `state`, and `fit` for what depends on it ----

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
  if (WHOLE.some((key) => changed.has(key))) fit();
  if (changed.size && !frame) frame = requestAnimationFrame(redraw);
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

const section = (name) => document.getElementById(name);

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

/** Makes the sections, draws them all, and again whenever the window or the colours change, and for printing. */
function begin(makers) {
  for (const make of makers) make();
  changed.clear();
  for (const one of views) waiting.add(one);
  work(8);
  addEventListener("resize", () => set({ width: innerWidth }));
  addEventListener("beforeprint", () => {
    setTheme("light");
    work(Infinity);
    views.filter((one) => one.keys.has("theme")).forEach((one) => one.draw());
  });
  addEventListener("afterprint", () => {
    setTheme(state.theme);
    changed.add("theme");
    set({});
  });
}
