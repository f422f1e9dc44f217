// ---- bar: what the page shows (text, model, head, token), and the text itself ----

function describeModels() {
  const models = inspection.models.map((model) => {
    const facts = [model.kind, model.architecture?.replace("_", "-")];
    if (model.layers) facts.push(`${model.layers} layer${model.layers > 1 ? "s" : ""}${model.heads ? ` of ${model.heads} heads` : ""}`);
    if (model.width) facts.push(`${counted(model.width)} wide`);
    if (model.parameters) facts.push(`${counted(model.parameters)} parameters`);
    if (model.purpose) facts.push(model.purpose);
    return el("li", {}, el("b", {}, bdi(model.name)), ` ${facts.filter(Boolean).join(" · ")}`);
  });
  section("models").append(...models);
  view(["reading"], () => models.forEach((one, index) => one.classList.toggle("chosen", models.length > 1 && index === state.model)));
}

function makeBar() {
  const bar = section("bar");
  const inside = el("div", { className: "bar-inside" });
  bar.append(inside);
  const { models, texts } = inspection;
  if (models.length > 1) {
    const named = (index) => models[index].name;
    const control = slider("model", 0, models.length - 1, 1, state.model, named, (model) => set({ model }));
    control.classList.add("models-slider");
    inside.append(control);
  }
  if (texts.length > 1) {
    const letter = (index) => String.fromCharCode(65 + (index % 26)) + (index >= 26 ? Math.floor(index / 26) : "");
    if (texts.length <= 4) {
      const buttons = texts.map((text, index) => el("button", { type: "button", "aria-label": `text ${letter(index)}`, title: text.slice(0, 300), onclick: () => set({ text: index }) }, el("span", { className: "roomy", textContent: "text " }), letter(index)));
      inside.append(el("div", { className: "segments", role: "group", "aria-label": "text" }, ...buttons));
      view(["text"], () => buttons.forEach((button, index) => button.setAttribute("aria-pressed", index === state.text)));
    } else inside.append(choice("text", texts.map((text, index) => `${letter(index)}: ${[...text].slice(0, 40).join("")}`), 0, (text) => set({ text })));
  }
  const status = el("p", { className: "status", "aria-live": "polite" });
  inside.append(status, themeButton());
  view(["reading", "attention", "layer", "head", "tokens", "targets"], () => {
    const kind = reading.attentions[state.attention];
    const chosen = el("span", {}, "token ", el("b", {}, bdi(name("tokens", state.tokens))));
    if (reading.targets) chosen.append(" → ", el("b", {}, bdi(name("targets", state.targets))));
    status.replaceChildren(chosen);
    if (!kind) return;
    const found = kind.heads_by[state.layer][state.head];
    status.append(" · ", el("span", {}, "head ", el("b", { textContent: headName(state.layer, state.head) }), ` ${found.kind}`));
  });
}

function describeToken(side, index) {
  const token = tokensOf(side)[index];
  const facts = [`token ${index + 1} of ${tokensOf(side).length}`];
  if (token.special) facts.push("a special token");
  else {
    const word = tokensOf(side).flatMap((one, at) => (one.word === token.word ? [at] : []));
    if (word.length > 1) facts.push(`piece ${word.indexOf(index) + 1} of ${word.length} of “${shown(tokensOf(side), word)}”`);
    if (token.end) facts.push(`characters ${token.start + 1}–${token.end}`);
  }
  return [el("b", {}, bdi(token.text)), ` ${facts.join(" · ")}`];
}

function makeText() {
  const host = section("text");
  const output = el("p", { className: "reading", role: "status" });
  const body = el("div", { className: "texts" });
  host.append(body, output);
  let made = {};
  const marks = { tokens: marker("tokens"), targets: marker("targets") };
  const rest = (side = "tokens") => output.replaceChildren(...describeToken(side, state[side]));
  view(["reading"], () => {
    made = { tokens: running("tokens", "the tokens of the text") };
    if (reading.targets) made.targets = running("targets", "the tokens that the decoder reads");
    body.replaceChildren(...Object.entries(made).flatMap(([side, one]) => (reading.targets ? [el("h3", { textContent: side === "tokens" ? "encoder" : "decoder" }), one.host] : [one.host])));
    body.classList.toggle("long", reading.tokens.length > 160);
    const notes = reading.notes.map((note) => el("li", { textContent: note, dir: "auto" }));
    section("notes").replaceChildren(...notes);
    section("notes").hidden = notes.length === 0;
  });
  view(["reading", "tokens", "targets"], () => {
    for (const [side, one] of Object.entries(made)) marks[side].choose(one.spans);
    rest();
  });
  onHover(host, (side, index) => {
    if (!made[side]) return;
    marks[side].hover(made[side].spans, index);
    if (index === null) rest();
    else output.replaceChildren(...describeToken(side, index));
  });
}

/** The first choice: the blank, else the last word; the head that most clearly looks at one neighbour. */
function firstChoice() {
  const blank = reading.tokens.findIndex((token) => /^(\[MASK\]|<mask>)$/i.test(token.text));
  const last = reading.tokens.findLastIndex((token) => !token.special);
  state.tokens = Math.max(0, blank >= 0 ? blank : last);
  const kind = reading.attentions[state.attention];
  if (!kind) return;
  let most = -1;
  kind.heads_by.forEach((line, layer) => line.forEach((head, index) => {
    const telling = head.share + { previous: 3, next: 3, "same word": 3, itself: 2, separator: 1, first: 1 }[head.kind];
    if (telling > most) [most, state.layer, state.head] = [telling, layer, index];
  }));
}

function start() {
  fit();
  firstChoice();
  describeModels();
  makeBar();
  makeText();
  begin([makeOverview, makeAttention, makePredictions, makeMasked, makeComparison, makeAttributions, makeNeighbours, makeMap]);
}
