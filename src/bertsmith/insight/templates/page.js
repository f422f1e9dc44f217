// Read the curves out under the pointer: the legend shows the values there, and the last ones when the pointer leaves.
for (const figure of document.querySelectorAll(".chart")) {
  const svg = figure.querySelector("svg");
  const hover = svg.querySelector(".hover");
  const guide = hover.querySelector("line");
  const where = figure.querySelector(".where output");
  const keys = [...figure.querySelectorAll(".key")].map((key) => {
    const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    dot.setAttribute("class", key.classList[1]); // its tone
    dot.setAttribute("r", 4);
    hover.append(dot);
    return { points: JSON.parse(key.dataset.points), output: key.querySelector("output"), dot };
  });
  const nearest = (points, x) => points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
  const finest = keys.reduce((most, key) => (key.points.length > most.points.length ? key : most));
  const last = where.textContent;

  const point = (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const [at, , step] = nearest(finest.points, x);
    for (const { points, output, dot } of keys) {
      const [left, top, , value] = nearest(points, at);
      output.textContent = value;
      dot.setAttribute("cx", left);
      dot.setAttribute("cy", top);
    }
    guide.setAttribute("x1", at);
    guide.setAttribute("x2", at);
    where.textContent = step;
    hover.removeAttribute("hidden");
  };
  const leave = () => {
    for (const { points, output } of keys) output.textContent = points.at(-1)[3];
    where.textContent = last;
    hover.setAttribute("hidden", "");
  };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", leave);
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
