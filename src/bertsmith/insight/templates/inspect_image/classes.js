// ---- classes: what the classifier says at every layer ----

function makeClasses() {
  const host = section("classes");
  let by = -1; // the last reading: what is predicted
  const buttons = el("div", { className: "segments", role: "group", "aria-label": "the token that is read" });
  const [table, line] = [el("div"), el("div")];
  host.append(buttons, el("div", { className: "split" }, table, line));
  const draw = () => {
    const { names, layers, top, label, course } = reading.classes;
    const index = by < 0 ? names.length - 1 : by;
    [...buttons.children].forEach((button, at) => button.setAttribute("aria-pressed", at === index));
    table.replaceChildren(topTable(layers, top[index], label));
    line.replaceChildren(layerLine(`Probability of ${label}, by layer`, layers, course[index]));
  };
  view(["reading"], () => {
    host.hidden = !reading.classes;
    if (host.hidden) return;
    const { names } = reading.classes;
    buttons.hidden = names.length < 2;
    buttons.replaceChildren(...names.map((name, index) => el("button", { type: "button", textContent: name, onclick: () => {
      by = index;
      attempt(draw);
    } })));
    draw();
  });
}
