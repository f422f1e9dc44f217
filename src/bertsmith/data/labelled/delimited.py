"""Delimited text: the rows of TSV and CSV, and whether the first row is a header.

In TSV a quote is a character like any other, as GLUE needs it; in CSV it quotes by RFC 4180, over several lines if
need be, and a quote that was opened by mistake costs its own line and no other. Any line end becomes a line feed.

The delimiter of CSV is the one that gives most of the first rows the same number of cells, two or more, or the one that
Excel's first line `sep=;` names.

Whether the first row is a header is guessed from its cells and those of the next hundred rows. It is one if a cell is a
known column name and does not occur again in its column. Else it is one if its cells are distinct words, none of them
empty, long or a number, and some column differs from its first cell: all numbers, or few values that recur. In doubt it
is a row like the others, so that no example is lost.
"""

import csv
import re
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled import bad_rows
from bertsmith.data.labelled.bad_rows import BROKEN_QUOTES
from bertsmith.data.labelled.lines import Line, first_line, read_lines
from bertsmith.data.labelled.records import RawRow

DELIMITERS = (",", ";", "\t", "|")  # of CSV
OWN_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\n"}  # that go without saying
EXCEL = re.compile(r'"?sep=(?P<mark>[^\w\s"]|\t|)"?', re.IGNORECASE)  # the first line of some files
DELIMITER_GUESS_LINES, DELIMITER_GUESS_ROWS = 1000, 100  # from which the delimiter is guessed
MAX_NAME = 40  # characters of a column's name


def find_delimiter(source: Source) -> str:
    """Tab for TSV; for CSV comma, semicolon, tab or bar; a plain text file has one cell a line."""
    if source.kind != ".csv":
        return OWN_DELIMITERS[source.kind]
    if named := EXCEL.fullmatch(first_line(source)):
        return named["mark"] or "\t"
    head, size = list[Line](), 0
    for line in islice(read_lines(source), DELIMITER_GUESS_LINES):
        head.append(line)
        size += len(line[1])
        if size > bad_rows.MAX_LINE:
            break
    return max(DELIMITERS, key=lambda mark: _regularity(head, mark))  # of those that are equal the first


def rows(source: Source, delimiter: str) -> Iterator[RawRow]:
    """Every row of a TSV, CSV or text file as its cells."""
    if source.kind == ".csv":
        return _csv_rows(
            (line for line in read_lines(source) if line[0] > 1 or not EXCEL.fullmatch(line[1])), delimiter
        )
    lines = read_lines(source)
    return ((number, line.split(delimiter), fault) for number, line, fault in lines if line.strip(" ") or fault)


def has_header(first: Sequence[str], rest: Sequence[Sequence[str]], known: Collection[str]) -> bool:
    """Whether the first row names the columns."""
    below = [[row[column] for row in rest if len(row) > column] for column in range(len(first))]
    pairs = list(zip(first, below, strict=True))
    names = {name.casefold() for name in known if not name.isdigit()}
    if any(cell.strip().casefold() in names and cell not in cells for cell, cells in pairs):
        return True
    if any(name.isdigit() for name in known):  # columns that go by numbers have no names
        return False
    if len(set(first)) < len(first):
        return False
    if any(not cell.strip() or len(cell) > MAX_NAME or _is_number(cell) for cell in first):
        return False
    if any(cell in cells for cell, cells in pairs):
        return False
    return any(cells and (all(map(_is_number, cells)) or 2 * len(set(cells)) <= len(cells)) for cells in below)


def _regularity(head: Sequence[Line], delimiter: str) -> tuple[float, int]:
    """The share of rows with the usual number of cells, 0 if that is one; and fewer cells that begin with a space.

    A comma in the text of each row has a space after it, and a delimiter none.
    """
    rows = islice(_csv_rows(iter(head), delimiter), DELIMITER_GUESS_ROWS)
    found = [list(cells) for _, cells, fault in rows if not fault]
    (width, count), *_ = Counter(map(len, found)).most_common(1) or [(0, 0)]
    spaced = sum(cell.startswith(" ") for cells in found for cell in cells[1:])
    return (count / len(found), -spaced) if width > 1 else (0, 0)


class _RereadableLines:
    """Lines that can be read again, for when a quote was opened by mistake."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.lines, self.ahead = lines, deque[Line]()
        self.taken, self.size = list[Line](), 0

    def __iter__(self) -> "_RereadableLines":
        return self

    def __next__(self) -> str:
        if self.size > bad_rows.MAX_LINE:
            raise StopIteration
        self.taken.append(self.ahead.popleft() if self.ahead else next(self.lines))
        self.size += len(self.taken[-1][1]) + 1
        return self.taken[-1][1] + "\n"

    def settle(self, number: int) -> None:
        """The first `number` lines were a row; the others are read again."""
        self.ahead.extendleft(reversed(self.taken[number:]))
        self.taken, self.size = [], 0


def _csv_rows(numbered: Iterator[Line], delimiter: str) -> Iterator[RawRow]:
    csv.field_size_limit(2 * bad_rows.MAX_LINE)  # the module's default is 131,072
    lines = _RereadableLines(numbered)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        cells, fault = list[str](), BROKEN_QUOTES
        try:
            cells = next(reader)
            fault = next((fault for _, _, fault in lines.taken if fault), "")
        except StopIteration:
            return
        except csv.Error:
            pass
        number, line, _ = lines.taken[0]
        lines.settle(1 if fault == BROKEN_QUOTES else len(lines.taken))
        if line.strip(" ") or fault:
            yield number, cells, fault


def _is_number(cell: str) -> bool:
    return bool(re.fullmatch(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", cell))
