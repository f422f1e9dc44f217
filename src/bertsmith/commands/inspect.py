"""`inspect`: what models look at, predict and know, as one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith import files, terminal
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.images.image_files import is_image_path
from bertsmith.data.labelled.unlabelled import every_line
from bertsmith.errors import RecipeError, TextError
from bertsmith.inference.load import load_text_model
from bertsmith.insight.inspection.assembly import MAX_READINGS
from bertsmith.insight.inspection.assembly import inspect as assemble
from bertsmith.insight.inspection.inspection import Inspection, check_ending
from bertsmith.insight.inspection.subject import Subject
from bertsmith.insight.inspection.time_figures import check_words
from bertsmith.models.recurrent import Recurrent
from bertsmith.runs import checkpoint_models

CONSOLE = terminal.console()
MAX_CHARACTERS = 40_000  # of the text for the cells of recurrent networks
MAX_SENTENCE = 64  # words of the text that recurrent networks are shown reading, where none is given


def inspect(
    models: Sequence[Path],
    texts: Sequence[str],
    out: Path,
    *,
    file: Path | None = None,
    target: str | None = None,
    max_length: int | None = None,
    map_file: Path | None = None,
    word: str | None = None,
    attribute: bool = True,
    pictures: bool = False,
    as_json: bool = False,
) -> Inspection:
    """Write the page; with `pictures` and `as_json`, also PNG files and the figures next to it."""
    if image := next((one for one in models if one.is_file() and is_image_path(str(one))), None):
        raise TextError(image, "is an image, and all models here read text", "Take a model folder of ViT or DeiT")
    check_ending(out)
    files.check_file(out)
    for text in texts:
        _check_is_no_file(text)
    if not texts and file is None and map_file is None:
        raise RecipeError("inspect", "there is no text to read", 'Give one with --text "...", or a file with --file')
    subjects = [subject for path in models for subject in open_subjects(path)]
    inputs: list[Any] = [_as_pair(text) for text in texts]
    passage = None
    if file is not None and any(isinstance(one.objective.trunk, Recurrent) for one in subjects):
        passage = _read_passage(file)
        inputs = inputs or [" ".join(passage.split()[:MAX_SENTENCE])]
    elif file is not None:
        inputs += _read_lines(file)
    found = assemble(
        subjects,
        inputs,
        target=target,
        max_length=max_length,
        attribute=attribute,
        map_file=map_file,
        word=word,
        passage=passage,
        progress=lambda line: CONSOLE.print(f"looking into {line}", markup=False, highlight=False),
    )
    written = [found.save(out)]
    if as_json and out.suffix.lower() != ".json":
        written.append(found.save(out.with_suffix(".json")))
    if pictures:
        if out.suffix.lower() != ".png":
            written.append(found.save(out.with_suffix(".png")))
        written += [] if found.time is None else found.time.draw(out)
    for line in found.summary(1):
        CONSOLE.print(line, markup=False, highlight=False)
    for note in dict.fromkeys(note for one in found.readings for note in (*one.reading.notes, *found.notes)):
        CONSOLE.print(note, markup=False, highlight=False)
    for path in written:
        CONSOLE.print(f"written {path}", markup=False, highlight=False)
    return found


def open_subjects(path: Path) -> list[Subject]:
    """The model of a folder; or the checkpoints of a run, each as a model."""
    if checkpoint_models.is_checkpoint(path):
        return [model.subject(name) for name, model in checkpoint_models.load_checkpoints(path)]
    return [load_text_model(path).subject()]


def _check_is_no_file(text: str) -> None:
    """Refuse the name of a file in the place of a text."""
    try:
        named = Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return
    if named:
        raise TextError(f"--text {text}", "is a file, and --text takes the text itself", f"Use --file {text}")


def _as_pair(text: str) -> str | tuple[str, str]:
    """A text, or two that are separated by a tab."""
    first, tab, second = text.partition("\t")
    return (first, second) if tab else text


def _read_lines(file: Path) -> list[str | tuple[str, str]]:
    """The texts of a file, one a line."""
    lines = [_as_pair(line) for line in every_line(str(file)) if line.strip()]
    if not lines:
        raise TextError(file, "has no text", "Give a file with a text on each line")
    if len(lines) > MAX_READINGS:
        remedy = "Give the few that you want to look into; a map of many texts is drawn with --map"
        raise TextError(file, f"has {len(lines):,} lines, and a page shows {MAX_READINGS} texts", remedy)
    return lines


def _read_passage(path: Path) -> str:
    """The first characters of a text."""
    lines, size = [], 0
    for line in Corpus([str(path)]).lines():
        lines.append(line)
        size += len(line) + 1
        if size >= MAX_CHARACTERS:
            break
    text = "\n".join(lines).strip()
    check_words(text, path)
    return text
