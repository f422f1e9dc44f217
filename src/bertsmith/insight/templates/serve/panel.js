// ---- panel: the fields of one verb of one model, its last answer, and the same by curl ----

/** A field with its label; `submit` is called where Enter, or Ctrl and Enter, should ask. */
function field({ name, label, value, kind, insert, least, most, step }, submit) {
  if (kind === "number") {
    const input = el("input", { type: "number", name, min: least, max: most, step, required: true });
    input.value = value;
    return el("label", { className: "control" }, el("span", { textContent: label }), input);
  }
  if (kind === "image") return imageField(name, label, submit);
  const rows = { line: 1, passage: 4, lines: 5 }[kind];
  const area = el("textarea", { name, rows, dir: "auto", spellcheck: false, className: kind, value });
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    const asks = kind === "line" ? !event.shiftKey : event.ctrlKey || event.metaKey;
    if (!asks) return;
    event.preventDefault();
    submit();
  });
  const add = insert && el("button", { type: "button", className: "link", textContent: `add ${insert}`, onclick: () => {
    area.setRangeText(insert, area.selectionStart, area.selectionEnd, "end");
    area.focus();
  } });
  return el("div", { className: "field" }, el("label", {}, el("span", { textContent: label }), area), add || null);
}

/** The line for a shell, with a button that copies it where the browser lets a page do so. */
function shellLine(text) {
  const copy = el("button", { type: "button", className: "link", textContent: "copy", onclick: async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "copied";
  } });
  return el("div", { className: "shell" }, el("h3", {}, "The same by curl"), navigator.clipboard ? copy : null, el("pre", { textContent: text }));
}

function makePanel(verb, name, model, alone) {
  const { path, options = [], file } = verb;
  const form = el("form", { className: "ask" });
  const asked = (body) => (alone ? body : { ...body, model: model.id });
  const run = el("button", { className: "run", textContent: name });
  const status = el("span", { className: "hint", role: "status" });
  const answer = el("div", { className: "answer", "aria-live": "polite" });
  const fields = verb.fields(model);
  const submit = () => form.requestSubmit();
  const enter = fields.some((one) => one.kind === "image") ? "" : fields.some((one) => one.kind !== "line") ? "Ctrl and Enter asks from every field." : "Enter asks, Shift and Enter begins a new line.";
  form.append(
    ...fields.map((one) => field(one, submit)),
    el("div", { className: "controls" }, run, ...options.map((one) => field(one, submit)), status),
  );
  status.textContent = enter;
  const read = () => {
    const values = Object.fromEntries(new FormData(form));
    for (const option of options) values[option.name] = Number(values[option.name]);
    for (const one of fields) values[one.name] = values[one.name].replaceAll("\r\n", "\n");
    return values;
  };
  let latest = null;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    latest?.abort(); // the answer to what stood there before is no longer wanted
    const { signal } = (latest = new AbortController());
    const [values, began] = [read(), performance.now()];
    const body = asked(verb.body(values));
    answer.setAttribute("aria-busy", "true");
    status.textContent = "…";
    let shown;
    try {
      const found = file ? await (await ask(path, body, signal)).text() : await askJson(path, body, signal);
      const took = performance.now() - began;
      shown = await verb.draw(found, values, model, (also, more) => askJson(also, asked(more), signal));
      status.textContent = took < 9950 ? `${took.toFixed(0)} ms` : `${(took / 1000).toFixed(0)} s`;
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) askForKey(submit);
      status.textContent = "";
      shown = [el("p", { className: "trouble", role: "alert", textContent: error instanceof Refusal ? error.message : `page: ${error.message}.` })];
    }
    if (signal.aborted) return;
    answer.replaceChildren(...shown, shellLine(curl(path, body, file)));
    answer.removeAttribute("aria-busy");
  });
  return el("div", { role: "tabpanel", id: "shown-verb", "aria-label": name }, el("p", { className: "lead", textContent: verb.lead(model) }), form, answer);
}
