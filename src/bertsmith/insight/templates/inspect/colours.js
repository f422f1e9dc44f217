// ---- colours: from the style sheet, so that a canvas follows light and dark as the text does ----

const probe = matchMedia("(prefers-color-scheme: dark)");
const schemes = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule) => rule.media && rule.media.mediaText.includes("prefers-color-scheme"));
const scheme = schemes.map((rule) => rule.media.mediaText);

/** Dark and light by choice: the style sheet's rules for dark apply always, or never. */
function setTheme(theme) {
  const media = { dark: "all", light: "not all" }[theme];
  schemes.forEach((rule, index) => (rule.media.mediaText = media ?? scheme[index]));
  document.documentElement.style.colorScheme = theme || "light dark";
  palette = null;
}

let palette = null;
const hex = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));

function colours() {
  if (palette) return palette;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const rgb = (name) => hex(read(name));
  const between = (stops) => {
    const table = new Uint8Array(256 * 3);
    for (let value = 0; value < 256; value++) {
      const at = (value / 255) * (stops.length - 1);
      const low = Math.min(stops.length - 2, Math.floor(at));
      for (let part = 0; part < 3; part++) table[3 * value + part] = stops[low][part] + (at - low) * (stops[low + 1][part] - stops[low][part]);
    }
    return table;
  };
  palette = {
    ink: read("ink"), soft: read("soft"), line: read("line"), card: read("card"), paper: read("paper"), mark: read("mark"), tone1: read("tone1"),
    kinds: Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, rgb(`kind-${KINDS[kind].style}`)])),
    tones: [1, 2, 3, 4, 5, 6, 7, 8].map((tone) => read(`tone${tone}`)),
    blue: between([rgb("card"), rgb("ramp1"), rgb("ramp2"), rgb("ramp3")]),
    orange: between([rgb("card"), rgb("warm1"), rgb("warm2"), rgb("warm3")]),
    font: style.getPropertyValue("--words"),
  };
  return palette;
}

/** A canvas for device pixels, sized in CSS pixels; returns its context, cleared. */
function fresh(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** A legend of a colour scale, with numbers at places from 0 to 1. */
function scale(ramp, labels) {
  const bar = el("canvas", { width: 256, height: 1, className: "scale-bar", "aria-hidden": "true" });
  const draw = () => {
    const table = colours()[ramp];
    const image = new ImageData(256, 1);
    for (let value = 0; value < 256; value++) image.data.set([table[3 * value], table[3 * value + 1], table[3 * value + 2], 255], 4 * value);
    bar.getContext("2d").putImageData(image, 0, 0);
  };
  draw();
  view(["theme"], draw);
  const marks = labels.map(([at, text]) => {
    const mark = el("span", { textContent: text });
    mark.style.left = `${100 * at}%`;
    return mark;
  });
  return el("div", { className: "scale" }, bar, el("div", { className: "scale-marks" }, ...marks));
}

/** The button between light and dark. */
function themeButton() {
  const button = el("button", { type: "button", className: "theme", textContent: "◐", title: "light or dark", "aria-label": "light or dark", onclick: () => {
    const dark = state.theme ? state.theme === "dark" : probe.matches;
    setTheme(dark ? "light" : "dark");
    set({ theme: dark ? "light" : "dark" });
  } });
  probe.addEventListener("change", () => {
    palette = null;
    state.theme = "";
    changed.add("theme");
    set({});
  });
  return button;
}
