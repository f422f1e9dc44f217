"""The composition root of looking inside: what recurrent networks feel through time, and what single cells know."""

from collections.abc import Sequence
from pathlib import Path

import torch

from bertsmith import files, terminal
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import FolderError, TextError
from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.insight import cells, gradient_flow
from bertsmith.insight.page import html_page, section
from bertsmith.models.recurrent import Recurrent

CONSOLE = terminal.console()
MAX_CHARACTERS = 40_000  # characters of the text that cells are looked for in


def inspect(models: Sequence[Path], text: Path, out: Path, *, pictures: bool = False) -> None:
    """A page of all networks side by side; with `pictures` also as PNGs beside it."""
    opened = {_model_name(path): _load_recurrent(path) for path in models}
    lines = _read_text(text)
    with files.explain_os_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    felt = {name: gradient_flow.gradient_norms(_trunk(model), _windows(model, lines)) for name, model in opened.items()}
    sections = [section("Felt through time", gradient_flow.section(felt), gradient_flow.LEAD)]
    written = [out]
    if pictures:
        written.append(out.with_name(f"{out.stem}-time.png"))
        gradient_flow.draw(written[-1], felt)
    for name, model in opened.items():
        spans, found = cells.find_cells(_trunk(model), model.tokenizer, lines)
        sections.append(section(f"Cells of {name}", cells.section(lines, spans, found), cells.LEAD))
        if pictures and found:
            written.append(out.with_name(f"{out.stem}-cells-{name.replace('/', '-')}.png"))
            cells.draw(written[-1], lines, spans, found)
        for one in found:
            CONSOLE.print(f"{name}: {one.title}")
    for name, values in felt.items():
        CONSOLE.print(f"{name}: of a gradient {values[min(16, len(values) - 1)]:.1e} is felt 16 tokens back")
    files.write_atomic(out, html_page("Inside recurrent networks", sections).encode())
    for path in written:
        CONSOLE.print(f"written {path}")


def _windows(model: Model, text: str) -> torch.Tensor:
    (ids,) = model.tokenizer.encode([text])
    return gradient_flow.windows(ids)


def _read_text(path: Path) -> str:
    """The text as it stands, or so much of it as is looked at."""
    read, size = [], 0
    for line in Corpus([str(path)]).lines():
        read.append(line)
        size += len(line) + 1
        if size >= MAX_CHARACTERS:
            break
    text = "\n".join(read).strip()
    if len(text.split()) < 16:
        raise TextError(path, "has too few words to look at", "Give it a page")
    return text


def _load_recurrent(path: Path) -> Model:
    model = load(path)
    if not isinstance(model.objective.trunk, Recurrent):
        raise FolderError(path, "has no state that goes from token to token", "Look at a network such as lstm-small")
    return model


def _trunk(model: Model) -> Recurrent:
    trunk = model.objective.trunk
    assert isinstance(trunk, Recurrent)
    return trunk


def _model_name(path: Path) -> str:
    """What a person calls the model: its run, where the folder is but `model`."""
    resolved = path.resolve()
    return resolved.parent.name if resolved.name == "model" else resolved.name
