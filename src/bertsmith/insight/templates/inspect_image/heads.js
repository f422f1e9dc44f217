// ---- heads: where the chosen token looks through every head, as small maps ----

function makeHeads() {
  const host = section("overview");
  const { layers, heads } = inspection.model;
  const grid = el("div", { className: "heads maps", role: "listbox", "aria-label": "attention heads" });
  grid.style.setProperty("--heads", heads);
  grid.append(el("span", { className: "corner", textContent: "layer" }), ...Array.from({ length: heads }, (_, head) => el("span", { className: "head-name", textContent: head + 1 })));
  const maps = [];
  for (let layer = 0; layer < layers; layer++) {
    grid.append(el("span", { className: "layer-name", textContent: layer + 1 }));
    for (let head = 0; head < heads; head++) {
      const canvas = el("canvas", { "aria-hidden": "true" });
      const button = el("button", { type: "button", className: "head", role: "option", tabIndex: -1, onclick: () => set({ layer, head, source: "head" }) }, canvas);
      maps.push({ layer, head, canvas, button });
      grid.append(button);
    }
  }
  host.append(grid);
  const step = (key, at) => ({ ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + heads, ArrowUp: at - heads, Home: 0, End: maps.length - 1 })[key];
  walk(grid, ".head", step);
  let ticket = 0;
  view(["reading", "token", "theme"], async () => {
    const mine = ++ticket;
    for (const { layer, head, canvas, button } of maps) {
      const row = parts(await attentionRow("head", state.token, layer, head));
      if (mine !== ticket) return;
      smallMap(canvas, row.patches);
      const spread = reading.attention.entropy[layer][head];
      button.setAttribute("aria-label", `head ${headName(layer, head)}`);
      button.title = `head ${headName(layer, head)} · ${percent(row.whole)} on patches · entropy ${percent(spread)} of the largest`;
    }
  });
  view(["reading", "layer", "head"], () => {
    for (const { layer, head, button } of maps) {
      const chosen = layer === state.layer && head === state.head;
      if (chosen) button.setAttribute("aria-selected", "true");
      else button.removeAttribute("aria-selected");
      button.tabIndex = chosen ? 0 : -1;
    }
  });
}
