// ---- weights: the matrix that is shown, of words or tokens, of one head, a layer's mean, or the rollout ----

/** Weights of tokens as shares: one head, the mean of the layer's heads, or attention rollout. */
async function tokenWeights(attention, source, layer, head) {
  const [rows, columns] = attention.size;
  const count = rows * columns;
  if (source === "rollout") {
    const all = await decode(attention, "rollout");
    const part = Float32Array.from(all.subarray(layer * count, (layer + 1) * count));
    for (let row = 0; row < rows; row++) {
      let sum = 0; // each row was stored with its largest as 255; as weights, a row adds up to one again
      for (let column = 0; column < columns; column++) sum += part[row * columns + column];
      for (let column = 0; column < columns; column++) part[row * columns + column] /= sum || 1;
    }
    return part;
  }
  const all = await decode(attention, "weights", layer);
  const part = new Float32Array(count);
  if (source === "head") {
    const from = head * count;
    for (let at = 0; at < count; at++) part[at] = all[from + at] / 255;
    return part;
  }
  const share = 1 / (255 * attention.heads);
  for (let one = 0; one < attention.heads; one++) {
    const from = one * count;
    for (let at = 0; at < count; at++) part[at] += all[from + at] * share;
  }
  return part;
}

/** Of groups of tokens: the sum over the columns of a word, the mean over its rows (Clark et al. 2019, section 4.1). */
function grouped(weights, width, rows, columns, renormalise) {
  const values = new Float32Array(rows.length * columns.length);
  const columnOf = new Int32Array(width).fill(-1);
  columns.forEach((group, column) => group.forEach((index) => (columnOf[index] = column)));
  rows.forEach((group, row) => {
    const start = row * columns.length;
    const share = 1 / group.length;
    let sum = 0;
    for (const index of group) {
      for (let other = 0; other < width; other++) {
        if (columnOf[other] < 0) continue;
        const weight = weights[index * width + other] * share;
        values[start + columnOf[other]] += weight;
        sum += weight;
      }
    }
    if (renormalise && sum > 0) for (let column = 0; column < columns.length; column++) values[start + column] /= sum;
  });
  return values;
}

/** The words a row looks at most, or a column is looked at by. */
function strongest(values, indices, count = 5) {
  return [...indices].sort((a, b) => values(b) - values(a)).slice(0, count).filter((index) => values(index) >= 0.005);
}
