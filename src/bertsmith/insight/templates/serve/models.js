// ---- models: what the server has; which model and verb are chosen stands in the address, texts never do ----

const section = (name) => document.getElementById(name);
const RETRY = 2000; // milliseconds, while models are loaded

let models = [];
let [model, verb] = [null, ""];
const panels = new Map(); // what was typed and answered stays while the page is open

const abilities = (one) => Object.keys(VERBS).filter((name) => VERBS[name].can(one));

function choose(chosen, wanted) {
  const names = abilities(chosen);
  model = chosen;
  verb = names.includes(wanted) ? wanted : names[0];
  history.replaceState(null, "", `#${encodeURIComponent(model.id)}/${verb}`);
  document.querySelector("h1").replaceChildren(bdi(model.id));
  document.title = `${model.id} · bertsmith`;
  section("description").textContent = model.description;
  section("models").querySelectorAll("button").forEach((button, at) => button.setAttribute("aria-pressed", models[at] === model));
  const picker = section("models").querySelector("select");
  if (picker) picker.selectedIndex = models.indexOf(model);
  showVerbs(names);
  const place = `${model.id}/${verb}`;
  if (!panels.has(place)) panels.set(place, makePanel(VERBS[verb], verb, model, models.length === 1));
  section("panel").replaceChildren(panels.get(place));
}

function showVerbs(names) {
  const tabs = names.map((name) => el("button", {
    type: "button",
    role: "tab",
    textContent: name,
    tabIndex: name === verb ? 0 : -1,
    "aria-selected": name === verb,
    "aria-controls": "shown-verb",
    onclick: () => {
      choose(model, name);
      section("verbs").querySelector("[aria-selected=true]").focus();
    },
  }));
  section("verbs").replaceChildren(...tabs);
}

function showModels() {
  const host = section("models");
  host.hidden = models.length < 2;
  const pick = (at) => choose(models[at], verb);
  if (models.length <= 6) {
    const buttons = models.map((one, at) => el("button", { type: "button", onclick: () => pick(at) }, bdi(one.id)));
    host.replaceChildren(el("div", { className: "segments", role: "group", "aria-label": "model" }, ...buttons));
  } else host.replaceChildren(choice("model", models.map((one) => one.id), 0, pick));
}

function askForKey(then) {
  const form = section("key");
  form.hidden = false;
  form.onsubmit = (event) => {
    event.preventDefault();
    key = form.elements.key.value.trim();
    form.elements.key.value = "";
    form.hidden = true;
    then();
  };
  form.elements.key.focus();
}

async function load() {
  const trouble = section("trouble");
  trouble.hidden = true;
  try {
    models = (await askJson("/v1/models")).data;
  } catch (error) {
    if (error.status === 401) askForKey(load);
    if (error.status === 503) setTimeout(load, RETRY);
    trouble.textContent = error.message;
    trouble.hidden = error.status === 401 && !key; // nobody has given one yet
    return;
  }
  showModels();
  const [name, wanted] = location.hash.slice(1).split("/");
  choose(models.find((one) => encodeURIComponent(one.id) === name) ?? models[0], wanted);
  const first = section("panel").querySelector("textarea, input[type=file]");
  if (first.matches("textarea")) first.setSelectionRange(first.value.length, first.value.length);
  first.focus();
}

function start() {
  walk(section("verbs"), "button", alongKeys);
  load();
}
