"""Unlabelled inputs of a fine-tuned model, read from every kind of file that it can be trained on.

Labels in the files are ignored. Every row gets its prediction, and a bad row is refused by name; blank lines are no
rows, and are counted.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertsmith.data.corpus.lines import READ_ERRORS
from bertsmith.data.corpus.sources import COMPRESSIONS, Source
from bertsmith.data.labelled import conll, squad, treebank
from bertsmith.data.labelled.bad_rows import BadRows
from bertsmith.data.labelled.column_names import CLASS_COLUMNS, COLUMN_NAMES, MULTI_LABEL_COLUMNS
from bertsmith.data.labelled.input_lines import Notify, file_lines, filled, standard_input
from bertsmith.data.labelled.inputs import (
    CONLL_PEEK_LINES,
    PAIRS,
    SINGLES,
    Input,
    Names,
    TrainedOn,
    first_value,
    is_conll,
    is_squad,
    make_example,
    questions,
    require_column,
    sentences,
)
from bertsmith.data.labelled.lines import read_lines
from bertsmith.data.labelled.sources import find_source
from bertsmith.data.labelled.tables import TABLE_SUFFIXES, Table, open_table
from bertsmith.errors import TextError

UNPACKED_FIRST = 1 << 25  # bytes of a compressed file that is checked whole before a model reads it: takes seconds
TRAINED_TO = {
    "classify": "to classify texts",
    "number": "to give texts a number",
    "labels": "to label texts",
    "tag": "to tag words",
    "answer": "to answer questions",
    "choose": "to choose an ending",
    "pairs": "to compare texts",
}

Record = tuple[str, Mapping[str, Any]]  # its location, and its values by name


def examples(inputs: Sequence[str], trained_on: TrainedOn, notify: Notify = lambda _: None) -> Iterator[Input]:
    """The model's inputs, from files, from standard input, or from texts given instead of files."""
    for number, name in enumerate(inputs or ["-"], 1):
        if is_text(name):
            location = f"'{name[:40]}'"
            numbered = {"id": str(number)} if trained_on.kind == "answer" else {}
            yield make_example(location, numbered | _line(name, location, trained_on), trained_on, {})
        else:
            yield from _read_inputs(name, trained_on, notify)


def texts(inputs: Sequence[str], notify: Notify = lambda _: None) -> Iterator[str]:
    """The texts of files, or of standard input: a line each, a column of a table, or a field of JSON lines."""
    trained_on = TrainedOn(kind="classify")
    for name in inputs or ["-"]:
        for location, record in _records(name, trained_on, notify, single=True):
            yield require_column(first_value(record, SINGLES), record, location, "text")


class LiteralText(str):
    """An argument that is a text, even if it looks like a file's name."""

    __slots__ = ()


def check_files(inputs: Sequence[str]) -> None:
    """Refuse files that are missing, or that unpack to far more than text does, before any work is done."""
    for name in inputs:
        if name != "-" and not is_text(name):
            try:
                found = find_source(Path(name))
            except TextError as error:
                remedy = error.parts[2] or ("" if Path(name).suffix else "A text goes after --text")
                raise TextError(error.location, error.fact, remedy) from None
            if found.compression and found.size <= UNPACKED_FIRST:
                with suppress(*READ_ERRORS):  # the reader reports it
                    for _ in found.blocks(lambda _: None):
                        pass


def is_text(name: str) -> bool:
    """Whether an argument is a text and not a file's name: it has spaces, and no file's ending."""
    if isinstance(name, LiteralText):
        return True
    if name == "-" or not any(map(str.isspace, name.strip())):
        return False
    endings = [ending.lower() for ending in Path(name).suffixes if ending.lower() not in COMPRESSIONS]
    named = endings and endings[-1] in (*TABLE_SUFFIXES, *conll.CONLL_SUFFIXES, treebank.TREEBANK_SUFFIX)
    try:
        return not named and not Path(name).exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return True


def every_line(name: str) -> Iterator[str]:
    """Every line of a file, or of standard input as it arrives; blank ones too."""
    if name != "-":
        last = None
        for _, line, _ in read_lines(find_source(Path(name))):
            if last is not None:
                yield last
            last = line
        if last:  # after the last line feed there is no line
            yield last
        return
    yield from (line for _, line in standard_input())


# ------------------------------------------------------------------------------------------------ files


def _read_inputs(name: str, trained_on: TrainedOn, notify: Notify) -> Iterator[Input]:
    if name == "-":
        rows = standard_input()
        head = list(islice(rows, 1)) if trained_on.kind == "tag" else []
        if head and is_conll([head[0][1]], trained_on.tags):
            yield from sentences(chain(head, rows), "standard input", trained_on)
            return
        for number, line in filled(chain(head, rows), "standard input", notify):
            location = f"standard input:{number}"
            yield make_example(location, _line(line, location, trained_on), trained_on, {})
        return
    file = find_source(Path(name))
    if file.kind == treebank.TREEBANK_SUFFIX:
        yield from treebank.read(file, BadRows("fail"))[0]
        return
    table = file.kind in (".jsonl", ".ndjson", ".json", ".parquet", ".csv")
    if not table and (file.kind in conll.CONLL_SUFFIXES or trained_on.kind == "tag"):
        lines = [line for _, line, _ in islice(read_lines(file), CONLL_PEEK_LINES)]
        if file.kind in conll.CONLL_SUFFIXES or is_conll(lines, trained_on.tags):
            if trained_on.kind != "tag":
                raise _wrong_task_error(name, "words with tags", trained_on.kind)
            yield from sentences(((number, line) for number, line, _ in read_lines(file)), name, trained_on)
            return
    if file.kind == ".json" and is_squad(file):
        if trained_on.kind != "answer":
            raise _wrong_task_error(name, "questions about passages, as SQuAD does,", trained_on.kind)
        yield from questions(file)
        return
    names: Names = {}
    for location, record in _records(name, trained_on, notify):
        yield make_example(location, record, trained_on, names)


def _records(name: str, trained_on: TrainedOn, notify: Notify, *, single: bool = False) -> Iterator[Record]:
    """Rows as records; texts of lines and of tables are under the names `text` and `second`."""
    if name != "-" and not is_text(name):
        file = find_source(Path(name))
        if file.kind in (".tsv", ".csv", ".parquet", ".jsonl", ".ndjson", ".json"):
            yield from _rows(file, trained_on, notify, single=single)
            return
        lines = file_lines(file)
    else:
        lines = standard_input() if name == "-" else iter([(0, name)])
    shown = {"-": "standard input", "": "''"}.get(name, name)
    for number, line in filled(lines, shown, notify):
        location = f"{shown}:{number}" if number else f"'{name[:40]}'"
        yield location, _line(line, location, trained_on, single=single)


def _line(line: str, location: str, trained_on: TrainedOn, *, single: bool = False) -> dict[str, Any]:
    """A line as a record: a JSON object, or a text, which is split at a tab where the model takes pairs."""
    if line.startswith("{"):
        try:
            record: dict[str, Any] = json.loads(line)
        except (ValueError, RecursionError):
            raise TextError(location, "is not JSON", "A line that begins with { is read as JSON") from None
        return record
    before, tab, after = line.partition("\t")
    one = single or (trained_on.kind in ("classify", "number", "labels") and len(trained_on.texts) == 1)
    return {"text": before, "second": after} if tab and not one else {"text": line}


def _rows(file: Source, trained_on: TrainedOn, notify: Notify, *, single: bool) -> Iterator[Record]:
    """The rows of a table. The columns of the texts are found by the first rows; a guess is reported."""
    known = {*COLUMN_NAMES, *squad.HEADINGS, *conll.WORD_COLUMNS, "text", "second", *trained_on.texts}
    table = open_table(file, known)
    wanted, renamed = table.columns, dict[str, str]()
    if single or trained_on.kind in ("classify", "number", "labels", "pairs"):
        columns = _text_columns(table, trained_on, single=single)
        if columns:  # else each row is checked by itself, and the first without a text is refused
            if trained_on.texts and columns != trained_on.texts:
                trained = _listed(trained_on.texts)
                notify(f"{file.name}: texts from {_listed(columns)}; the model was trained on {trained}")
            elif not trained_on.texts and not _is_usual(columns):
                notify(f"{file.name}: texts from {_listed(columns)}")
            renamed, wanted = dict(zip(columns, ("text", "second"), strict=False)), columns
    for location, row in table.rows(wanted, BadRows("fail")):
        yield location, {renamed.get(name, name): row[name] for name in wanted if row[name] is not None or renamed}


def _text_columns(table: Table, trained_on: TrainedOn, *, single: bool) -> tuple[str, ...]:
    """The columns of the texts: those of the training data, those with a usual name, or those of several words."""
    by_name = {name.casefold(): name for name in table.columns}
    count = 1 if single else len(trained_on.texts)
    if trained_on.texts and all(name.casefold() in by_name for name in trained_on.texts):
        return tuple(by_name[name.casefold()] for name in trained_on.texts)
    groups: list[Sequence[str]] = [
        *(PAIRS if count != 1 else []),
        *([(name,) for name in SINGLES] if count != 2 else []),
    ]
    for group in groups:
        if all(name in by_name for name in group):
            return tuple(by_name[name] for name in group)
    others = {*CLASS_COLUMNS, *MULTI_LABEL_COLUMNS, "id", "idx", "index"}
    free = [name for name in table.columns if name.casefold() not in others]
    wordy = [name for name in free if _is_wordy([row.get(name) for row in table.head])]
    if 1 <= len(wordy) <= 2 and len(wordy) == (count or len(wordy)):
        return tuple(wordy)
    if len(free) == 1 and count != 2:
        return tuple(free)
    if table.source.kind in (".jsonl", ".ndjson", ".json") and not trained_on.texts:
        return ()
    columns = ", ".join(table.columns) + table.describe()
    remedy = f"Name them {_listed(trained_on.texts)}, as in training" if trained_on.texts else "Name one 'text'"
    raise TextError(table.name, f"which columns hold the texts cannot be guessed from {columns}", remedy)


def _is_usual(names: tuple[str, ...]) -> bool:
    lower = tuple(name.casefold() for name in names)
    return lower in PAIRS or (len(lower) == 1 and lower[0] in SINGLES)


def _is_wordy(values: Sequence[Any]) -> bool:
    texts = [value for value in values if value is not None]
    return bool(texts) and all(isinstance(text, str) for text in texts) and any(" " in text.strip() for text in texts)


def _wrong_task_error(name: str, holds: str, kind: str) -> TextError:
    return TextError(name, f"holds {holds} and the model was trained {TRAINED_TO[kind]}", "Give it another file")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)
