// ---- images: a field that takes a file, by a click, the keyboard, a drop or the clipboard ----

/** The field holds the image as a data: address, which is what the server takes and what the page shows. */
function imageField(name, label, submit) {
  const held = el("input", { type: "hidden", name });
  const preview = el("img", { alt: "the chosen image", hidden: true });
  const input = el("input", { type: "file", accept: "image/*", required: true });
  const host = el("label", { className: "drop" }, el("span", { textContent: label }), input, preview, held);
  const show = () => {
    const [file] = input.files;
    if (!file) return;
    const reader = new FileReader();
    reader.addEventListener("load", () => {
      held.value = preview.src = reader.result;
      preview.hidden = false;
      submit();
    });
    reader.readAsDataURL(file);
  };
  const take = (files) => {
    if (!files.length) return;
    input.files = files;
    show();
  };
  input.addEventListener("change", show);
  host.addEventListener("dragover", (event) => {
    event.preventDefault();
    host.classList.add("over");
  });
  host.addEventListener("dragleave", () => host.classList.remove("over"));
  host.addEventListener("drop", (event) => {
    event.preventDefault();
    host.classList.remove("over");
    take(event.dataTransfer.files);
  });
  document.addEventListener("paste", (event) => {
    if (host.isConnected) take(event.clipboardData.files);
  });
  return el("div", { className: "field" }, host);
}

/** Whether a body holds an image, which no shell would take as a word. */
const holdsImage = (body) => typeof body?.inputs === "string" && body.inputs.startsWith("data:");
