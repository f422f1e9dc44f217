// ---- scatter: points on a canvas with pan, zoom, shapes by label, and names where there is room ----

const SHAPES = ["circle", "square", "triangle", "diamond", "cross", "ring", "down", "plus"];

function shape(context, kind, x, y, size) {
  const polygon = (...points) => points.forEach(([dx, dy], index) => context[index ? "lineTo" : "moveTo"](x + dx * size, y + dy * size));
  context.beginPath();
  if (kind === "circle" || kind === "ring") context.arc(x, y, size * (kind === "ring" ? 0.85 : 1), 0, 2 * Math.PI);
  else if (kind === "square") context.rect(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8);
  else if (kind === "triangle") polygon([0, -1.2], [1.1, 0.8], [-1.1, 0.8]);
  else if (kind === "down") polygon([0, 1.2], [1.1, -0.8], [-1.1, -0.8]);
  else if (kind === "diamond") polygon([0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]);
  else if (kind === "cross") polygon([-1, -1], [1, 1], [0, 0], [1, -1], [-1, 1], [0, 0]);
  else polygon([0, -1.2], [0, 1.2], [0, 0], [-1.2, 0], [1.2, 0], [0, 0]);
  context.closePath();
  if (["ring", "cross", "plus"].includes(kind)) context.stroke();
  else context.fill();
}

class Scatter {
  constructor({ enter }) {
    Object.assign(this, { enter, at: null, zoom: 1, offset: [0, 0], found: null, only: null });
    this.base = el("canvas");
    this.over = el("canvas", { className: "over" });
    this.host = el("div", { className: "scatter", tabIndex: 0, role: "application", "aria-label": "map: arrow keys go to the next point, + and - zoom, 0 shows all" }, this.base, this.over);
    this.host.addEventListener("pointermove", (event) => this.move(event));
    this.host.addEventListener("pointerleave", () => this.point(null));
    this.host.addEventListener("pointerdown", (event) => {
      this.drag = [event.clientX - this.offset[0], event.clientY - this.offset[1]];
      this.host.setPointerCapture(event.pointerId);
    });
    this.host.addEventListener("pointerup", () => (this.drag = null));
    this.host.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== this.host) return; // the page scrolls
      event.preventDefault();
      const box = this.host.getBoundingClientRect();
      this.zoomBy(event.deltaY < 0 ? 1.25 : 0.8, event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    this.host.addEventListener("keydown", (event) => this.key(event));
    onWidth(this.host, () => this.points && this.paint());
    view(["theme"], () => this.points && this.paint());
  }

  /** Points with `x`, `y`, `text` for its name on the map, and `label`, an index that gives colour and shape. */
  show(points) {
    this.points = points;
    const ends = (key) => [Math.min(...points.map((point) => point[key])), Math.max(...points.map((point) => point[key]))];
    this.ends = [ends("x"), ends("y")];
    [this.zoom, this.offset, this.at] = [1, [0, 0], null];
    this.paint();
  }

  place(point) {
    const [[left, right], [low, high]] = this.ends;
    const span = Math.max((right - left) / (this.width - 80), (high - low) / (this.height - 60)) || 1;
    const centre = [this.width / 2, this.height / 2];
    const across = centre[0] + (point.x - (left + right) / 2) / span;
    const down = centre[1] - (point.y - (low + high) / 2) / span;
    return [centre[0] + (across - centre[0]) * this.zoom + this.offset[0], centre[1] + (down - centre[1]) * this.zoom + this.offset[1]];
  }

  faint(point) {
    return (this.found && !this.found.has(point)) || (this.only !== null && point.label !== this.only);
  }

  paint() {
    [this.width, this.height] = [this.host.clientWidth, this.host.clientHeight];
    if (!this.width) return;
    const context = fresh(this.base, this.width, this.height);
    this.places = this.points.map((point) => this.place(point));
    const size = this.points.length > 400 ? 2.6 : 4;
    for (const pass of [true, false]) {
      this.points.forEach((point, index) => {
        if (this.faint(point) !== pass) return;
        context.globalAlpha = pass ? 0.15 : 0.85;
        this.dot(context, point, this.places[index], size);
      });
    }
    context.globalAlpha = 1;
    this.names(context);
    this.point(this.at);
  }

  dot(context, point, [x, y], size) {
    const tone = colours().tones[Math.max(0, point.label) % 8];
    context.fillStyle = tone;
    context.strokeStyle = tone;
    context.lineWidth = 1.8;
    shape(context, SHAPES[Math.max(0, point.label) % SHAPES.length], x, y, size);
  }

  /** Names in the order of the points, each only where it covers no point and no other name. */
  names(context) {
    context.font = `12px ${colours().font}`;
    context.fillStyle = colours().soft;
    context.textBaseline = "middle";
    context.textAlign = "left";
    const taken = new Map(); // boxes by cell of a coarse grid
    const cells = ([left, top, right, bottom]) => {
      const found = [];
      for (let x = left >> 6; x <= right >> 6; x++) for (let y = top >> 6; y <= bottom >> 6; y++) found.push(x * 4096 + y);
      return found;
    };
    const free = (box) => cells(box).every((cell) => (taken.get(cell) ?? []).every((other) => box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3]));
    const take = (box) => cells(box).forEach((cell) => (taken.has(cell) ? taken.get(cell).push(box) : taken.set(cell, [box])));
    for (const [x, y] of this.places) take([x - 4, y - 4, x + 4, y + 4]);
    this.points.forEach((point, index) => {
      const [x, y] = this.places[index];
      if (this.faint(point) || x < 0 || y < 0 || x > this.width || y > this.height) return;
      const text = cut(context, point.name, 150);
      const width = context.measureText(text).width;
      const spot = [[x + 8, y], [x - 8 - width, y], [x - width / 2, y - 13], [x - width / 2, y + 13]].find(([left, middle]) => left > 0 && left + width < this.width && free([left, middle - 7, left + width, middle + 7]));
      if (!spot) return;
      take([spot[0], spot[1] - 7, spot[0] + width, spot[1] + 7]);
      context.fillText(text, ...spot);
    });
  }

  move(event) {
    const box = this.host.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (this.drag) {
      this.offset = [event.clientX - this.drag[0], event.clientY - this.drag[1]];
      this.soon();
      return;
    }
    let [best, near] = [null, 22 * 22];
    this.places?.forEach(([px, py], index) => {
      const away = (px - x) ** 2 + (py - y) ** 2;
      if (away < near && !this.faint(this.points[index])) [best, near] = [index, away];
    });
    if (best !== this.at) this.point(best);
  }

  soon() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.paint();
    });
  }

  point(index) {
    this.at = index;
    if (!this.width) return;
    const context = fresh(this.over, this.width, this.height);
    if (index !== null) {
      const [x, y] = this.places[index];
      context.strokeStyle = colours().mark;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, 9, 0, 2 * Math.PI);
      context.stroke();
      this.dot(context, this.points[index], this.places[index], 5);
    }
    this.enter(index);
  }

  zoomBy(factor, x = this.width / 2, y = this.height / 2) {
    const zoom = clamp(this.zoom * factor, 1, 60);
    const real = zoom / this.zoom;
    const [cx, cy] = [this.width / 2, this.height / 2];
    this.offset = zoom === 1 ? [0, 0] : [x - cx - (x - cx - this.offset[0]) * real, y - cy - (y - cy - this.offset[1]) * real];
    this.zoom = zoom;
    this.paint();
  }

  /** Arrow keys go to the nearest point in that direction. */
  key(event) {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (direction) {
      const [x, y] = this.at === null ? [this.width / 2, this.height / 2] : this.places[this.at];
      let [best, least] = [this.at, Infinity];
      this.places.forEach(([px, py], index) => {
        const along = (px - x) * direction[0] + (py - y) * direction[1];
        const aside = Math.abs((px - x) * direction[1]) + Math.abs((py - y) * direction[0]);
        if (index !== this.at && along > 0.5 && !this.faint(this.points[index]) && along + 2 * aside < least) [best, least] = [index, along + 2 * aside];
      });
      if (best !== null) this.point(best);
    } else if (event.key === "+") this.zoomBy(1.5);
    else if (event.key === "-") this.zoomBy(1 / 1.5);
    else if (event.key === "0") this.zoomBy(0);
    else return;
    event.preventDefault();
  }
}
