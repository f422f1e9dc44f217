// ---- elements: of which the pages that draw themselves are made ----

/** An element with properties, attributes (aria-…, data-…, role) and children. Text is only ever text. */
function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Text that may run from right to left, or hold anything: isolated from the text around it. */
const bdi = (text, className = "") => el("bdi", { textContent: text, className });
const quoted = (text) => el("q", { dir: "auto", textContent: text });

const percent = (share) => (share > 0 && share < 0.005 ? `${(100 * share).toPrecision(1)} %` : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`);
const counted = (number) => number.toLocaleString("en");
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** Arrow keys inside of a group, of which one member can be reached by Tab. */
function walk(host, selector, step) {
  host.addEventListener("keydown", (event) => {
    const members = [...host.querySelectorAll(selector)].filter((one) => !one.hidden);
    const at = members.indexOf(event.target.closest(selector));
    const goal = at < 0 ? null : step(event.key, at, members);
    if (goal === null || goal === undefined || !members[goal]) return;
    event.preventDefault();
    members[goal].focus();
    members[goal].click();
  });
}

const alongKeys = (key, at, members) =>
  ({ ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: members.length - 1 })[key];

/** A labelled control: a select, a checkbox or a slider. */
function choice(name, options, value, choose) {
  const made = el("select", { onchange: () => choose(made.selectedIndex) }, ...options.map((text) => el("option", { textContent: text })));
  made.selectedIndex = value;
  return el("label", { className: "control" }, el("span", { textContent: name }), made);
}
const tick = (name, checked, choose) => el("label", { className: "control tick" }, el("input", { type: "checkbox", checked, onchange: (event) => choose(event.target.checked) }), el("span", { textContent: name }));
