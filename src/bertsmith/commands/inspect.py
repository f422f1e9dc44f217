"""`inspect`: gradient flow through time and interpretable cells of recurrent networks."""

from collections.abc import Sequence
from pathlib import Path

from bertsmith import files, terminal
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import FolderError, TextError
from bertsmith.inference.load import load
from bertsmith.insight import cells, gradient_flow
from bertsmith.insight.page import render
from bertsmith.models.recurrent import Recurrent
from bertsmith.text.tokenizer import Tokenizer

CONSOLE = terminal.console()
MAX_CHARACTERS = 40_000  # of the text


def inspect(models: Sequence[Path], text: Path, out: Path, *, pictures: bool = False) -> None:
    """Write a page that compares all networks; with `pictures`, also PNG files next to it."""
    opened = {_model_name(path): _load_recurrent(path) for path in models}
    lines = _read_text(text)
    with files.explain_os_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    norms = {
        name: gradient_flow.gradient_norms(trunk, gradient_flow.windows(tokenizer.encode([lines])[0]))
        for name, (trunk, tokenizer) in opened.items()
    }
    sections = [("Gradient flow through time", gradient_flow.section(norms), gradient_flow.LEAD)]
    written = [out]
    if pictures:
        written.append(out.with_name(f"{out.stem}-time.png"))
        gradient_flow.draw(written[-1], norms)
    for name, (trunk, tokenizer) in opened.items():
        spans, interpretable = cells.find_cells(trunk, tokenizer, lines)
        sections.append((f"Cells of {name}", cells.section(lines, spans, interpretable), cells.LEAD))
        if pictures and interpretable:
            written.append(out.with_name(f"{out.stem}-cells-{name.replace('/', '-')}.png"))
            cells.draw(written[-1], lines, spans, interpretable)
        for cell in interpretable:
            CONSOLE.print(f"{name}: {cell.title}")
    for name, values in norms.items():
        CONSOLE.print(f"{name}: {values[min(16, len(values) - 1)]:.1e} of the gradient reaches 16 tokens back")
    files.write_atomic(out, render("sections.html", title="Inside recurrent networks", sections=sections).encode())
    for path in written:
        CONSOLE.print(f"written {path}")


def _read_text(path: Path) -> str:
    """The first characters of a text."""
    lines, size = [], 0
    for line in Corpus([str(path)]).lines():
        lines.append(line)
        size += len(line) + 1
        if size >= MAX_CHARACTERS:
            break
    text = "\n".join(lines).strip()
    if len(text.split()) < 16:
        raise TextError(path, "has fewer than 16 words", "Give it a page of text")
    return text


def _load_recurrent(path: Path) -> tuple[Recurrent, Tokenizer]:
    model = load(path)
    if not isinstance(model.trunk, Recurrent):
        raise FolderError(path, "is not a recurrent network", "Use one such as lstm-small")
    return model.trunk, model.tokenizer


def _model_name(path: Path) -> str:
    """The name of a model: its folder, or the run's folder if that is `model`."""
    resolved = path.resolve()
    return resolved.parent.name if resolved.name == "model" else resolved.name
