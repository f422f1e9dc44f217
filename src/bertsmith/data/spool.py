"""A spool: records in a temporary file, read back by index, so that millions of them need little memory.

Memory holds eight bytes a record. The file has no name, so that it is gone when the process ends, however it ends;
it is read with `pread` and not mapped, since mapped pages would count as memory of the process.
"""

import os
import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Generic, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from bertsmith.files import explain_os_errors

SPOOL_BUFFER_BYTES = 1 << 20  # bytes of unwritten records
READ_AHEAD = 1024  # records per read when iterating

R = TypeVar("R")


class _File:
    """A file without a name, open as long as a spool or a part of one refers to it."""

    def __init__(self, folder: Path | None) -> None:
        with explain_os_errors(folder or Path(tempfile.gettempdir())), tempfile.TemporaryFile(dir=folder) as file:
            self.descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            os.close(self.descriptor)


class Spool(Sequence[R], Generic[R]):
    """A sequence of records: bytes in a file, and the function that decodes a record."""

    def __init__(self, decode: Callable[[bytes], R], folder: Path | None = None) -> None:
        self._file = _File(folder)
        self._decode, self._folder = decode, folder
        self._ends, self._buffer, self._written, self._size = array("q", [0]), list[bytes](), 0, 0
        self._indices: NDArray[np.int64] | None = None  # of the records, if not all

    def append(self, record: bytes) -> None:
        self._buffer.append(record)
        self._size += len(record)
        self._ends.append(self._size)
        if self._size - self._written >= SPOOL_BUFFER_BYTES:
            self._flush()

    def seal(self) -> "Spool[R]":
        """Write all buffered records to the file; from now on threads may read the spool together."""
        self._flush()
        return self

    def take(self, indices: NDArray[np.int64]) -> "Spool[R]":
        """The records at these indices, in the same file."""
        self._flush()
        part: Spool[R] = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        part._indices = indices if self._indices is None else self._indices[indices]
        return part

    def __len__(self) -> int:
        return len(self._ends) - 1 if self._indices is None else len(self._indices)

    @overload
    def __getitem__(self, number: SupportsIndex) -> R: ...
    @overload
    def __getitem__(self, number: slice) -> list[R]: ...
    def __getitem__(self, number: SupportsIndex | slice) -> R | list[R]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        number, size = index(number), len(self)
        if not -size <= number < size:
            raise IndexError(f"record {number} of {size}")
        row = number % size if self._indices is None else int(self._indices[number])
        return self._decode(self._read(self._ends[row], self._ends[row + 1]))

    def __iter__(self) -> Iterator[R]:
        """All records in order, read many at a time."""
        for start in range(0, len(self), READ_AHEAD):
            rows = range(start, min(start + READ_AHEAD, len(self)))
            records = rows if self._indices is None else self._indices[start : rows.stop].tolist()
            first, last = min(records), max(records)
            if last - first > 8 * READ_AHEAD:  # far apart
                yield from (self[row] for row in rows)
                continue
            base = self._ends[first]
            block = self._read(base, self._ends[last + 1])
            for row in records:
                yield self._decode(block[self._ends[row] - base : self._ends[row + 1] - base])

    def _flush(self) -> None:
        if self._buffer:
            with explain_os_errors(self._folder or Path(tempfile.gettempdir())):
                left = memoryview(b"".join(self._buffer))
                while left:  # a write may be partial
                    left = left[os.write(self._file.descriptor, left) :]
            self._buffer, self._written = [], self._size

    def _read(self, start: int, stop: int) -> bytes:
        if stop > self._written:
            self._flush()
        found = os.pread(self._file.descriptor, stop - start, start)
        while len(found) < stop - start:  # a read may be partial
            found += os.pread(self._file.descriptor, stop - start - len(found), start + len(found))
        return found
