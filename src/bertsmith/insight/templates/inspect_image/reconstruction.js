// ---- reconstruction: what a masked autoencoder sees, what it makes of that, and the image itself ----

const STAGES = ["what it sees", "what it predicts", "the image"];

function makeReconstruction() {
  const host = section("reconstruction");
  const pictures = STAGES.map((stage) => el("img", { alt: stage }));
  host.append(el("div", { className: "stages" }, ...pictures.map((one, at) => el("figure", {}, one, el("figcaption", { textContent: STAGES[at] })))));
  view(["reading"], () => {
    host.hidden = !reading.reconstruction;
    if (host.hidden) return;
    pictures.forEach((one, at) => (one.src = reading.reconstruction[at]));
  });
}
