// ---- verbs: which models can do them, what they ask, and how their answers are drawn ----

const IMAGE = "Drop an image here, paste one, or choose a file";
const lines = (text) => text.split("\n").filter((line) => line.trim());

/** Fields: `line` is asked by Enter; in `lines` and `passage` Enter begins a new line. */
const line = (name, label, value) => ({ name, label, value, kind: "line" });
const passage = (name, label, value) => ({ name, label, value, kind: "passage" });
const several = (name, label, value) => ({ name, label, value, kind: "lines" });
const number = (name, label, value, least, most, step = 1) => ({ name, label, value, least, most, step, kind: "number" });

const image = (name, label) => ({ name, label, kind: "image" });

const sees = (verb) => (model) => model.images && model.verbs.includes(verb);
const does = (verb, ...tasks) => (model) => !model.images && model.verbs.includes(verb) && (!tasks.length || tasks.includes(model.task));

/** The texts of a model that reads one or two, named as in its training data; if these are not known, the second may stay empty. */
function textFields({ columns, mask, task }) {
  if (columns.length === 2) return [line("text", columns[0], EXAMPLES.sentence), line("second", columns[1], lines(EXAMPLES.sentences)[0])];
  const first = line("text", columns[0] ?? "text", mask ? EXAMPLES.blank(mask) : EXAMPLES.review);
  const unknown = !columns.length && task === "classify";
  return unknown ? [first, line("second", "second text, of a model that reads pairs", "")] : [first];
}
const texts = ({ text, second }) => (second ? [text, second] : text);

const VERBS = {
  predict: {
    can: (model) => sees("predict")(model) || does("predict", "classify", "classify_features", "features")(model),
    lead: (model) => (model.images ? `Which of ${counted(model.labels.length)} classes an image shows.` : model.labels.length > 1 ? `Which of ${counted(model.labels.length)} classes a text belongs to.` : "The number that the model gives a text."),
    fields: (model) => (model.images ? [image("image", IMAGE)] : textFields(model)),
    path: "/predict",
    body: (values) => ({ inputs: values.image ? values.image : values.second ? [[values.text, values.second]] : values.text }),
    draw: (answer) => drawClasses(Array.isArray(answer) ? answer[0] : answer),
  },
  tag: {
    can: does("predict", "tag"),
    lead: () => "A tag for each word.",
    fields: () => [line("text", "text", EXAMPLES.names)],
    path: "/tag",
    body: ({ text }) => ({ inputs: text }),
    draw: drawTags,
  },
  answer: {
    can: does("predict", "answer"),
    lead: () => "The span of a context that answers a question.",
    fields: () => [line("question", "question", EXAMPLES.question), passage("context", "context", EXAMPLES.context)],
    path: "/answer",
    body: ({ question, context }) => ({ inputs: { question, context } }),
    draw: drawAnswer,
  },
  choose: {
    can: does("predict", "choose"),
    lead: () => "The most probable of several endings.",
    fields: () => [line("text", "beginning", EXAMPLES.beginning), several("endings", "endings, one a line", EXAMPLES.endings)],
    path: "/predict",
    body: ({ text, endings }) => ({ inputs: { text, endings: lines(endings) } }),
    draw: drawEndings,
  },
  translate: {
    can: does("translate"),
    lead: () => "The translation of a text, or what else the model was trained to write.",
    fields: () => [line("text", "text", EXAMPLES.sentence)],
    options: [number("beams", "beams", 5, 1, 64)],
    path: "/translate",
    body: ({ text, beams }) => ({ inputs: text, num_beams: beams }),
    draw: drawTranslation,
  },
  fill: {
    can: does("fill"),
    lead: ({ mask }) => `The likeliest words wherever ${mask} stands.`,
    fields: ({ mask }) => [{ ...line("text", "text", EXAMPLES.blank(mask)), insert: mask }],
    options: [number("words", "words", 5, 1, 50)],
    path: "/fill",
    body: ({ text, words }) => ({ inputs: text, top_k: words }),
    draw: drawFilled,
  },
  generate: {
    can: does("generate"),
    lead: () => "What comes next.",
    fields: () => [line("text", "prompt", EXAMPLES.story)],
    options: [number("tokens", "tokens", 40, 1, 400), number("temperature", "temperature", 0.8, 0, 5, 0.1), number("samples", "texts", 1, 1, 10)],
    path: "/generate",
    body: ({ text, tokens, temperature, samples }) => ({ inputs: text, max_new_tokens: tokens, temperature, samples }),
    draw: drawTexts,
  },
  similarity: {
    can: does("embed"),
    lead: () => "How close texts are in meaning: the cosine of their embeddings.",
    fields: () => [line("text", "text", EXAMPLES.sentence), several("texts", "compared with, one a line", EXAMPLES.sentences)],
    path: "/similarity",
    body: (values) => ({ inputs: { source_sentence: values.text, sentences: lines(values.texts) } }),
    draw: drawSimilar,
  },
  rerank: {
    can: does("rerank"),
    lead: ({ reranks, positives }) => `Texts by their relevance for a query: ${reranks || positives.length ? "the model reads each together with it" : "the cosine of their embeddings"}.`,
    fields: ({ positives }) => [line("query", "query", EXAMPLES.query), several("texts", "texts, one a line", EXAMPLES.passages), ...(positives.length > 1 ? [line("positive", `which class means relevant: ${positives.join(" or ")}`, positives[0])] : [])],
    path: "/rerank",
    body: ({ query, texts, positive }) => ({ query, texts: lines(texts), positive }),
    draw: drawReranked,
  },
  score: {
    can: does("score"),
    lead: () => "How probable a text is, token by token: the stronger the shade, the less expected.",
    fields: () => [line("text", "text", EXAMPLES.plain)],
    path: "/score",
    body: ({ text }) => ({ inputs: text }),
    draw: drawScore,
  },
  tokenize: {
    can: (model) => !model.images,
    lead: () => "The tokens of a text, and their numbers in the vocabulary.",
    fields: () => [line("text", "text", EXAMPLES.split)],
    path: "/tokenize",
    body: ({ text }) => ({ inputs: text }),
    draw: drawTokens,
  },
  inspect: {
    can: (model) => sees("inspect")(model) || does("inspect")(model),
    lead: (model) => `Attention, predictions by layer${model.images ? "" : " and neighbours"} of ${model.images ? "an image" : "a short text"}, as a page of its own. It takes seconds.`,
    fields: (model) => (model.images ? [image("image", IMAGE)] : model.task === "answer" || model.task === "choose" ? [line("text", "question or beginning", EXAMPLES.question), line("second", "context or ending", EXAMPLES.context)] : textFields(model)),
    path: "/inspect",
    file: "inside.html",
    body: (values) => ({ inputs: values.image ? values.image : texts(values) }),
    draw: drawInspection,
  },
};
