"""Unlabelled: texts that a taught model is asked about, read from every kind of file that it can be taught from.

Labels that stand beside the texts are not read. Nothing is dropped: every row gets its answer, and a bad row is named.
"""

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertsmith.data.corpus import encoding
from bertsmith.data.corpus.lines import READ_ERRORS, read_error
from bertsmith.data.corpus.sources import COMPRESSIONS, Source
from bertsmith.data.labelled import conll, reader, squad, treebank
from bertsmith.data.labelled.inputs import (
    PAIRS,
    PEEK,
    SINGLES,
    Input,
    Names,
    TrainedOn,
    first_value,
    is_conll,
    is_squad,
    make_example,
    questions,
    require_string,
    sentences,
)
from bertsmith.data.labelled.tables import KINDS, BadRows, Table, find_source, open_table, read_lines
from bertsmith.errors import TextError

CONLL_SUFFIXES = (
    ".conll",
    ".conll2003",
    ".conllu",
    ".bio",
    ".iob",
    ".iob2",
    ".ner",
)  # endings of files of words with tags
UNPACKED_FIRST = 1 << 25  # bytes of a packed file that is unpacked once before a model reads it: a matter of seconds
TRAINED_TO = {
    "classify": "to classify texts",
    "number": "to give texts a number",
    "labels": "to label texts",
    "tag": "to tag words",
    "answer": "to answer questions",
    "choose": "to choose an ending",
    "pairs": "to compare texts",
}

Record = tuple[str, Mapping[str, Any]]  # its place, and its values by name
Notify = Callable[[str], object]


def examples(inputs: Sequence[str], trained_on: TrainedOn, notify: Notify = lambda _: None) -> Iterator[Input]:
    """What the model is asked, from files, from standard input, or from texts that are given in place of files."""
    for name in inputs or ["-"]:
        yield from _read_inputs(name, trained_on, notify)


def texts(inputs: Sequence[str], notify: Notify = lambda _: None) -> Iterator[str]:
    """The texts of files, or of standard input: a line each, a column of a table, or a field of JSON lines."""
    learnt = TrainedOn(kind="classify")
    for name in inputs or ["-"]:
        for place, record in _records(name, learnt, notify, single=True):
            yield require_string(first_value(record, SINGLES), place, "text")


class LiteralText(str):
    """A text that was given as such, whatever it looks like."""

    __slots__ = ()


def check_files(inputs: Sequence[str]) -> None:
    """All files are there and unpack to no more than text does, before any work is done."""
    for name in inputs:
        if name != "-" and not is_text(name):
            try:
                found = find_source(Path(name))
            except TextError as error:
                remedy = error.parts[2] or ("" if Path(name).suffix else "A text goes after --text")
                raise TextError(error.location, error.fact, remedy) from None
            if found.compression and found.size <= UNPACKED_FIRST:
                with suppress(*READ_ERRORS):  # the reader proper tells of it
                    for _ in found.blocks(lambda _: None):
                        pass


def is_text(name: str) -> bool:
    """Whether an argument is a text and not the name of a file: it has blanks, and no file's ending."""
    if isinstance(name, LiteralText):
        return True
    if name == "-" or not any(map(str.isspace, name.strip())):
        return False
    endings = [ending.lower() for ending in Path(name).suffixes if ending.lower() not in COMPRESSIONS]
    named = endings and endings[-1] in (*KINDS, *CONLL_SUFFIXES, treebank.ENDING)
    try:
        return not named and not Path(name).exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return True


def every_line(name: str) -> Iterator[str]:
    """Every line of a file, or of standard input as it comes; those with nothing in them, too."""
    if name != "-":
        last = None
        for _, line, _ in read_lines(find_source(Path(name))):
            if last is not None:
                yield last
            last = line
        if last:  # after the last line feed there is no line
            yield last
        return
    yield from (line for _, line in _standard_input())


# ------------------------------------------------------------------------------------------------ files


def _read_inputs(name: str, learnt: TrainedOn, say: Notify) -> Iterator[Input]:
    if is_text(name):
        yield make_example(f"'{name[:40]}'", _line(name, f"'{name[:40]}'", learnt), learnt, {})
        return
    if name == "-":
        rows = _standard_input()
        ahead = list(islice(rows, 1)) if learnt.kind == "tag" else []
        if ahead and is_conll([ahead[0][1]], learnt.tags):
            yield from sentences(chain(ahead, rows), "standard input", learnt)
            return
        for number, line in chain(ahead, rows):
            if line:
                place = f"standard input:{number}"
                yield make_example(place, _line(line, place, learnt), learnt, {})
        return
    file = find_source(Path(name))
    if file.kind == treebank.ENDING:
        yield from treebank.read(file, BadRows("fail"))[0]
        return
    table = file.kind in (".jsonl", ".ndjson", ".json", ".parquet", ".csv")
    if not table and (file.kind in CONLL_SUFFIXES or learnt.kind == "tag"):
        head = [line for _, line, _ in islice(read_lines(file), PEEK)]
        if file.kind in CONLL_SUFFIXES or is_conll(head, learnt.tags):
            if learnt.kind != "tag":
                raise _wrong_task_error(name, "words with tags", learnt.kind)
            yield from sentences(((number, line) for number, line, _ in read_lines(file)), name, learnt)
            return
    if file.kind == ".json" and is_squad(file):
        if learnt.kind != "answer":
            raise _wrong_task_error(name, "questions about passages, as SQuAD does,", learnt.kind)
        yield from questions(file)
        return
    names: Names = {}
    for place, record in _records(name, learnt, say):
        yield make_example(place, record, learnt, names)


def _records(name: str, learnt: TrainedOn, say: Notify, *, single: bool = False) -> Iterator[Record]:
    """Rows as records; those of lines and of tables have their texts under the names that are always known."""
    if name != "-" and not is_text(name):
        file = find_source(Path(name))
        if file.kind in (".tsv", ".csv", ".parquet", ".jsonl", ".ndjson", ".json"):
            yield from _rows(file, learnt, say, single=single)
            return
        found = _read(file)
    else:
        found = _standard_input() if name == "-" else iter([(0, name)])
    shown = {"-": "standard input"}.get(name, name)
    for number, line in found:
        if line:
            place = f"{shown}:{number}" if number else f"'{name[:40]}'"
            yield place, _line(line, place, learnt, single=single)


def _read(file: Source) -> Iterator[tuple[int, str]]:
    """The lines of a file, unpacked as they are read."""
    try:
        with file.opened() as found, io.TextIOWrapper(io.BufferedReader(_Raw(found))) as stream:
            first = next(file.blocks(lambda _: None), b"")
            stream.reconfigure(encoding=file.encoding or encoding.wide(first) or encoding.UTF8)
            yield from _numbered(stream)
    except UnicodeDecodeError:
        raise TextError(file.name, "is not UTF-8 text") from None
    except READ_ERRORS as error:
        raise read_error(file.name, error) from None


class _Raw(io.RawIOBase):
    """Anything that can be read, as Python's own streams are: what unpacks Zstandard is no such stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        some = self.stream.read(len(buffer))
        buffer[: len(some)] = some
        return len(some)


def _standard_input() -> Iterator[tuple[int, str]]:
    try:
        for number, line in _numbered(sys.stdin):
            if number == 1 and encoding.wide(line.encode(errors="surrogateescape")):
                raise TextError("standard input", "is UTF-16 text", "Save it as UTF-8, or pipe it through iconv first")
            yield number, line
    except UnicodeDecodeError:
        raise TextError("standard input", "is not UTF-8 text") from None


def _numbered(stream: Iterable[str]) -> Iterator[tuple[int, str]]:
    return ((number, line.strip("\r\n\ufeff")) for number, line in enumerate(stream, 1))


def _line(line: str, place: str, learnt: TrainedOn, *, single: bool = False) -> Mapping[str, Any]:
    """A line as a record: a JSON object as it is, another as its text, cut at a tab where a pair is asked for."""
    if line.startswith("{"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise TextError(place, "is not JSON", "A line that begins with { is read as JSON") from None
        return {"text": None, **record}
    before, tab, after = line.partition("\t")
    one = single or (learnt.kind in ("classify", "number", "labels") and len(learnt.texts) == 1)
    return {"text": before, "second": after} if tab and not one else {"text": line}


def _rows(file: Source, learnt: TrainedOn, say: Notify, *, single: bool) -> Iterator[Record]:
    """The rows of a table. Which columns hold the texts is settled by the first rows, and said if it was guessed."""
    known = {*reader.COLUMN_NAMES, *squad.HEADINGS, *conll.WORD_COLUMNS, "text", "second", *learnt.texts}
    table = open_table(file, known)
    wanted, changed = table.columns, dict[str, str]()
    if single or learnt.kind in ("classify", "number", "labels", "pairs"):
        own = _texts(table, learnt, single=single)
        if own:  # else each row is looked at by itself, and the first without a text is named
            if learnt.texts and own != learnt.texts:
                say(f"{file.name}: texts from {_listed(own)}; the model learnt from {_listed(learnt.texts)}")
            elif not learnt.texts and not _usual(own):
                say(f"{file.name}: texts from {_listed(own)}")
            changed, wanted = dict(zip(own, ("text", "second"), strict=False)), own
    for place, row in table.rows(wanted, BadRows("fail")):
        yield place, {changed.get(name, name): row[name] for name in wanted if row[name] is not None or changed}


def _texts(table: Table, learnt: TrainedOn, *, single: bool) -> tuple[str, ...]:
    """The columns of the texts: those that the model learnt from, those with a usual name, those with words in them."""
    there = {name.casefold(): name for name in table.columns}
    count = 1 if single else len(learnt.texts)
    if learnt.texts and all(name.casefold() in there for name in learnt.texts):
        return tuple(there[name.casefold()] for name in learnt.texts)
    groups: list[Sequence[str]] = [
        *(PAIRS if count != 1 else []),
        *([(name,) for name in SINGLES] if count != 2 else []),
    ]
    for group in groups:
        if all(name in there for name in group):
            return tuple(there[name] for name in group)
    others = {*reader.CLASS_COLUMNS, *reader.MULTI_LABEL_COLUMNS, "id", "idx", "index"}
    free = [name for name in table.columns if name.casefold() not in others]
    wordy = [name for name in free if _wordy([row.get(name) for row in table.head])]
    if 1 <= len(wordy) <= 2 and len(wordy) == (count or len(wordy)):
        return tuple(wordy)
    if len(free) == 1 and count != 2:
        return tuple(free)
    if table.source.kind in (".jsonl", ".ndjson", ".json") and not learnt.texts:
        return ()
    columns = ", ".join(table.columns) + ("" if table.has_header else " (there is no header)")
    remedy = f"Name them {_listed(learnt.texts)}, as where the model learnt" if learnt.texts else "Name one 'text'"
    raise TextError(table.name, f"which columns hold the texts cannot be guessed from {columns}", remedy)


def _usual(names: tuple[str, ...]) -> bool:
    lower = tuple(name.casefold() for name in names)
    return lower in PAIRS or (len(lower) == 1 and lower[0] in SINGLES)


def _wordy(values: Sequence[Any]) -> bool:
    some = [value for value in values if value is not None]
    return bool(some) and all(isinstance(one, str) for one in some) and any(" " in one.strip() for one in some)


def _wrong_task_error(name: str, holds: str, kind: str) -> TextError:
    return TextError(name, f"holds {holds} and the model was taught {TRAINED_TO[kind]}", "Give it another file")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)
