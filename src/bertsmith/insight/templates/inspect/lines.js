// ---- lines: two columns of words, and a line from each word to those it looks at ----

const TALLEST = 600;
const MANY = 80; // above that, lines are drawn for one word at a time

class Lines {
  constructor({ enter, pick }) {
    Object.assign(this, { enter, pick, at: null, shift: [0, 0] });
    this.base = el("canvas", { className: "lines-base" });
    this.over = el("canvas", { className: "lines-over" });
    this.middle = el("div", { className: "lines-middle" }, el("div", { className: "lines-view" }, this.base, this.over));
    this.lists = ["rows", "columns"].map((side) => el("ul", { className: `lines-list ${side}`, role: "listbox", "aria-label": side === "rows" ? "words that look" : "words that are looked at" }));
    this.host = el("div", { className: "lines" }, this.lists[0], this.middle, this.lists[1]);
    this.host.addEventListener("scroll", () => this.soon());
    this.lists.forEach((list, axis) => {
      const index = (event) => {
        const item = event.target.closest("li");
        return item ? +item.dataset.index : null;
      };
      list.addEventListener("pointerover", (event) => this.enter(axis, index(event)));
      list.addEventListener("click", (event) => index(event) !== null && this.pick(axis, index(event)));
      walk(list, "li", alongKeys);
    });
    this.host.addEventListener("pointerleave", () => this.enter(0, null));
    this.top = 0;
    onWidth(this.middle, (width) => {
      this.width = width;
      this.paint();
    });
    view(["theme"], () => this.values && this.paint());
  }

  show({ rows, columns, values, threshold, chosen }) {
    Object.assign(this, { rows, columns, values, threshold, at: null });
    this.tall = Math.max(rows.length, columns.length) > 40 ? 19 : 23;
    this.host.style.setProperty("--tall", `${this.tall}px`);
    this.items = [rows, columns].map((labels, axis) => labels.map((text, index) => {
      const item = el("li", { role: "option", tabIndex: index === 0 ? 0 : -1 }, bdi(text));
      item.dataset.index = index;
      item.dataset.axis = axis;
      return item;
    }));
    this.lists.forEach((list, axis) => list.replaceChildren(...this.items[axis]));
    this.large = Math.max(rows.length, columns.length) > MANY;
    this.shaded = [];
    this.choose(chosen);
    this.paint();
  }

  set(threshold) {
    this.threshold = threshold;
    if (this.values) this.paint();
  }

  /** The chosen word of each side stays marked. */
  choose(chosen) {
    this.chosen = chosen;
    this.items?.forEach((items, axis) => items.forEach((item, index) => {
      const is = index === chosen[axis];
      if (is !== item.hasAttribute("aria-selected")) item.toggleAttribute("aria-selected", is);
      if (is) items.forEach((one) => (one.tabIndex = one === item ? 0 : -1));
    }));
    if (this.large) this.reveal(chosen[0]);
    this.mark(null);
  }

  /** A chosen word that is out of sight comes into the middle. */
  reveal(row) {
    const at = row * this.tall;
    if (row === null || (at >= this.top && at < this.top + TALLEST - this.tall)) return;
    this.host.scrollTop = at - TALLEST / 2;
    this.top = this.host.scrollTop;
  }

  soon() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.top = this.host.scrollTop;
      this.paint();
    });
  }

  paint() {
    if (!this.values || !this.width) return;
    this.tallest = Math.min(TALLEST, this.tall * Math.max(this.rows.length, this.columns.length));
    const context = fresh(this.base, this.width, this.tallest);
    if (!this.large) for (let row = 0; row < this.rows.length; row++) this.draw(context, row, null, this.rows.length > 30 ? 0.4 : 0.75);
    this.mark(this.at);
  }

  /** Lines of one row, or of one column, above the threshold. */
  draw(context, row, column, strength) {
    const top = this.top;
    const [first, last] = row === null ? [0, this.rows.length] : [0, this.columns.length];
    const width = this.columns.length;
    context.strokeStyle = colours().tone1;
    for (let other = first; other < last; other++) {
      const [i, j] = row === null ? [other, column] : [row, other];
      const weight = this.values[i * width + j];
      if (weight < Math.max(this.threshold, 0.004)) continue;
      const [from, to] = [(i + 0.5) * this.tall - top, (j + 0.5) * this.tall - top];
      if (Math.max(from, to) < 0 || Math.min(from, to) > this.tallest) continue;
      context.globalAlpha = Math.min(1, 0.08 + strength * Math.sqrt(weight));
      context.lineWidth = 0.6 + (strength < 0.5 ? 1.8 : 3.4) * weight;
      context.beginPath();
      context.moveTo(0, from);
      context.bezierCurveTo(this.width * 0.4, from, this.width * 0.6, to, this.width, to);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** `at` is [axis, index]: the word under the pointer. Without one, the chosen row. */
  mark(at) {
    this.at = at;
    if (!this.values || !this.width) return;
    const rest = this.chosen?.[0] ?? null;
    const [axis, index] = at ?? [0, this.large ? rest : null];
    const context = fresh(this.over, this.width, this.tallest);
    this.host.classList.toggle("pointed", at !== null);
    for (const item of this.shaded) {
      item.style.removeProperty("--share");
      item.classList.remove("under");
    }
    this.shaded = [];
    if (index === null) return;
    this.draw(context, axis === 0 ? index : null, axis === 1 ? index : null, 1);
    const other = this.items[1 - axis];
    const width = this.columns.length;
    for (let one = 0; one < other.length; one++) {
      const weight = axis === 0 ? this.values[index * width + one] : this.values[one * width + index];
      if (weight < 0.004) continue;
      other[one].style.setProperty("--share", weight.toFixed(3));
      this.shaded.push(other[one]);
    }
    this.items[axis][index]?.classList.add("under");
    this.shaded.push(this.items[axis][index]);
  }
}
