// ---- picture: the image with a share for every patch over it ----

const STYLES = ["colours over the image", "light over the image", "colours alone"];
const SHADE = 0.86; // how much of the image the strongest colour, or the darkest shadow, covers

/** Values as shares of the way from the smallest to the largest; of those with two signs, from 0 to the largest. */
function stretched(values, signed = false) {
  let [low, high] = [signed ? 0 : Infinity, 0];
  for (const value of values) {
    if (!signed) low = Math.min(low, value);
    high = Math.max(high, Math.abs(value));
  }
  return Float32Array.from(values, (value) => (Math.abs(value) - low) / (high - low || 1));
}

class Picture {
  /** `enter(patch)` and `pick(patch)` hear of the pointer and of clicks; `signed` pictures have shares below zero. */
  constructor({ label, enter = () => {}, pick = null, signed = false }) {
    this.enter = enter;
    this.signed = signed;
    this.values = null;
    this.at = null;
    this.photo = el("img", { alt: "", draggable: false });
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.host = el("div", { className: "picture", role: "img", "aria-label": label }, this.photo, this.canvas);
    this.host.addEventListener("pointermove", (event) => this.point(this.patchAt(event)));
    this.host.addEventListener("pointerleave", () => this.point(null));
    if (pick) {
      this.host.tabIndex = 0;
      this.host.setAttribute("role", "application");
      this.host.addEventListener("click", (event) => pick(this.patchAt(event)));
      this.host.addEventListener("keydown", (event) => {
        const [rows, columns] = reading.grid;
        const at = this.chosen ?? Math.floor(rows / 2) * columns + Math.floor(columns / 2);
        const [row, column] = [Math.floor(at / columns), at % columns];
        const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
        if (!step) return;
        event.preventDefault();
        pick(clamp(row + step[0], 0, rows - 1) * columns + clamp(column + step[1], 0, columns - 1));
      });
    }
    onWidth(this.host, () => this.draw());
  }

  patchAt(event) {
    const box = this.host.getBoundingClientRect();
    const [rows, columns] = reading.grid;
    const row = clamp(Math.floor(((event.clientY - box.top) / box.height) * rows), 0, rows - 1);
    return row * columns + clamp(Math.floor(((event.clientX - box.left) / box.width) * columns), 0, columns - 1);
  }

  point(patch) {
    if (patch === this.at) return;
    this.at = patch;
    this.enter(patch);
    this.draw();
  }

  /** Shares of the patches, drawn from the smallest to the largest; without any, the image alone. `chosen` is framed. */
  show(values, chosen = null, style = 0) {
    Object.assign(this, { values, chosen, style });
    const [height, width] = reading.size;
    if (this.photo.src !== reading.image) this.photo.src = reading.image;
    this.host.style.aspectRatio = `${width} / ${height}`;
    this.host.classList.toggle("tall", height > width);
    this.host.classList.toggle("grey", values !== null && style === 0);
    this.host.classList.toggle("alone", values !== null && style === 2);
    this.draw();
  }

  draw() {
    if (this.values === undefined) return;
    const [width, height] = [this.host.clientWidth, this.host.clientHeight];
    if (!width) return;
    const context = fresh(this.canvas, width, height);
    const [rows, columns] = reading.grid;
    const edges = (index, count, size) => Math.round((index * size) / count);
    const place = (patch) => {
      const [row, column] = [Math.floor(patch / columns), patch % columns];
      const [left, top] = [edges(column, columns, width), edges(row, rows, height)];
      return [left, top, edges(column + 1, columns, width) - left, edges(row + 1, rows, height) - top];
    };
    if (this.values) this.paint(context, place);
    const frame = (patch, colour, thick) => {
      const [left, top, wide, tall] = place(patch);
      context.lineWidth = thick + 2;
      context.strokeStyle = "rgba(0, 0, 0, .75)"; // dark under light, so that it is seen on any image
      context.strokeRect(left, top, wide, tall);
      context.lineWidth = thick;
      context.strokeStyle = colour;
      context.strokeRect(left, top, wide, tall);
    };
    if (this.at !== null) frame(this.at, "#ffffff", 1);
    if (this.chosen !== null) frame(this.chosen, "#ffd36b", 2);
  }

  paint(context, place) {
    const { blue, orange } = colours();
    stretched(this.values, this.signed).forEach((share, patch) => {
      const value = this.values[patch];
      const [left, top, wide, tall] = place(patch);
      if (this.style === 1) {
        context.fillStyle = `rgba(0, 0, 0, ${(SHADE * (1 - share)).toFixed(3)})`;
        context.fillRect(left, top, wide, tall);
        return;
      }
      const table = this.signed && value > 0 ? blue : orange;
      const at = 3 * Math.round(255 * share);
      const alpha = this.style === 2 ? 1 : SHADE * share;
      // Over a grey image the colour is one, and its strength is the share; alone it runs through all its tones.
      const tone = this.style === 2 ? at : 3 * 150;
      context.fillStyle = `rgba(${table[tone]}, ${table[tone + 1]}, ${table[tone + 2]}, ${alpha.toFixed(3)})`;
      context.fillRect(left, top, wide, tall);
      if (this.signed && value < 0 && share > 0.05) this.stripe(context, left, top, wide, tall);
    });
  }

  /** Stripes, for those who do not tell the two colours apart. */
  stripe(context, left, top, wide, tall) {
    context.save();
    context.beginPath();
    context.rect(left, top, wide, tall);
    context.clip();
    context.strokeStyle = "rgba(255, 255, 255, .8)";
    context.lineWidth = 1;
    context.beginPath();
    for (let at = -tall; at < wide; at += 5) {
      context.moveTo(left + at, top + tall);
      context.lineTo(left + at + tall, top);
    }
    context.stroke();
    context.restore();
  }
}

/** A small map of shares in colours alone, each from its smallest to its largest. */
function smallMap(canvas, values) {
  const [rows, columns] = reading.grid;
  Object.assign(canvas, { width: columns, height: rows });
  canvas.style.aspectRatio = `${columns} / ${rows}`;
  const table = colours().orange;
  const image = new ImageData(columns, rows);
  stretched(values).forEach((share, patch) => {
    const at = 3 * Math.round(255 * share);
    image.data.set([table[at], table[at + 1], table[at + 2], 255], 4 * patch);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}
