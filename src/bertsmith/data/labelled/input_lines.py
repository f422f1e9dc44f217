"""The lines of unlabelled inputs, with their numbers: of files and of standard input, as they arrive."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bertsmith.data.corpus import encoding
from bertsmith.data.corpus.lines import READ_ERRORS, read_error
from bertsmith.data.corpus.sources import Source
from bertsmith.errors import TextError

Notify = Callable[[str], object]


def filled(lines: Iterable[tuple[int, str]], name: str, notify: Notify) -> Iterator[tuple[int, str]]:
    """The lines that are not blank; the number of the others is reported, since rows and lines part at each."""
    blank = 0
    for number, line in lines:
        if line:
            yield number, line
        else:
            blank += 1
    if blank:
        notify(f"{name}: {blank:,} blank lines have no row" if blank > 1 else f"{name}: 1 blank line has no row")


def file_lines(file: Source) -> Iterator[tuple[int, str]]:
    """The lines of a file, unpacked as they are read."""
    try:
        with file.opened() as raw, io.TextIOWrapper(io.BufferedReader(_RawStream(raw))) as stream:
            first = next(file.blocks(lambda _: None), b"")
            stream.reconfigure(encoding=file.encoding or encoding.wide(first) or encoding.UTF8)
            yield from _numbered(stream)
    except UnicodeDecodeError:
        raise TextError(file.name, "is not UTF-8 text") from None
    except READ_ERRORS as error:
        raise read_error(file.name, error) from None


class _RawStream(io.RawIOBase):
    """Anything with a `read`, as one of Python's own streams: the Zstandard stream is none."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def standard_input() -> Iterator[tuple[int, str]]:
    """The lines of standard input, as they arrive."""
    try:
        for number, line in _numbered(sys.stdin):
            if number == 1 and encoding.wide(line.encode(errors="surrogateescape")):
                raise TextError("standard input", "is UTF-16 text", "Save it as UTF-8, or pipe it through iconv first")
            yield number, line
    except UnicodeDecodeError:
        raise TextError("standard input", "is not UTF-8 text") from None


def _numbered(stream: Iterable[str]) -> Iterator[tuple[int, str]]:
    return ((number, line.strip("\r\n\ufeff")) for number, line in enumerate(stream, 1))
