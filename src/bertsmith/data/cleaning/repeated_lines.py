"""Lines that recur across documents: headers, footers and other boilerplate; all but the first are dropped.

In documents a line counts from 5 words on, and must occur in 10 documents. A file of one sentence a line without blank
lines has no documents: there a line of 8 words or more is dropped where it occurred before.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_WORDS, MIN_LIST_WORDS = 5, 8
MIN_DOCUMENTS = 10
LIST_BIT = np.uint64(1 << 63)  # in the number of a document: the line stands in a file without documents
DOCUMENT_BIT = np.uint64(1 << 62)  # in the table: dropped from documents, too
NUMBER = ~(LIST_BIT | DOCUMENT_BIT)
SLICE = 1 << 23  # lines sorted at a time
READ_LINES = 1 << 18  # lines read at a time

LINE = np.dtype([("key", "<u8"), ("number", "<u8")])  # the hash of a line, and the number of its document


def line_key(words: Sequence[str]) -> int:
    """The hash of a line, given its words: lines that differ in case and punctuation alone are the same."""
    raw = " ".join(words).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")


def write_table(lines: Path, keep: NDArray[np.bool_], table: Path) -> int:
    """Find the lines that recur in kept documents, and write them in the order of their keys with their first document.

    The lines are sorted in slices, so that memory is bounded. Returns the number of keys.
    """
    count = 0
    with table.open("wb") as out:
        for part in _slices(lines, keep):
            part = part[np.lexsort((part["number"] & NUMBER, part["key"]))]
            number, in_list = part["number"] & NUMBER, part["number"] >= LIST_BIT
            starts = np.flatnonzero(np.concatenate([[True], part["key"][1:] != part["key"][:-1]]))
            listed = np.add.reduceat(in_list.astype(np.int64), starts)
            documents = np.add.reduceat((~in_list).astype(np.int64), starts)
            common = documents >= MIN_DOCUMENTS
            recurs = common | (listed >= 2)
            rows = starts[recurs]
            found = np.empty(len(rows), LINE)
            found["key"] = part["key"][rows]
            found["number"] = number[rows] | np.where(common[recurs], DOCUMENT_BIT, np.uint64(0))
            out.write(found.tobytes())
            count += len(found)
    return count


def _slices(lines: Path, keep: NDArray[np.bool_]) -> Iterator[NDArray[Any]]:
    """The lines of kept documents, those with the smallest keys first."""
    total = lines.stat().st_size // LINE.itemsize if lines.exists() else 0
    slices = -(-total // SLICE)
    width = (1 << 64) // max(slices, 1) + 1
    for part in range(slices):
        found = []
        with lines.open("rb") as file:
            while len(block := np.fromfile(file, LINE, READ_LINES)):
                inside = keep[(block["number"] & NUMBER).astype(np.int64)]
                inside &= block["key"] // np.uint64(width) == part if slices > 1 else True
                found.append(block[inside])
        if found and (whole := np.concatenate(found)).size:
            yield whole


class RepeatedLines:
    """The table of repeated lines, mapped and not held in memory."""

    def __init__(self, table: Path) -> None:
        size = table.stat().st_size // LINE.itemsize if table.exists() else 0
        rows = np.memmap(table, LINE, "r", shape=(size,)) if size else np.empty(0, LINE)
        self._keys, self._numbers = rows["key"], rows["number"]

    def __len__(self) -> int:
        return len(self._keys)

    def first(self, key: int, *, in_list: bool) -> int | None:
        """The number of the document that keeps the line; None for a line that does not recur."""
        row = int(np.searchsorted(self._keys, np.uint64(key)))
        if row == len(self._keys) or int(self._keys[row]) != key:
            return None
        number = int(self._numbers[row])
        return number & int(NUMBER) if in_list or number & int(DOCUMENT_BIT) else None
