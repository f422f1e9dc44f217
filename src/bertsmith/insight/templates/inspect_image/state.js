// ---- state: the image, the token that looks, and the head through which it does ----

const inspection = JSON.parse(document.getElementById("inspection").textContent);

const state = {
  image: 0,
  token: 0, // special tokens first, then patches row by row
  layer: 0,
  head: 0,
  source: "head", // or mean of the layer, or rollout
  style: 0, // how a picture shows shares: heat, or light
  theme: "", // as the system has it, or light, or dark
  width: 0,
};
const WHOLE = ["image"]; // values with which everything changes
const KINDS = {}; // of heads: those of text look at words
let reading = null;

const specials = inspection.special;

/** Another image may have fewer patches; what is chosen stays where it can. */
function fit() {
  reading = inspection.images[state.image];
  const token = clamp(state.token, 0, reading.attention.tokens - 1);
  if (token !== state.token) changed.add("token");
  state.token = token;
  changed.add("reading");
}

const patches = () => reading.grid[0] * reading.grid[1];
const patchOf = (token) => (token < specials.length ? null : token - specials.length);

/** A token as people read it: its name, or the row and column of the patch. */
function tokenName(token) {
  const patch = patchOf(token);
  return patch === null ? specials[token] : `patch ${Math.floor(patch / reading.grid[1]) + 1}, ${(patch % reading.grid[1]) + 1}`;
}
const headName = (layer, head) => `${layer + 1}-${head + 1}`;
