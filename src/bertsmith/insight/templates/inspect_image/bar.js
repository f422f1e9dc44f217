// ---- bar: the image, the token that looks and the head; and the image itself with its classes ----

function describeModel() {
  const { model } = inspection;
  const facts = [model.kind, `${model.layers} layer${model.layers > 1 ? "s" : ""} of ${model.heads} heads`, `${counted(model.width)} wide`];
  facts.push(`patches of ${model.patch} × ${model.patch} pixels`, `${counted(model.parameters)} parameters`, model.purpose);
  section("models").append(el("li", {}, el("b", {}, bdi(model.name)), ` ${facts.join(" · ")}`));
}

function makeBar() {
  const inside = el("div", { className: "bar-inside" });
  section("bar").append(inside);
  const { images } = inspection;
  if (images.length > 1) inside.append(choice("image", images.map((one) => one.name), 0, (image) => set({ image })));
  const status = el("p", { className: "status", "aria-live": "polite" });
  inside.append(status, themeButton());
  view(["reading", "token", "layer", "head"], () => {
    status.replaceChildren(el("b", { textContent: tokenName(state.token) }), " looks · head ", el("b", { textContent: headName(state.layer, state.head) }));
  });
}

function makeImage() {
  const host = section("image");
  const output = el("p", { className: "reading", role: "status" });
  const picture = new Picture({
    label: "the image; arrow keys choose a patch",
    enter: (patch) => say(patch === null ? state.token : patch + specials.length),
    pick: (patch) => set({ token: patch + specials.length }),
  });
  const buttons = specials.map((name, token) => el("button", { type: "button", textContent: name, onclick: () => set({ token }) }));
  const classes = el("div", { className: "classes" });
  const side = el("div", {}, el("p", { className: "hint" }, "Which token looks:"), el("div", { className: "segments", role: "group", "aria-label": "special tokens" }, ...buttons), output, classes);
  host.append(el("div", { className: "split pictured" }, picture.host, side));
  const say = (token) => {
    const patch = patchOf(token);
    if (patch === null) {
      output.replaceChildren(el("b", { textContent: specials[token] }), " has no pixels: it collects what the classifier reads.");
      return;
    }
    const size = inspection.model.patch;
    const [row, column] = [Math.floor(patch / reading.grid[1]), patch % reading.grid[1]];
    output.replaceChildren(el("b", { textContent: tokenName(token) }), ` row and column; pixels ${column * size}–${(column + 1) * size - 1} across, ${row * size}–${(row + 1) * size - 1} down`);
  };
  view(["reading"], () => {
    host.querySelector("h2").replaceChildren("The image ", el("small", {}, bdi(reading.name)));
    if (!reading.classes) return;
    const { names, layers, top } = reading.classes;
    classes.replaceChildren(...names.map((name, index) => guesses(names.length > 1 ? `by the ${name}`.replace("the both", "both") : "Classes", top[index][layers.length - 1])));
  });
  view(["reading", "token"], () => {
    buttons.forEach((button, token) => button.setAttribute("aria-pressed", token === state.token));
    picture.show(null, patchOf(state.token));
    say(state.token);
  });
}

/** Classes with their probabilities as bars. */
function guesses(title, top) {
  const line = ([label, share]) => {
    const bar = el("i");
    bar.style.width = `${Math.max(0.5, 100 * share)}%`;
    return el("p", { className: "guess" }, el("span", {}, bdi(label)), el("span", { textContent: percent(share) }), bar);
  };
  return el("div", { className: "ranked" }, el("h3", { textContent: title }), ...top.map(line));
}

function start() {
  fit();
  state.layer = reading.attention.layers - 1;
  describeModel();
  makeBar();
  begin([makeImage, makeHeads, makeAttention, makeSpecial, makeClasses, makeAttributions, makeReconstruction]);
}
