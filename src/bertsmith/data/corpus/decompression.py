"""Decompression, bounded in size: what unpacks to far more than text does is a bomb."""

import bz2
import gzip
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertsmith.data.address import Address
from bertsmith.errors import TextError

READ_BYTES = 1 << 20  # bytes read at a time
MAX_RATIO = 100  # the largest ratio of decompressed to compressed size; text has 3 to 10
MAX_DECOMPRESSED_BYTES = 1 << 25  # bytes that any file may decompress to
MAGIC_BYTES: dict[bytes, Callable[[Any], Any]] = {  # the first bytes of a compressed file, and its reader
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"\xfd7zXZ": lzma.LZMAFile,
    b"BZh": bz2.BZ2File,
}


class BoundedStream:
    """A stream that raises an error once it has given too much for the size of its file (a decompression bomb)."""

    def __init__(self, stream: Any, path: Path | Address) -> None:
        self._stream, self._path, self._given = stream, path, 0
        self._max_bytes = max(MAX_DECOMPRESSED_BYTES, MAX_RATIO * path.stat().st_size)

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most a block."""
        data: bytes = self._stream.read(size if 0 <= size <= READ_BYTES else READ_BYTES)
        self._given += len(data)
        if self._given > self._max_bytes:
            raise oversized_error(self._path)
        return data


def oversized_error(location: object) -> TextError:
    """The error for a file that decompresses to far more than text does."""
    return TextError(location, f"unpacks to more than {MAX_RATIO} times its size", "Unpack it yourself if you trust it")


@contextmanager
def open_decompressed(path: Path) -> Iterator[Any]:
    """The decompressed bytes of an archive in any known compression, bounded in size."""
    with path.open("rb") as raw:
        first = raw.read(6)
        raw.seek(0)
        opener = next((opener for magic, opener in MAGIC_BYTES.items() if first.startswith(magic)), None)
        yield BoundedStream(opener(raw), path) if opener else raw
