"""The composition root of using a model: predictions, vectors, scores, neighbours and texts, from the command line."""

import io
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape

from bertsmith import terminal
from bertsmith.data.corpus.sources import import_pyarrow
from bertsmith.data.labelled import unlabelled
from bertsmith.data.output import Output, changed_input_error, fingerprint
from bertsmith.errors import FolderError, TextError
from bertsmith.inference import embedder as vectors
from bertsmith.inference.fill import FilledText
from bertsmith.inference.likelihood import LikelihoodTotals
from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.insight import alignment
from bertsmith.insight.alignment import Alignment
from bertsmith.metrics.bleu import SIGNATURE, bleu
from bertsmith.tasks.base import Task

CONSOLE = terminal.console()
MAX_ALIGNMENTS = {".html": 40, ".png": 4}  # texts whose alignment is drawn in one file: more would be too heavy
BATCH_LINES = 1024  # lines predicted at once: the answer to the first need not wait for the last
SCORE_BATCH_LINES = 4096  # lines scored at once: the longer the window, the more alike the lengths in a pass


def predict(model: Path, inputs: Sequence[str], *, out: Path | None, texts: Sequence[str] = ()) -> None:
    """A JSON line for each text of the inputs, in order, as they come. What was interrupted is gone on with."""
    named = _check_inputs(inputs, texts)
    loaded = _load(model)
    if not isinstance(loaded.objective, Task):
        if loaded.embeds_sentences:
            remedy = f"Use: bertsmith embed {model} FILE --out vectors.npy"
            raise FolderError(model, "makes sentence embeddings, and predicts no labels", remedy)
        raise FolderError(model, "was not fine-tuned", "Fine-tune it first with: bertsmith finetune")
    learnt = loaded.input_format()
    squad = out is not None and out.suffix == ".json"
    if squad and learnt.kind != "answer":
        raise TextError(out, "is for answers, as SQuAD has them", "Use .jsonl")
    make = partial(unlabelled.examples, named, learnt, _notice_once())
    if out is None:
        for answer in loaded.predict_stream(make(), BATCH_LINES):
            print(terminal.json_line(answer), flush=True)
        return
    with Output(out, partial(_output_settings, loaded, "predict", {})) as output:
        left = _remaining(output, make, repr, named)
        with terminal.ProgressCounter("answers", output.rows) as count:
            while some := list(islice(left, BATCH_LINES)):
                answers = (json.dumps(answer, ensure_ascii=False) + "\n" for answer in loaded.predict(some))
                output.add(map(repr, some), "".join(answers).encode())
                count.update(output.rows)
        output.finish(_to_squad if squad else None)


def embed(model: Path, inputs: Sequence[str], out: Path, **how: Any) -> None:
    """Vectors of the lines of the inputs, as .npy or .parquet, as they come. What was interrupted is gone on with."""
    if out.suffix not in (".npy", ".parquet"):
        raise TextError(out, f"has the unknown ending '{out.suffix}'", "Use .npy or .parquet")
    named, parquet = _check_inputs(inputs), out.suffix == ".parquet"
    if parquet:
        import_pyarrow(str(out))
    loaded = _load(model)
    embedder = loaded.embedder(**how)
    head = b"" if parquet else _npy_header(0, embedder.width)
    with Output(out, partial(_output_settings, loaded, "embed", how), header=head) as output:
        left = _remaining(output, partial(unlabelled.texts, named, _notice_once()), str, named)
        read: deque[str] = deque()  # by another thread, some thousands ahead of the vectors
        with terminal.ProgressCounter("vectors", output.rows) as count:
            for found in embedder.stream(_recorded(left, read)):
                texts = [read.popleft() for _ in range(len(found))]
                output.add(texts, _parquet_block(texts, found) if parquet else found.tobytes())
                count.update(output.rows)
        total, rate = output.rows, count.rate(output.rows)
        if parquet:
            output.finish(partial(_to_parquet, embedder.width))
        else:
            output.finish(header=_npy_header(total, embedder.width))
    CONSOLE.print(f"{total:,} vectors of {embedder.width} numbers in {out}, {rate:,.0f} a second")


def score(model: Path, inputs: Sequence[str], *, form: Any, as_json: bool, out: Path | None = None) -> None:
    """How likely each line is, as they come, and how well all of them are foretold."""
    named = _check_inputs(inputs)
    loaded = _load(model)
    make, totals = partial(unlabelled.texts, named, _notice_once()), LikelihoodTotals()
    if out is not None:
        with Output(out, partial(_output_settings, loaded, "score", {"form": form})) as output:
            left = _remaining(output, make, str, named)
            totals = LikelihoodTotals(**output.state)
            with terminal.ProgressCounter("texts", output.rows) as count:
                while some := list(islice(left, SCORE_BATCH_LINES)):
                    found = loaded.score(some, form)
                    totals = totals.plus(found)
                    rows = (json.dumps(one.to_dict(), ensure_ascii=False) + "\n" for one in found)
                    output.add(some, "".join(rows).encode(), vars(totals))
                    count.update(output.rows)
            output.finish()
    else:
        left, header = make(), not as_json
        while some := list(islice(left, SCORE_BATCH_LINES)):
            found = loaded.score(some, form)
            if header:  # not before a model without scores is refused
                CONSOLE.print(f"{'score':>10}  {'a token':>8}  text", style="bold")
                header = False
            totals = totals.plus(found)
            for one in found:
                if as_json:
                    print(terminal.json_line(one.to_dict()), flush=True)
                else:
                    CONSOLE.print(f"{one.total:10.2f}  {one.total / max(one.tokens, 1):8.2f}  {one.text}")
        if as_json:
            return
    kind = "perplexity" if loaded.trunk.config.causal else "pseudo-perplexity"
    told = f"{kind} {totals.perplexity:.2f}, {totals.bits_per_byte:.3f} bits per byte of {totals.texts:,} texts"
    CONSOLE.print(told + (f", each in {out}" if out else ""))


def search(model: Path, texts: Sequence[str], corpus: Sequence[str], *, top_k: int, as_json: bool) -> None:
    """For each text those of the others that lie nearest."""
    named = _check_inputs(corpus)
    loaded = _load(model)
    known = list(dict.fromkeys(unlabelled.texts(named)))
    if not known:
        raise TextError("--corpus", "holds no text")
    asked = list(texts) if texts else list(unlabelled.texts(["-"]))
    cosines, places = vectors.semantic_search(loaded.embed(known), loaded.embed(asked), min(top_k, len(known)))
    for text, row, nearby in zip(asked, cosines.tolist(), places.tolist(), strict=True):
        found = [{"text": known[place], "cosine": cosine} for cosine, place in zip(row, nearby, strict=True)]
        if as_json:
            print(terminal.json_line({"text": text, "neighbours": found}), flush=True)
            continue
        CONSOLE.print(f"\n{text}", style="bold")
        for one in found:
            CONSOLE.print(f"  {one['cosine']:.3f}  {one['text']}")


def fill(model: Path, texts: Sequence[str] | None, *, top_k: int, as_json: bool) -> None:
    """Fill the blanks of the texts, or of every line of standard input."""
    opened = load(model)
    for text in sys.stdin if texts is None else texts:
        if text.strip():
            filled = opened.fill(text.strip(), top_k)
            if as_json:
                print(terminal.json_line(filled.to_dict()), flush=True)
            else:
                _show_filled(filled)


def _show_filled(filled: FilledText) -> None:
    CONSOLE.print(f"\n{filled.text}", style="bold")
    for blank in filled.blanks:
        for guess in blank:
            bar = "█" * round(24 * guess.probability)
            CONSOLE.print(f"  {guess.probability:6.1%}  {escape(guess.word):16s} [cyan]{bar}[/]", markup=True)
        CONSOLE.print()


def generate(model: Path, prompts: Sequence[str], *, as_json: bool, **how: Any) -> None:
    """Each prompt, or each line of standard input, and what comes next."""
    loaded = _load(model)
    for one in loaded.generate_all(list(prompts) or list(unlabelled.texts(["-"])), **how):
        if one.unread:
            fact = f"{one.unread:,} tokens are more than the model reads with the others"
            _notice(f"'{one.prompt[:40]}...': {fact}. They were left out.")
        if as_json:
            print(terminal.json_line(one.to_dict()), flush=True)
            continue
        for text in one.texts:
            rest = text[len(one.prompt) :] if text.startswith(one.prompt) else f"\n{text}"  # gone on with, or answered
            CONSOLE.print(f"[bold]{escape(one.prompt)}[/]{escape(rest)}\n", markup=True)


def translate(
    model: Path,
    inputs: Sequence[str],
    *,
    reference: Path | None,
    as_json: bool,
    picture: Path | None = None,
    **how: Any,
) -> None:
    """A line for each line of the inputs, in order, as they come; and how near they are to what a person wrote.

    The picture shows, for the first few of them, from which words theirs were taken.
    """
    if picture is not None:
        alignment.check_path(picture)
    loaded, said, looks = _load(model), list[str](), list[Alignment]()
    shown = terminal.escape_control if sys.stdout.isatty() else str  # a file gets every character as it is
    gold = [] if reference is None else list(unlabelled.every_line(str(reference)))
    asked = (line for name in inputs or ["-"] for line in unlabelled.every_line(name))
    while some := list(islice(asked, BATCH_LINES)):
        for number, one in enumerate(loaded.translate_all(some, **how), len(said) + 1):
            if one.unread:
                fact = f"{one.unread:,} tokens are more than the model reads"
                _notice(f"line {number}: {fact}. They were left out.")
            print(terminal.json_line(one.to_dict()) if as_json else shown(one.translation), flush=True)
            said.append(one.translation)
            if picture is not None and one.text.strip() and len(looks) < MAX_ALIGNMENTS[picture.suffix]:
                looks.append(Alignment(f"{one.text.strip()} → {one.translation}", **vars(loaded.align(one))))
    if picture is not None:
        alignment.write(picture, "What each word was taken from", looks)
    if reference is None:
        return
    if len(gold) != len(said):
        fact = f"has {len(gold):,} lines, and {len(said):,} were translated"
        raise TextError(reference, fact, "Line by line, both must say the same")
    print(f"BLEU {bleu(said, gold):.2f} of {len(said):,} lines, {SIGNATURE}", file=sys.stderr)


def _load(model: Path) -> Model:
    return load(model)


def _check_inputs(inputs: Sequence[str], texts: Sequence[str] = ()) -> list[str]:
    """The inputs, all of which are there; and texts that were given as such."""
    unlabelled.check_files(inputs)
    return [*inputs, *map(unlabelled.LiteralText, texts)]


def _output_settings(loaded: Model, verb: str, how: Mapping[str, Any]) -> dict[str, Any]:
    """What makes the rows of an output: the same model and options on the same kind of device."""
    made = fingerprint(Path(loaded.path))
    return {"verb": verb, "model": made, "device": loaded.device.type, "options": {k: str(v) for k, v in how.items()}}


def _remaining(
    output: Output, read: Callable[[], Iterator[Any]], key: Callable[[Any], str], named: list[str]
) -> Iterator[Any]:
    """The inputs that have no row yet."""
    begun = 0

    def inputs() -> Iterator[Any]:
        nonlocal begun
        begun += 1
        if begun > 1 and (not named or "-" in named):
            raise changed_input_error("standard input")
        return read()

    left = output.resume(inputs, key)
    if output.rows:
        _notice(f"{output.out}: going on after {output.rows:,} rows")
    elif output.restart_reason:
        _notice(f"{output.part}: was begun with {output.restart_reason}, and is begun anew")
    return left


def _recorded(texts: Iterator[str], read: deque[str]) -> Iterator[str]:
    for text in texts:
        read.append(text)
        yield text


def _notice(text: str) -> None:
    print(f"bertsmith: {terminal.escape_control(text)}", file=sys.stderr, flush=True)


def _notice_once() -> Callable[[str], None]:
    """Says each line once, however often the inputs are read."""
    return cache(_notice)


def _npy_header(rows: int, width: int) -> bytes:
    """The head of a .npy file, which has room for any number of rows."""
    raw = io.BytesIO()
    said = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(raw, said)
    return raw.getvalue()


def _parquet_block(texts: list[str], found: NDArray[np.float32]) -> bytes:
    """Texts and their vectors, until all are there: a Parquet file cannot be gone on with."""
    told = json.dumps(texts).encode()
    return f"{len(texts)} {len(told)}\n".encode() + told + found.tobytes()


def _to_parquet(width: int, part: Path, target: Path) -> None:
    arrow = import_pyarrow(str(target))
    schema = arrow.schema([("text", arrow.string()), ("vector", arrow.list_(arrow.float32(), width))])
    with part.open("rb") as blocks, arrow.parquet.ParquetWriter(target, schema) as writer:
        while line := blocks.readline():
            count, size = map(int, line.split())
            texts = json.loads(blocks.read(size))
            found = np.frombuffer(blocks.read(4 * count * width), np.float32)
            column = arrow.FixedSizeListArray.from_arrays(arrow.array(found), width)
            writer.write_table(arrow.table({"text": texts, "vector": column}, schema=schema))


def _to_squad(part: Path, target: Path) -> None:
    """Answers by the names of their questions, as SQuAD's own script reads them."""
    with part.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as file:
        for number, answer in enumerate(map(json.loads, lines)):
            name, text = (json.dumps(answer[key], ensure_ascii=False) for key in ("id", "answer"))
            file.write(f"{',' if number else '{'}\n{name}: {text}")
        file.write("\n}\n" if part.stat().st_size else "{}\n")
