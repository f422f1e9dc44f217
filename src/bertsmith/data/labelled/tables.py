"""Tables: rows of named columns in TSV, CSV, JSON and Parquet, one after the other, the bad ones counted.

In TSV a quote is a character like any other, as GLUE needs it; in CSV it quotes, by RFC 4180, over several lines if
need be, and a quote that was opened by mistake costs its own line and no other. Any line end becomes a line feed.

Whether the first row of TSV or CSV names the columns is guessed from what it and the next hundred rows hold:
it does if one of its cells is a name that somebody knows (one that the reader was given, or one of those in
`labelled.py`) and does not stand in the same column again. Else it does if its cells are distinct words, none of them
empty, long or a number, and some column shows the difference: below, all its cells are numbers, or they are a few
values again and again, which the first is not. In doubt it is a row like the others: no example is lost.
"""

import csv
import json
import re
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from bertsmith.data.corpus import encoding
from bertsmith.data.corpus.lines import FACTS, READ_ERRORS, SURROGATE, Cleaner, clean_lines, read_error
from bertsmith.data.corpus.sources import COMPRESSIONS, Source
from bertsmith.data.labelled import records
from bertsmith.data.labelled.records import UNREADABLE, Raw
from bertsmith.errors import TextError, suggest

KINDS = (".tsv", ".csv", ".jsonl", ".ndjson", ".json", ".parquet", ".txt")
KNOWN = "Known: .tsv .csv .jsonl .json .parquet, and all but the last followed by .gz .xz .zst"
WHOLE = 1 << 28  # bytes of a file that is one JSON value, which is held in memory
LONGEST = 1 << 24  # characters of a line, and of a row of CSV
PEEK = 100  # rows to guess from
NAME = 40  # characters of a column's name, at most
LINES, LETTERS = 3, 2  # beyond ASCII, and different ones, that speak for another encoding
AHEAD = 1 << 26  # bytes of a file in which letters beyond ASCII are looked for

QUOTES, OBJECT = "rows with broken quotes", "rows that are no JSON object"
FEW, MANY = "rows with too few cells", "rows with too many cells"
FAULTS = {f"rows with {kind}": fact.format(longest=LONGEST) for kind, fact in FACTS.items() if "record" not in kind} | {
    QUOTES: "has a quote that is neither doubled nor closed",
    OBJECT: "is no JSON object",
    UNREADABLE: "holds a value that cannot be read",
}
REMEDY = "Mend the file, or choose to skip what is bad"

Policy = Literal["skip", "fail"]
Line = tuple[int, str, str]  # its number, itself, and what is wrong with it, or nothing
Row = tuple[str, dict[str, Any]]  # its place, and the value in each column


class BadRows:
    """What becomes of bad rows, by the policy, and how many there were for each reason."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.counts = policy, Counter[str]()

    def drop(self, reason: str, location: str, fact: str = "") -> None:
        """Count a bad row, or refuse it."""
        if self.policy == "fail":
            raise TextError(location, fact or FAULTS[reason], REMEDY)
        self.counts[reason] += 1


@dataclass(frozen=True)
class Table:
    """A file whose rows have named columns; numbers from 0 are the names where the file has none."""

    source: Source
    columns: tuple[str, ...]
    head: list[dict[str, Any]]  # the first rows, to guess from
    has_header: bool = True  # the first row names the columns
    delimiter: str = ""
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of columns that hold the number of a class

    @property
    def name(self) -> str:
        return self.source.name

    def column(self, name: str) -> str:
        """The column that somebody means, by its name or its number."""
        alike = [known for known in self.columns if known.casefold() == name.casefold()]
        if name in self.columns or len(alike) == 1:
            return name if name in self.columns else alike[0]
        if self.delimiter and name in map(str, range(len(self.columns))):
            return self.columns[int(name)]
        raise TextError(self.name, f"has no column '{name}'", suggest(name, self.columns))

    def rows(self, wanted: Sequence[str], dropped: BadRows) -> Iterator[Row]:
        """Every row that can be read, with the wanted columns of it."""
        found, file = _raw_rows(self.source, self.delimiter, wanted), self.name
        cells = [(name, self.columns.index(name)) for name in wanted if name in self.columns]
        for number, values, fault in islice(found, 1 if self.delimiter and self.has_header else 0, None):
            place = f"{file}:{number}"
            if fault:
                dropped.drop(fault, place)
            elif isinstance(values, dict):
                row = {name: values.get(name) for name in wanted}
                if fault := find_fault(list(row.values())):
                    dropped.drop(fault, place)
                else:
                    row |= {
                        name: records.class_names(row[name], self.classes[name]) for name in self.classes if name in row
                    }
                    yield place, row
            elif len(values) == len(self.columns):
                yield place, {name: values[cell] for name, cell in cells}
            else:
                fact = f"has {len(values)} cells and not {len(self.columns)}"
                dropped.drop(FEW if len(values) < len(self.columns) else MANY, place, fact)


def find_source(path: Path) -> Source:
    """A file that is there, what its ending says it holds, and how it is packed."""
    endings = [ending.lower() for ending in path.suffixes]
    packing = endings.pop() if endings and endings[-1] in COMPRESSIONS else ""
    try:
        size = path.stat().st_size
        if path.is_dir():
            within = sorted(child.name for child in path.iterdir())[:9]
            raise TextError(path, "is a folder", f"Name a file in it: {', '.join(within) or 'there is none'}")
    except (FileNotFoundError, ValueError):
        beside = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
        remedy = suggest(path.name, beside)
        raise TextError(path, "does not exist", remedy if remedy.startswith("Did") else "") from None
    except OSError as error:
        raise TextError(path, f"cannot be read ({error.strerror})") from None
    return with_encoding(Source(path, endings[-1] if endings else "", packing, size), sure=True)


def with_encoding(found: Source, *, sure: bool = False) -> Source:
    """The same file, with its encoding where that is not UTF-8: guessed from its first block that is not ASCII.

    `sure`: from several letters in several lines alone. A stray byte is a bad row, and no other encoding.
    """
    if found.kind == ".parquet" or found.encoding:
        return found
    size = 0
    try:
        for block in found.blocks(lambda _: None):
            if not size and encoding.wide(block):
                return found  # it is seen again when it is read
            if not block.isascii():
                body = block[: block.rfind(b"\n") + 1] or block
                try:
                    body.decode()
                except UnicodeDecodeError:
                    whole = encoding.SURROGATE_BYTES.sub(b"", body)
                    odd = [line for line in whole.split(b"\n") if not _is_utf8(line)]
                    letters = {byte for line in odd[:PEEK] for byte in line if byte > 0x7F}
                    few = sure and (len(odd) < LINES or len(letters) < LETTERS)
                    known = encoding.UTF8 if few else encoding.guess(body)
                    return found if known == encoding.UTF8 else replace(found, encoding=known)
                return found
            size += len(block)
            if size >= AHEAD:
                break
    except (TextError, *READ_ERRORS):
        pass  # the reader proper tells of it
    return found


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def open_table(found: Source, known: Collection[str] = ()) -> Table:
    """The table in a file. Names that are known help to tell a header from a row."""
    if found.kind not in KINDS or (found.kind == ".parquet" and found.compression):
        raise TextError(found.name, f"has the unknown ending '{found.path.suffix}'", KNOWN)
    if found.kind == ".parquet":
        columns, classes = records.schema(found)
        table = Table(found, columns, [], classes=classes)
        return replace(table, head=[row for _, row in islice(table.rows(columns, BadRows("skip")), PEEK)])
    if found.kind in (".tsv", ".csv", ".txt"):
        return _open_delimited(found, known)
    some = [values for _, values, fault in _first_rows(_raw_rows(found)) if isinstance(values, dict) and not fault]
    if not some:
        raise TextError(found.name, "holds no JSON object" if found.size else "is empty", "Give it rows")
    return Table(found, tuple(dict.fromkeys(name for row in some for name in row)), some)


def read_lines(found: Source) -> Iterator[Line]:
    """The lines of a file, and what is wrong with each."""
    tally, last = Counter[str](), 0
    for first, run in clean_lines(found.blocks(lambda _: None), found.name, Cleaner("replace", LONGEST, tally)):
        fault = next((kind for kind in tally if kind != "byte-order marks"), "")
        tally.clear()
        if fault and first != last:  # a bad line stands alone; one that is too long comes in parts
            yield first, run[0] if run else "", f"rows with {fault}"
            last = first
        elif first != last:
            for number, line in enumerate(run, first):
                yield number, line, ""


def read_text(found: Source) -> str:
    """All the text of a file that is one JSON value. Bytes that are not UTF-8 become halves of characters."""
    parts, size = list[bytes](), 0
    try:
        for block in found.blocks(lambda _: None):
            parts.append(block)
            size += len(block)
            if size > WHOLE:
                fact = f"is one JSON value of more than {WHOLE:,} bytes"
                raise TextError(found.name, fact, "Write its rows as JSON lines")
        raw = b"".join(parts)
    except READ_ERRORS as error:
        raise read_error(found.name, error) from None
    if not raw.strip():
        raise TextError(found.name, "is empty", "Give it rows")
    try:
        return raw.decode(json.detect_encoding(raw), "surrogateescape")
    except UnicodeDecodeError:
        raise TextError(found.name, "is not UTF-8 text", "Save it as UTF-8") from None


def parse_json(text: str, name: str) -> Any:
    """The one JSON value that a text is."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TextError(f"{name}:{error.lineno}", f"is not JSON: {error.msg}", "Get the file again") from None
    except (ValueError, RecursionError):
        raise TextError(name, "is no JSON that can be read: too deep, or a number too long") from None


def find_fault(held: Any) -> str:
    """What is wrong with a text, or with one inside a list or a record: nothing, half a character, or a NUL."""
    left = [held]
    while left:
        match left.pop():
            case str(text):
                if "\0" in text:
                    return "rows with NUL characters"
                if not text.isascii() and SURROGATE.search(text):
                    return "rows with half characters"
            case list(inside):
                left += inside
            case dict(inside):
                left += inside.values()
    return ""


def has_header(first: Sequence[str], rest: Sequence[Sequence[str]], known: Collection[str]) -> bool:
    """Whether the first row names the columns."""
    below = [[row[column] for row in rest if len(row) > column] for column in range(len(first))]
    pairs = list(zip(first, below, strict=True))
    names = {name.casefold() for name in known if not name.isdigit()}
    if any(cell.strip().casefold() in names and cell not in cells for cell, cells in pairs):
        return True
    if any(name.isdigit() for name in known):  # whoever goes by numbers has no names to go by
        return False
    if len(set(first)) < len(first) or any(not cell.strip() or len(cell) > NAME or _number(cell) for cell in first):
        return False
    if any(cell in cells for cell, cells in pairs):
        return False
    return any(cells and (all(map(_number, cells)) or 2 * len(set(cells)) <= len(cells)) for cells in below)


def _open_delimited(found: Source, known: Collection[str]) -> Table:
    delimiter = {".tsv": "\t", ".csv": ",", ".txt": "\n"}[found.kind]
    line = next((line for _, line, _ in read_lines(found) if line.strip()), "")
    if found.kind == ".csv" and ";" in line and "," not in line:
        delimiter = ";"
    raw = _first_rows(_raw_rows(found, delimiter))
    if not raw:
        raise TextError(found.name, "holds no row" if found.size else "is empty", "Give it rows")
    if fault := raw[0][2]:
        fact = f"{FAULTS[fault]}, and it might name the columns"
        raise TextError(f"{found.name}:{raw[0][0]}", fact, "Mend the first line")
    first, *rest = [list(cells) for _, cells, fault in raw if not fault]
    if named := found.kind != ".txt" and has_header(first, rest, known):
        names = [cell.strip() for cell in first]
        columns = tuple(name if name and name not in names[:at] else str(at) for at, name in enumerate(names))
    else:
        rest = [first, *rest]
        columns = tuple(map(str, range(Counter(map(len, rest)).most_common(1)[0][0])))
    head = [dict(zip(columns, row, strict=True)) for row in rest if len(row) == len(columns)]
    return Table(found, columns, head, named, delimiter)


def _first_rows(rows: Iterator[Raw]) -> list[Raw]:
    """The first rows, fewer if they are large."""
    some, size = list[Raw](), 0
    for row in islice(rows, PEEK + 1):
        some.append(row)
        size += sum(
            len(cell) for cell in (row[1] if isinstance(row[1], list) else row[1].values()) if isinstance(cell, str)
        )
        if size > LONGEST:
            break
    return some


def _raw_rows(found: Source, delimiter: str = "", wanted: Sequence[str] = ()) -> Iterator[Raw]:
    """Every row of a file as it stands there."""
    match found.kind:
        case ".csv":
            return _csv_rows(found, delimiter)
        case ".tsv" | ".txt":
            return (
                (at, line.split(delimiter), fault) for at, line, fault in read_lines(found) if line.strip(" ") or fault
            )
        case ".parquet":
            return records.rows(found, wanted)
    return _json_rows(found)


class _RereadableLines:
    """Lines that can be read again, for when a quote was opened by mistake."""

    def __init__(self, found: Iterator[Line]) -> None:
        self.found, self.ahead = found, deque[Line]()
        self.taken, self.size = list[Line](), 0

    def __iter__(self) -> "_RereadableLines":
        return self

    def __next__(self) -> str:
        if self.size > LONGEST:
            raise StopIteration
        self.taken.append(self.ahead.popleft() if self.ahead else next(self.found))
        self.size += len(self.taken[-1][1]) + 1
        return self.taken[-1][1] + "\n"

    def settle(self, number: int) -> None:
        """Only so many of the lines were meant."""
        self.ahead.extendleft(reversed(self.taken[number:]))
        self.taken, self.size = [], 0


def _csv_rows(found: Source, delimiter: str) -> Iterator[Raw]:
    csv.field_size_limit(2 * LONGEST)  # the module's own limit is for all, and 131,072
    again = _RereadableLines(read_lines(found))
    reader = csv.reader(again, delimiter=delimiter, strict=True)
    while True:
        cells, fault = list[str](), QUOTES
        try:
            cells = next(reader)
            fault = next((fault for _, _, fault in again.taken if fault), "")
        except StopIteration:
            return
        except csv.Error:
            pass
        number, line, _ = again.taken[0]
        again.settle(1 if fault == QUOTES else len(again.taken))
        if line.strip(" ") or fault:
            yield number, cells, fault


def _json_rows(found: Source) -> Iterator[Raw]:
    if (
        found.kind == ".json"
        and next((line for _, line, _ in read_lines(found) if line.strip()), "").lstrip()[:1] == "["
    ):
        for number, record in enumerate(parse_json(read_text(found), found.name), 1):
            yield (number, record, "") if isinstance(record, dict) else (number, {}, OBJECT)
        return
    for number, line, fault in read_lines(found):
        if fault:
            yield number, {}, fault
        elif line and not line.isspace():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            yield (number, record, "") if isinstance(record, dict) else (number, {}, OBJECT)


def _number(cell: str) -> bool:
    return bool(re.fullmatch(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", cell))
