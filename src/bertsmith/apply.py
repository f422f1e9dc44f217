"""The composition root of using a model: predictions, vectors, scores, neighbours and texts, from the command line."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bertsmith.data import files
from bertsmith.data.examples import Example, Question, Sentence
from bertsmith.data.sources import pyarrow
from bertsmith.data.tables import Dropped, lines, opened, source
from bertsmith.errors import FolderError, TextError
from bertsmith.insight import alignment
from bertsmith.insight.alignment import Alignment
from bertsmith.tasks import TASKS
from bertsmith.tasks.base import Task
from bertsmith.tasks.bleu import SIGNATURE, bleu
from bertsmith.tasks.write import Write
from bertsmith.train import machine
from bertsmith.use import likelihood, vectors
from bertsmith.use.fill import Filled
from bertsmith.use.load import load
from bertsmith.use.model import WORDS, Model

SAY = Console(highlight=False, soft_wrap=True)
FIRSTS = ("sentence", "sentence1", "premise", "question1")  # what the field calls the first text of a pair
SECONDS = ("sentence2", "hypothesis", "question2")
DRAWN = {".html": 40, ".png": 4}  # texts whose alignment is drawn in one file: more would be too heavy
TOGETHER = 1024  # lines predicted at once: the answer to the first need not wait for the last


def predict(model: Path, inputs: Sequence[str], *, out: Path | None) -> None:
    """A JSON line for each line of the inputs, in order, as they come."""
    loaded = _loaded(model)
    if not isinstance(loaded.objective, Task):
        raise FolderError(model, "was not fine-tuned", "Fine-tune it first with: bertsmith finetune")
    kind = next(name for name, task in TASKS.items() if type(loaded.objective) is task)
    if isinstance(loaded.objective, Write) and loaded.objective.config.answer == "stretch":
        kind = "answer"  # its examples are questions
    answers = loaded.stream((_example(kind, record) for record in _records(inputs)), TOGETHER)
    if out is None:
        for answer in answers:
            print(json.dumps(answer, ensure_ascii=False), flush=True)
        return
    written = (json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
    with files.explained(out), out.open("w", encoding="utf-8") as file:
        file.writelines(written)


def embed(model: Path, inputs: Sequence[str], out: Path, **how: Any) -> None:
    """Vectors of the lines of the inputs, as .npy or .parquet."""
    loaded, texts = _loaded(model), list(_lines(inputs))
    if out.suffix not in (".npy", ".parquet"):
        raise TextError(out, f"has the unknown ending '{out.suffix}'", "Use .npy or .parquet")
    began = time.monotonic()
    found = loaded.embed(texts, **how)
    took = time.monotonic() - began
    with files.explained(out):
        if out.suffix == ".npy":
            np.save(out, found, allow_pickle=False)
        else:
            arrow = pyarrow(str(out))
            column = arrow.FixedSizeListArray.from_arrays(arrow.array(found.ravel()), found.shape[1])
            arrow.parquet.write_table(arrow.table({"text": texts, "vector": column}), out)
    rate = f"{len(texts) / max(took, 1e-9):,.0f} a second"
    SAY.print(f"{len(texts):,} vectors of {found.shape[1]} numbers in {out}, {rate}")


def score(model: Path, inputs: Sequence[str], *, form: Any, as_json: bool) -> None:
    """How likely each line is, and how well all of them are foretold."""
    loaded, texts = _loaded(model), list(_lines(inputs))
    found = loaded.score(texts, form)
    if as_json:
        for one in found:
            print(json.dumps(one.plain(), ensure_ascii=False), flush=True)
        return
    table = Table("score", "a token", "text", box=None)
    for one in found:
        table.add_row(f"{one.total:.2f}", f"{one.total / max(one.tokens, 1):.2f}", one.text)
    SAY.print(table)
    bits = likelihood.bits_per_byte(found)
    kind = "perplexity" if loaded.trunk.config.causal else "pseudo-perplexity"
    SAY.print(f"{kind} {likelihood.perplexity(found):.2f}, {bits:.3f} bits per byte of {len(found):,} texts")


def neighbours(model: Path, texts: Sequence[str], among: Sequence[str], *, top: int, as_json: bool) -> None:
    """For each text those of the others that lie nearest."""
    loaded = _loaded(model)
    known = list(dict.fromkeys(_lines(among)))
    if not known:
        raise TextError("--among", "holds no text")
    asked = list(texts) if texts else list(_lines(["-"]))
    cosines, places = vectors.nearest(loaded.embed(known), loaded.embed(asked), min(top, len(known)))
    for text, row, nearby in zip(asked, cosines.tolist(), places.tolist(), strict=True):
        found = [{"text": known[place], "cosine": cosine} for cosine, place in zip(row, nearby, strict=True)]
        if as_json:
            print(json.dumps({"text": text, "neighbours": found}, ensure_ascii=False), flush=True)
            continue
        SAY.print(f"\n[bold]{escape(text)}[/]")
        for one in found:
            SAY.print(f"  {one['cosine']:.3f}  {one['text']}", markup=False)


def fill(model: Path, texts: Sequence[str] | None, *, top: int, as_json: bool) -> None:
    """Fill the blanks of the texts, or of every line of standard input."""
    opened = load(model)
    for text in sys.stdin if texts is None else texts:
        if text.strip():
            filled = opened.fill(text.strip(), top)
            if as_json:
                print(json.dumps(filled.plain(), ensure_ascii=False), flush=True)
            else:
                _show(filled)


def _show(filled: Filled) -> None:
    SAY.print(f"\n[bold]{escape(filled.text)}[/]")
    for blank in filled.blanks:
        for guess in blank:
            bar = "█" * round(24 * guess.probability)
            SAY.print(f"  {guess.probability:6.1%}  {escape(guess.word):16s} [cyan]{bar}[/]")
        SAY.print()


def generate(model: Path, prompts: Sequence[str], *, as_json: bool, **how: Any) -> None:
    """Each prompt, or each line of standard input, and what comes next."""
    loaded = _loaded(model)
    for one in loaded.continue_all(list(prompts) or list(_lines(["-"])), **how):
        if one.unread:
            fact = f"{one.unread:,} tokens are more than the model reads with the others"
            print(f"bertsmith: '{one.prompt[:40]}...': {fact}. They were left out.", file=sys.stderr)
        if as_json:
            print(json.dumps(one.plain(), ensure_ascii=False), flush=True)
            continue
        for text in one.texts:
            rest = text[len(one.prompt) :] if text.startswith(one.prompt) else f"\n{text}"  # gone on with, or answered
            SAY.print(f"[bold]{escape(one.prompt)}[/]{escape(rest)}\n")


def translate(
    model: Path,
    inputs: Sequence[str],
    *,
    against: Path | None,
    as_json: bool,
    picture: Path | None = None,
    **how: Any,
) -> None:
    """A line for each line of the inputs, in order, as they come; and how near they are to what a person wrote.

    The picture shows, for the first few of them, from which words theirs were taken.
    """
    if picture is not None:
        alignment.check(picture)
    loaded, said, looks = _loaded(model), list[str](), list[Alignment]()
    gold = [] if against is None else list(_every(str(against)))
    asked = (line for name in inputs or ["-"] for line in _every(name))
    while some := list(islice(asked, TOGETHER)):
        for number, one in enumerate(loaded.translate_all(some, **how), len(said) + 1):
            if one.unread:
                fact = f"{one.unread:,} tokens are more than the model reads"
                print(f"bertsmith: line {number}: {fact}. They were left out.", file=sys.stderr)
            print(json.dumps(one.plain(), ensure_ascii=False) if as_json else one.translation, flush=True)
            said.append(one.translation)
            if picture is not None and one.text.strip() and len(looks) < DRAWN[picture.suffix]:
                looks.append(Alignment(f"{one.text.strip()} → {one.translation}", **vars(loaded.align(one))))
    if picture is not None:
        alignment.write(picture, "What each word was taken from", looks)
    if against is None:
        return
    if len(gold) != len(said):
        fact = f"has {len(gold):,} lines, and {len(said):,} were translated"
        raise TextError(against, fact, "Line by line, both must say the same")
    print(f"BLEU {bleu(said, gold):.2f} of {len(said):,} lines, {SIGNATURE}", file=sys.stderr)


def _every(name: str) -> Iterator[str]:
    """Every line of a file, or of standard input as it comes; those with nothing in them, too."""
    if name != "-":
        last = None
        for _, line, _ in lines(source(Path(name))):
            if last is not None:
                yield last
            last = line
        if last:  # behind the last line feed there is no line
            yield last
        return
    try:
        for line in sys.stdin:
            yield line.strip("\r\n\ufeff")
    except UnicodeDecodeError:
        raise TextError("standard input", "is not UTF-8 text") from None


def _loaded(model: Path) -> Model:
    return load(model, device=machine.device("auto").type)


def _lines(inputs: Sequence[str]) -> Iterator[str]:
    """The texts of files, or of standard input: a line each, or the field `text` of JSON lines."""
    for record in _records(inputs):
        yield _string(record["text"] if "text" in record else record.get("sentence"), record["place"], "text")


def _records(inputs: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Each line as a record: JSON objects as they are, others as their text, cut at a tab into two."""
    for name in inputs or ["-"]:
        if name != "-" and Path(name).suffix in (".tsv", ".csv", ".parquet"):
            yield from _rows(name)
            continue
        place = "standard input" if name == "-" else name
        try:
            stream = sys.stdin if name == "-" else Path(name).open(encoding="utf-8")  # noqa: SIM115 (streamed)
            with stream:
                for number, line in enumerate(stream, 1):
                    if line := line.strip("\r\n\ufeff"):
                        yield _record(line, f"{place}:{number}")
        except UnicodeDecodeError:
            raise TextError(place, "is not UTF-8 text") from None
        except OSError as error:
            raise TextError(place, f"cannot be read ({error.strerror})") from None


def _rows(name: str) -> Iterator[dict[str, Any]]:
    """The rows of a table by the names of its columns."""
    table = opened(source(Path(name)), ("text", "second", *FIRSTS, *SECONDS))
    for place, row in table.rows(table.columns, Dropped("fail")):
        yield {**row, "place": place}


def _record(line: str, place: str) -> dict[str, Any]:
    if line.startswith("{"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise TextError(place, "is not JSON", "A line that begins with { is read as JSON") from None
        return {"text": None, **record, "place": place}
    first, tab, second = line.partition("\t")
    return {"text": first, "second": second, "place": place} if tab else {"text": line, "place": place}


def _example(kind: str, record: dict[str, Any]) -> Any:
    """What the task is asked, by line."""
    place, text = record["place"], record.get("text")
    match kind:
        case "tag":
            words = record.get("words") or record.get("tokens") or WORDS.findall(_string(text, place, "text"))
            return Sentence(place=place, words=tuple(_string(word, place, "words") for word in words))
        case "answer":
            question = _string(record.get("question", text), place, "question")
            passage = _string(record.get("passage", record.get("context", record.get("second"))), place, "passage")
            return Question(place=place, name=str(record.get("id", place)), question=question, passage=passage)
        case "choose":
            endings = record.get("endings")
            if not isinstance(endings, list) or not endings:
                raise TextError(place, "has no endings", 'Write {"text": "...", "endings": ["...", "..."]}')
            beginning = _string(text, place, "text")
            return Example(place=place, texts=(beginning, *(_string(one, place, "endings") for one in endings)))
    named = (record[name] for name in FIRSTS if record.get(name) is not None)
    first = _string(text if text is not None else next(named, None), place, "text")
    second = next((record[name] for name in ("second", *SECONDS) if record.get(name) is not None), None)
    return Example(place=place, texts=(first,) if second is None else (first, _string(second, place, "second")))


def _string(value: Any, place: str, name: str) -> str:
    if not isinstance(value, str):
        raise TextError(place, f"'{name}' is {value!r}", "Give a string")
    return value
