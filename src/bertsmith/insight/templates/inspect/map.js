// ---- map: sentences or words as points of a plane, coloured and shaped by label ----

/** The marked word with a word or two around it. */
function around(characters, [start, end]) {
  const before = characters.slice(Math.max(0, start - 14), start).join("");
  const after = characters.slice(end, end + 14).join("");
  const whole = [start <= 14 ? before : before.replace(/^\S*\s/u, ""), end + 14 >= characters.length ? after : after.replace(/\s\S*$/u, "")];
  return whole[0] + characters.slice(start, end).join("") + whole[1];
}

function makeMap() {
  const host = section("map");
  const given = inspection.map;
  host.hidden = !given || given.points.length === 0;
  if (host.hidden) return;
  host.querySelector(".lead").textContent = `The model’s vectors of ${given.what}, brought down to two dimensions. Near points have similar vectors; drag to move, + and − to zoom.`;
  const methods = given.methods;
  let method = 0;
  const output = el("p", { className: "reading", role: "status" });
  const note = el("p", { className: "hint" });
  let order = [];
  const rest = () => (output.textContent = "Point at a mark to read it.");
  const describe = (index) => {
    if (index === null || !order[index]) return rest();
    const { text, mark, label } = order[index].point;
    const characters = [...text]; // as Python counts them
    const parts = mark ? [characters.slice(0, mark[0]).join(""), el("mark", { textContent: characters.slice(mark[0], mark[1]).join("") }), characters.slice(mark[1]).join("")] : [text];
    return output.replaceChildren(el("bdi", {}, ...parts), ...(label ? [" · ", bdi(label, "soft")] : []));
  };
  const plot = new Scatter({ enter: describe });
  const search = el("input", { type: "search", placeholder: "find", "aria-label": "find points with this text", oninput: () => {
    const wanted = search.value.trim().toLowerCase();
    plot.found = wanted ? new Set(order.filter((one) => one.point.text.toLowerCase().includes(wanted))) : null;
    plot.paint();
    if (wanted) output.textContent = `${plot.found.size} of ${order.length} points contain “${search.value.trim()}”.`;
    else rest();
  } });
  const zooms = el("span", { className: "zooms" }, ...[["−", 1 / 1.5, "smaller"], ["+", 1.5, "larger"], ["all", 0, "show all"]].map(([sign, factor, title]) => el("button", { type: "button", textContent: sign, title, onclick: () => plot.zoomBy(factor) })));
  const segments = el("div", { className: "segments", role: "group", "aria-label": "method" }, ...methods.map((text, index) => el("button", { type: "button", textContent: text, onclick: () => {
    method = index;
    draw();
  } })));
  const legend = el("div", { className: "kinds", role: "group", "aria-label": "labels" });
  given.labels.forEach((label, index) => {
    const mark = el("canvas");
    const button = el("button", { type: "button", className: "kind", "aria-pressed": "false", onclick: () => {
      plot.only = plot.only === index ? null : index;
      for (const one of legend.children) one.setAttribute("aria-pressed", one === button && plot.only === index);
      plot.paint();
    } }, mark, " ", bdi(label));
    legend.append(button);
    view(["theme"], () => plot.dot(fresh(mark, 14, 14), { label: index }, [7, 7], 4.5));
    plot.dot(fresh(mark, 14, 14), { label: index }, [7, 7], 4.5);
  });
  host.append(el("div", { className: "controls" }, segments, search, zooms), legend, output, plot.host, note);

  const draw = () => {
    const model = String(state.model) in given.coordinates ? String(state.model) : Object.keys(given.coordinates)[0];
    const coordinates = given.coordinates[model]?.[methods[method]] ?? [];
    const own = given.points.map((point, index) => [point, coordinates[index]]).filter(([, at]) => at);
    order = own.map(([point, [x, y]]) => {
      const characters = point.mark ? [...point.text] : null;
      return { x, y, point, name: characters ? around(characters, point.mark) : point.text, label: given.labels.indexOf(point.label) };
    });
    for (const [index, button] of [...segments.children].entries()) button.setAttribute("aria-pressed", index === method);
    const shares = given.explained?.[model];
    note.textContent = methods[method] === "PCA" && shares ? `The two axes show ${percent(shares[0])} and ${percent(shares[1])} of the variance.` : methods[method] === "PCA" ? "" : "Distances between far groups mean little here; who is near whom does.";
    plot.found = null;
    search.value = "";
    if (order.length) plot.show(order);
  };
  view(["model"], draw);
}
