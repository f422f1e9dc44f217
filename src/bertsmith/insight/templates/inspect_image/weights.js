// ---- weights: one row of attention, out of bytes that are 255 times the square root of a weight ----

/** The row of a token in the stored matrices, which average squares of patches on large images. */
function rowOf(token) {
  const patch = patchOf(token);
  const { block } = reading.attention;
  if (patch === null || block === 1) return token;
  const [row, column] = [Math.floor(patch / reading.grid[1]), patch % reading.grid[1]];
  return specials.length + Math.floor(row / block) * Math.ceil(reading.grid[1] / block) + Math.floor(column / block);
}

const square = (byte) => (byte / 255) ** 2;

function rowAt(stored, matrix, token) {
  const { rows, tokens } = reading.attention;
  const start = (matrix * rows + rowOf(token)) * tokens;
  return Float32Array.from(stored.subarray(start, start + tokens), square);
}

/** Where a token looks: through one head, by the mean of a layer's heads, or by the rollout up to a layer. */
async function attentionRow(source, token, layer, head) {
  const { attention } = reading;
  if (source === "rollout") return rowAt(await decode(attention, "rollout"), layer, token);
  const stored = await decode(attention, "weights", layer);
  if (source === "head") return rowAt(stored, head, token);
  const sum = new Float32Array(attention.tokens);
  for (let each = 0; each < attention.heads; each++) rowAt(stored, each, token).forEach((weight, at) => (sum[at] += weight / attention.heads));
  return sum;
}

/** A row as the share of each special token, the shares of the patches, and their sum. */
function parts(row) {
  const image = row.slice(specials.length);
  return { special: [...row.slice(0, specials.length)], patches: image, whole: image.reduce((sum, weight) => sum + weight, 0) };
}

function cosine(one, other) {
  let [both, first, second] = [0, 0, 0];
  one.forEach((value, at) => {
    both += value * other[at];
    first += value * value;
    second += other[at] * other[at];
  });
  return both / Math.sqrt(first * second || 1);
}
