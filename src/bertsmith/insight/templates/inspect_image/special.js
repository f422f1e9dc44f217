// ---- special: the class token beside the distillation token of DeiT ----

function makeSpecial() {
  const host = section("special");
  host.hidden = specials.length < 2;
  if (host.hidden) return;
  const both = specials.map((name) => ({ name, readout: makeReadout(`attention of the ${name}`) }));
  const line = el("div");
  const note = el("p", { className: "hint" });
  host.append(note, el("div", { className: "pair" }, ...both.map(({ name, readout }) => el("figure", {}, el("h3", { textContent: name }), readout.host))), line);
  let ticket = 0;
  view(["reading", "layer", "head", "source", "style", "theme"], async () => {
    const mine = ++ticket;
    const rows = await Promise.all(both.map((_, token) => attentionRow(state.source, token, state.layer, state.head)));
    const alike = [];
    for (let layer = 0; layer < inspection.model.layers; layer++) {
      const [one, other] = await Promise.all(both.map((_, token) => attentionRow(state.source, token, layer, state.head)));
      alike.push(cosine(parts(one).patches, parts(other).patches));
    }
    if (mine !== ticket) return;
    both.forEach(({ readout }, token) => readout.show(parts(rows[token]), shareText(parts(rows[token]))));
    const shown = { head: `head ${headName(state.layer, state.head)}`, mean: `the mean of layer ${state.layer + 1}`, rollout: `the rollout up to layer ${state.layer + 1}` }[state.source];
    note.textContent = `Both by ${shown}, as it is chosen above.`;
    line.replaceChildren(layerLine("Cosine similarity of the two maps, by layer", alike.map((_, layer) => `${layer + 1}`), alike));
  });
}
