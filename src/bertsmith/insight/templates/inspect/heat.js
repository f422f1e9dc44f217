// ---- heat: a matrix with labels on a canvas, which scrolls and zooms; the cell under the pointer is marked on a second one ----

class Heat {
  /** `read(row, column)` is the sentence about a cell; `enter` and `pick` hear of the cell under the pointer, and of a click. */
  constructor({ label, read, enter = () => {}, pick = () => {}, ramp = "blue", square = false, tall = 20, wide = 26, most = 560 }) {
    Object.assign(this, { read, enter, pick, ramp, square, tall, wide, most, zoom: 1, at: null, chosen: [null, null] });
    this.cells = el("canvas", { className: "heat-cells" });
    this.marks = el("canvas", { className: "heat-marks" });
    this.view = el("div", { className: "heat-view" }, this.cells, this.marks);
    this.space = el("div", { className: "heat-space" }, this.view);
    this.scroll = el("div", { className: "heat-scroll", tabIndex: 0, role: "application", "aria-label": `${label}: arrow keys read its cells, + and - zoom` }, this.space);
    this.output = el("output", { className: "reading" });
    this.zooms = el("span", { className: "zooms" }, ...[["−", 1 / 1.5, "smaller"], ["+", 1.5, "larger"]].map(([sign, factor, title]) => el("button", { type: "button", textContent: sign, title, "aria-label": `${label}: ${title}`, onclick: () => this.zoomBy(factor) })));
    this.host = el("div", { className: "heat" }, el("div", { className: "heat-head" }, this.output, this.zooms), this.scroll);
    [this.x, this.y] = [0, 0];
    this.scroll.addEventListener("scroll", () => this.soon());
    this.scroll.addEventListener("pointermove", (event) => this.point(this.cellAt(event)));
    this.scroll.addEventListener("pointerleave", () => this.point(null));
    this.scroll.addEventListener("click", (event) => {
      const cell = this.cellAt(event);
      if (cell) this.pick(...cell);
    });
    this.scroll.addEventListener("keydown", (event) => this.key(event));
    onWidth(this.host, (width) => {
      this.width = width;
      this.draw();
    });
    view(["theme"], () => this.values && this.show(this));
  }

  /** Values from 0 to 255, row by row; labels of rows and columns; what the readout says when no cell is pointed at. */
  show({ rows, columns, values, rest = "", chosen = [null, null] }) {
    const same = this.rows?.length === rows.length && this.columns?.length === columns.length;
    Object.assign(this, { rows, columns, values, rest, chosen });
    if (!same) [this.zoom, this.x, this.y] = [1, 0, 0];
    this.image ??= document.createElement("canvas");
    [this.image.width, this.image.height] = [Math.max(1, columns.length), Math.max(1, rows.length)];
    const image = new ImageData(this.image.width, this.image.height);
    const table = colours()[this.ramp];
    const pixels = new Uint32Array(image.data.buffer);
    const packed = new Uint32Array(256).map((_, value) => (255 << 24) | (table[3 * value + 2] << 16) | (table[3 * value + 1] << 8) | table[3 * value]);
    for (let index = 0; index < values.length; index++) pixels[index] = packed[values[index]];
    this.image.getContext("2d").putImageData(image, 0, 0);
    this.draw();
    this.point(null, true);
  }

  choose(chosen) {
    this.chosen = chosen;
    if (this.values) this.mark();
  }

  measure() {
    const context = this.cells.getContext("2d");
    context.font = `600 12px ${colours().font}`; // as the label that is marked
    const widest = (labels) => labels.reduce((most, text) => Math.max(most, widthOf(context, text)), 0);
    const [rows, columns] = [this.rows.length, this.columns.length];
    const [rowWidth, columnWidth] = [widest(this.rows), widest(this.columns)];
    const left = Math.min(110, this.width * 0.3, rowWidth + 10);
    const fit = (this.width - left - (this.square ? 14 : 0)) / columns; // beside a scroll bar
    this.cw = clamp(fit, this.square ? 1 : 2.5, this.wide) * this.zoom;
    this.ch = this.square ? this.cw : this.tall;
    this.flat = columnWidth + 8 <= this.cw; // column labels beside each other, or each on its end
    this.labelled = [this.ch >= 9, this.cw >= 9];
    this.left = this.labelled[0] ? left : 4;
    this.top = this.labelled[1] ? (this.flat ? 20 : Math.min(90, columnWidth + 8)) : 4;
    if (!this.labelled[0] && this.zoom === 1) this.cw = clamp((this.width - (this.square ? 18 : 4)) / columns, 1, this.wide);
    if (this.square) this.ch = this.cw;
    this.total = [this.left + columns * this.cw, this.top + rows * this.ch];
    this.zooms.hidden = fit >= 14;
  }

  draw() {
    if (!this.values || !this.width) return; // nothing to show, or hidden for now
    this.measure();
    const [width, height] = this.total;
    Object.assign(this.space.style, { width: `${width}px`, height: `${height}px` });
    this.scroll.style.maxHeight = `${this.most + 14}px`;
    this.seen = [Math.min(this.width, Math.ceil(width)), Math.min(this.most, Math.ceil(height))];
    this.paint();
  }

  soon() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.paint(true);
    });
  }

  /** The part that is scrolled into view; labels stay at the edges. */
  paint(scrolled = false) {
    if (scrolled) [this.x, this.y] = [this.scroll.scrollLeft, this.scroll.scrollTop];
    const { left, top, cw, ch, seen, rows, columns, x, y } = this;
    const context = fresh(this.cells, ...seen);
    context.save();
    context.beginPath();
    context.rect(left, top, seen[0] - left, seen[1] - top);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, left - x, top - y, columns.length * cw, rows.length * ch);
    if (Math.min(cw, ch) >= 9) this.gaps(context, x, y);
    context.restore();
    this.label(context, () => true, colours().soft);
    this.mark();
  }

  gaps(context, x, y) {
    const { left, top, cw, ch, seen, rows, columns } = this;
    context.strokeStyle = colours().paper;
    context.beginPath();
    for (let column = Math.floor(x / cw); column <= columns.length && left + column * cw - x <= seen[0]; column++) context.rect(left + column * cw - x, 0, 0, seen[1]);
    for (let row = Math.floor(y / ch); row <= rows.length && top + row * ch - y <= seen[1]; row++) context.rect(0, top + row * ch - y, seen[0], 0);
    context.stroke();
  }

  /** Labels that are in view and wanted. `wanted(axis, index)` with axis 0 for rows. */
  label(context, wanted, colour, weight = "") {
    const { left, top, cw, ch, seen, x, y } = this;
    context.fillStyle = colour;
    context.font = `${weight} 12px ${colours().font}`;
    context.textBaseline = "middle";
    const each = (labels, size, offset, start, stop, axis, write) => {
      for (let index = Math.max(0, Math.floor(offset / size)); index < labels.length; index++) {
        const middle = start + (index + 0.5) * size - offset;
        if (middle > stop) break;
        if (middle >= start && wanted(axis, index)) write(labels[index], middle);
      }
    };
    if (this.labelled[0]) {
      context.textAlign = "right";
      each(this.rows, ch, y, top, seen[1], 0, (text, middle) => context.fillText(cut(context, text, left - 8), left - 6, middle));
    }
    if (!this.labelled[1]) return;
    each(this.columns, cw, x, left, seen[0], 1, (text, middle) => {
      context.save();
      context.translate(middle, top - 6);
      if (!this.flat) context.rotate(-Math.PI / 2);
      context.textAlign = this.flat ? "center" : "left";
      context.fillText(cut(context, text, this.flat ? cw : top - 8), 0, this.flat ? -5 : 0);
      context.restore();
    });
  }

  /** The row and the column that are chosen or pointed at. */
  mark() {
    const { left, top, cw, ch, seen, x, y } = this;
    if (!seen) return;
    const context = fresh(this.marks, ...seen);
    const [row, column] = this.at ?? this.chosen;
    context.save();
    context.beginPath();
    context.rect(left - 1, top - 1, seen[0] - left + 1, seen[1] - top + 1);
    context.clip();
    context.strokeStyle = colours().mark;
    context.lineWidth = 1.5;
    context.globalAlpha = this.at ? 1 : 0.8;
    const [across, down] = [left - x + column * cw, top - y + row * ch];
    if (row !== null) context.strokeRect(left - x, down, this.columns.length * cw, Math.max(ch, 1));
    if (column !== null) context.strokeRect(across, top - y, Math.max(cw, 1), this.rows.length * ch);
    context.restore();
    const bold = (axis, index) => index === (axis === 0 ? row : column);
    context.fillStyle = colours().paper; // covers the label that is not bold
    if (row !== null && this.labelled[0] && down + ch > top) context.fillRect(0, Math.max(down, top), left - 2, ch);
    if (column !== null && this.labelled[1] && across + cw > left) context.fillRect(Math.max(across, left), 0, cw, top - 2);
    this.label(context, bold, colours().ink, "600");
  }

  cellAt(event) {
    if (!this.values) return null;
    const box = this.scroll.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left - this.scroll.clientLeft, event.clientY - box.top - this.scroll.clientTop];
    const column = Math.floor((px - this.left + this.x) / this.cw);
    const row = Math.floor((py - this.top + this.y) / this.ch);
    const inside = px >= this.left && py >= this.top && row >= 0 && column >= 0 && row < this.rows.length && column < this.columns.length;
    return inside ? [row, column] : null;
  }

  point(cell, again = false) {
    if (!again && cell?.[0] === this.at?.[0] && cell?.[1] === this.at?.[1]) return;
    this.at = cell;
    this.mark();
    this.output.textContent = cell ? this.read(...cell) : this.rest;
    if (!again) this.enter(cell);
  }

  key(event) {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (move) {
      const from = this.at ?? [(this.chosen[0] ?? 0) - move[0], (this.chosen[1] ?? 0) - move[1]];
      this.point([clamp(from[0] + move[0], 0, this.rows.length - 1), clamp(from[1] + move[1], 0, this.columns.length - 1)]);
      this.reveal();
    } else if (event.key === "Enter" && this.at) this.pick(...this.at);
    else if (event.key === "Escape") this.point(null);
    else if (event.key === "+" || event.key === "-") this.zoomBy(event.key === "+" ? 1.5 : 1 / 1.5);
    else return;
    event.preventDefault();
  }

  /** Scrolls so far that the cell pointed at can be seen. */
  reveal() {
    const [row, column] = this.at;
    const into = (offset, start, size, room) => clamp(offset, start + size - room, start);
    this.scroll.scrollLeft = into(this.scroll.scrollLeft, column * this.cw, this.cw, this.seen[0] - this.left);
    this.scroll.scrollTop = into(this.scroll.scrollTop, row * this.ch, this.ch, this.seen[1] - this.top);
  }

  zoomBy(factor) {
    const middle = [this.scroll.scrollLeft + this.seen[0] / 2, this.scroll.scrollTop + this.seen[1] / 2];
    const before = [this.cw, this.ch];
    this.zoom = clamp(this.zoom * factor, 1, 40);
    this.draw();
    this.scroll.scrollLeft = (middle[0] * this.cw) / before[0] - this.seen[0] / 2;
    this.scroll.scrollTop = (middle[1] * this.ch) / before[1] - this.seen[1] / 2;
    this.paint(true);
  }
}

const widths = new Map(); // of labels, which are drawn again and again

function widthOf(context, text) {
  if (!widths.has(text)) widths.set(text, text.length > 60 ? 400 : context.measureText(text).width);
  return widths.get(text);
}

/** A text that fits into a width, with … where it was cut. */
function cut(context, text, width) {
  if (text.length * 4 < width || context.measureText(text).width <= width) return text;
  const characters = [...text];
  let count = Math.min(characters.length, Math.ceil(width / 4));
  while (count > 1 && context.measureText(`${characters.slice(0, count).join("")}…`).width > width) count -= 1;
  return `${characters.slice(0, count).join("")}…`;
}
