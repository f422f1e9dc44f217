"""Tables: rows of named columns in TSV, CSV, JSON and Parquet files, read one after the other."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled import bad_rows, delimited, records
from bertsmith.data.labelled.bad_rows import BAD_ROW_FACTS, NOT_AN_OBJECT, BadRows, find_fault
from bertsmith.data.labelled.lines import first_line, parse_json, read_lines, read_text
from bertsmith.data.labelled.records import RawRow
from bertsmith.errors import TextError, suggest

TABLE_SUFFIXES = (".tsv", ".csv", ".jsonl", ".ndjson", ".json", ".parquet", ".txt")
KNOWN_TABLES = "Known: .tsv .csv .jsonl .json .parquet, and all but the last followed by .gz .xz .zst"
COLUMN_GUESS_ROWS = 100  # rows from which columns are guessed
TOO_FEW, TOO_MANY = "rows with too few cells", "rows with too many cells"

Row = tuple[str, dict[str, Any]]  # its location, and the value in each column


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

    def describe(self) -> str:
        """What goes not without saying: no header, or another delimiter than the file's ending says; in brackets."""
        facts = [] if self.has_header else ["there is no header"]
        if self.delimiter != delimited.OWN_DELIMITERS.get(self.source.kind, ""):
            facts.append("cells separated by " + ("tabs" if self.delimiter == "\t" else f"'{self.delimiter}'"))
        return f" ({', '.join(facts)})" if facts else ""

    def column(self, name: str) -> str:
        """A column as the file spells it, by a name in any case or by its number."""
        alike = [known for known in self.columns if known.casefold() == name.casefold()]
        if name in self.columns or len(alike) == 1:
            return name if name in self.columns else alike[0]
        if self.delimiter and name in map(str, range(len(self.columns))):
            return self.columns[int(name)]
        raise TextError(self.name, f"has no column '{name}'", suggest(name, self.columns))

    def rows(self, wanted: Sequence[str], dropped: BadRows) -> Iterator[Row]:
        """The wanted columns of every row that can be read."""
        raw_rows, file = _raw_rows(self.source, self.delimiter, wanted), self.name
        cells = [(name, self.columns.index(name)) for name in wanted if name in self.columns]
        record = ": record " if _is_list(self.source) else ":"  # which is no line
        for number, values, fault in islice(raw_rows, 1 if self.delimiter and self.has_header else 0, None):
            location = f"{file}{record}{number}"
            if fault and not (isinstance(values, list) and dropped.keeps(fault)):
                dropped.drop(fault, location)
            elif isinstance(values, dict):
                row = {name: values.get(name) for name in wanted}
                if fault := find_fault(list(row.values())):
                    dropped.drop(fault, location)
                else:
                    row |= {
                        name: records.class_names(row[name], self.classes[name]) for name in self.classes if name in row
                    }
                    yield location, row
            elif len(values) == len(self.columns):
                yield location, {name: values[cell] for name, cell in cells}
            else:
                fact = f"has {len(values)} cells and not {len(self.columns)}"
                dropped.drop(TOO_FEW if len(values) < len(self.columns) else TOO_MANY, location, fact)


def open_table(source: Source, known: Collection[str] = ()) -> Table:
    """The table in a file. Known column names help to recognise a header."""
    if source.kind not in TABLE_SUFFIXES or (source.kind == ".parquet" and source.compression):
        raise TextError(source.name, f"has the unknown ending '{source.path.suffix}'", KNOWN_TABLES)
    if source.kind == ".parquet":
        columns, classes = records.schema(source)
        table = Table(source, columns, [], classes=classes)
        return replace(table, head=[row for _, row in islice(table.rows(columns, BadRows("skip")), COLUMN_GUESS_ROWS)])
    if source.kind in (".tsv", ".csv", ".txt"):
        return _open_delimited(source, known)
    head = [values for _, values, fault in _first_rows(_raw_rows(source)) if isinstance(values, dict) and not fault]
    if not head:
        raise TextError(source.name, "holds no JSON object" if source.size else "is empty", "Give it rows")
    return Table(source, tuple(dict.fromkeys(name for row in head for name in row)), head)


def _open_delimited(source: Source, known: Collection[str]) -> Table:
    delimiter = delimited.find_delimiter(source)
    raw_rows = _first_rows(_raw_rows(source, delimiter))
    if not raw_rows:
        raise TextError(source.name, "holds no row" if source.size else "is empty", "Give it rows")
    if fault := raw_rows[0][2]:
        fact = f"{BAD_ROW_FACTS[fault]}, and it might name the columns"
        raise TextError(f"{source.name}:{raw_rows[0][0]}", fact, "Mend the first line")
    first, *rest = [list(cells) for _, cells, fault in raw_rows if not fault]
    if has_header := source.kind != ".txt" and delimited.has_header(first, rest, known):
        names = [cell.strip() for cell in first]
        columns = tuple(name if name and name not in names[:at] else str(at) for at, name in enumerate(names))
    else:
        rest = [first, *rest]
        columns = tuple(map(str, range(Counter(map(len, rest)).most_common(1)[0][0])))
    head = [dict(zip(columns, row, strict=True)) for row in rest if len(row) == len(columns)]
    return Table(source, columns, head, has_header, delimiter)


def _first_rows(rows: Iterator[RawRow]) -> list[RawRow]:
    """The first rows, fewer if they are large."""
    head, size = list[RawRow](), 0
    for row in islice(rows, COLUMN_GUESS_ROWS + 1):
        head.append(row)
        cells = row[1] if isinstance(row[1], list) else row[1].values()
        size += sum(len(cell) for cell in cells if isinstance(cell, str))
        if size > bad_rows.MAX_LINE:
            break
    return head


def _raw_rows(source: Source, delimiter: str = "", wanted: Sequence[str] = ()) -> Iterator[RawRow]:
    """Every row of a file, the bad ones with their faults."""
    match source.kind:
        case ".csv" | ".tsv" | ".txt":
            return delimited.rows(source, delimiter)
        case ".parquet":
            return records.rows(source, wanted)
    return _json_rows(source)


def _is_list(source: Source) -> bool:
    """Whether a file is one JSON list of its rows."""
    return source.kind == ".json" and first_line(source).lstrip()[:1] == "["


def _json_rows(source: Source) -> Iterator[RawRow]:
    if _is_list(source):
        for number, record in enumerate(parse_json(read_text(source), source.name), 1):
            yield (number, record, "") if isinstance(record, dict) else (number, {}, NOT_AN_OBJECT)
        return
    for number, line, fault in read_lines(source):
        if fault:
            yield number, {}, fault
        elif line and not line.isspace():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            yield (number, record, "") if isinstance(record, dict) else (number, {}, NOT_AN_OBJECT)
