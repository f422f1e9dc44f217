// ---- texts: answers that are drawn in a text. Bounds are counted in characters, of which emoji are one ----

/** A small box with a word and what belongs to it. */
const chip = (word, below, className = "") => el("span", { className: `chip ${className}` }, bdi(word), el("small", { textContent: below }));

const running = (...parts) => el("p", { className: "running", dir: "auto" }, ...parts);

/** The sentence with a word in each blank; another word is chosen by a click. */
function drawFilled({ blanks, best }, { text }, { mask }) {
  const parts = text.split(mask);
  const chosen = blanks.map(() => 0);
  const sentence = running(best);
  const lists = blanks.map((words, blank) => {
    const buttons = words.map(({ word, probability }, at) => barButton(word, percent(probability), probability, () => choose(blank, at)));
    return el("div", { className: "blank-words" }, el("h3", { textContent: blanks.length > 1 ? `Mask ${blank + 1}` : "The mask" }), ...buttons);
  });
  const choose = (blank, at) => {
    chosen[blank] = at;
    lists[blank].querySelectorAll("button").forEach((button, index) => button.setAttribute("aria-pressed", index === at));
    if (parts.length !== blanks.length + 1) return; // the tokenizer writes the blank in another way
    const words = chosen.map((index, number) => el("b", { className: "filled" }, bdi(blanks[number][index].word)));
    sentence.replaceChildren(...parts.flatMap((part, number) => [part, ...words.slice(number, number + 1)]));
  };
  blanks.forEach((_, blank) => choose(blank, 0));
  return [sentence, el("div", { className: "columns" }, ...lists)];
}

/** A text whose spans are elements: [start, end, make], in their order. */
function marked(text, spans) {
  const letters = [...text];
  const parts = [];
  let at = 0;
  for (const [start, end, make] of spans) {
    parts.push(letters.slice(at, start).join(""), make(letters.slice(Math.max(at, start), end).join("")));
    at = Math.max(at, end);
  }
  return running(...parts, letters.slice(at).join(""));
}

/** Entities over the text, a colour for each label; the label stands there, too. */
function drawTags({ entities }, { text }, { labels }) {
  const kinds = [...new Set(labels.map((label) => label.replace(/^[BI]-/, "")).filter((label) => label !== "O"))];
  const tone = (label) => `tone${1 + (Math.max(0, kinds.indexOf(label)) % 8)}`;
  const spans = entities.map(({ start, end, label, probability }) => [
    start,
    end,
    (words) => el("mark", { className: `entity ${tone(label)}`, title: percent(probability) }, bdi(words), el("small", { textContent: label })),
  ]);
  const bars = entities.slice(0, SHOWN).map(({ words, label, probability }) => bar(`${words.join(" ")} · ${label}`, percent(probability), probability));
  return [marked(text, spans), ...(entities.length ? [el("div", { className: "bars" }, ...bars), ...rest(entities.length)] : [hint("No word has a tag.")])];
}

/** The answer in its context; another span is marked by a click. */
function drawAnswer(answer, { context }) {
  const text = running();
  const { spans } = answer;
  const mark = (span) => {
    const found = span ? [[span.start, span.end, (words) => el("mark", { className: "span" }, bdi(words))]] : [];
    text.replaceChildren(...marked(context, found).childNodes);
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", spans[at] === span));
  };
  const buttons = spans.map((span) => barButton(span.answer, percent(span.probability), span.probability, () => mark(span)));
  mark(answer.answer ? spans[0] : null);
  const none = answer.answer ? [] : [hint("The model finds no answer in this context.")];
  return [text, ...none, el("div", { className: "bars" }, el("h3", { textContent: answer.answer ? "Answers by probability" : "If there had to be one" }), ...buttons)];
}

const SURPRISING = 8; // nats: a token of 3 in 10,000 has the full shade

/** Every token shaded by how little the model expects it. */
async function drawScore(scored, { text }, model, also) {
  const [tokens] = await also("/tokenize", { inputs: text, add_special_tokens: false });
  const output = el("p", { className: "reading", role: "status", textContent: "Point at a word, or walk with Tab, to read its probability." });
  const logs = scored.token_log_probabilities;
  const say = (word, log) => output.replaceChildren(el("b", {}, bdi(word)), ` has a probability of ${percent(Math.exp(log))} given ${model.mask ? "the others" : "those before it"}.`);
  const shade = (at) => (word) => {
    const read = () => say(word, logs[at]);
    const span = el("span", { className: "scored", tabIndex: 0, onfocus: read, onpointerenter: read }, bdi(word));
    span.style.setProperty("--share", clamp(-logs[at] / SURPRISING, 0, 1).toFixed(3));
    return span;
  };
  const spans = tokens.slice(0, logs.length).map(({ start, stop }, at) => [start, stop, shade(at)]);
  const facts = [`log-likelihood ${scored.log_likelihood.toFixed(2).replace("-", "−")}`, `${counted(scored.tokens)} tokens`];
  if (scored.perplexity !== null) facts.push(`perplexity ${scored.perplexity.toPrecision(3)}`);
  return [marked(text, spans), output, el("p", { className: "facts", textContent: facts.join(" · ") })];
}

function drawTexts({ prompt, texts }) {
  return texts.map((text) => (text.startsWith(prompt) ? running(el("span", { className: "prompt", textContent: prompt }), el("b", { textContent: text.slice(prompt.length) })) : running(text)));
}

const drawTranslation = ({ translation }) => [running(translation)];

function drawTokens([tokens], _, model) {
  const special = tokens.filter((token) => token.special).length;
  const chips = tokens.map((token) => chip(token.text, token.id, token.special ? "special" : ""));
  return [el("div", { className: "chips" }, ...chips), el("p", { className: "facts", textContent: `${counted(tokens.length)} tokens, ${special} of them special; the model reads ${counted(model.max_length)} at most.` })];
}

/** The page of a text is a file of its own, which is held by this browser and opened in a new tab. */
function drawInspection(page) {
  const href = URL.createObjectURL(new Blob([page], { type: "text/html" }));
  const link = el("a", { className: "run", href, target: "_blank", rel: "noopener", textContent: "Open the page ↗" });
  link.click();
  return [el("p", {}, link), hint("It opens in a new tab, is one file, and can be kept.")];
}
