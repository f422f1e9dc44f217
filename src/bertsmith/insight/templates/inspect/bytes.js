// ---- bytes: matrices out of the page's data, each decompressed once ----

async function bytes(text) {
  const packed = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const decoded = new WeakMap(); // of each object of the data: its fields, as promises of bytes

function decode(owner, field, index = null) {
  if (!decoded.has(owner)) decoded.set(owner, new Map());
  const held = decoded.get(owner);
  const key = index === null ? field : `${field} ${index}`;
  if (!held.has(key)) held.set(key, bytes(index === null ? owner[field] : owner[field][index]));
  return held.get(key);
}
