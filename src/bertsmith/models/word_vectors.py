"""Words and a vector for each, in the field's own files: word2vec's text and binary formats, which gensim opens, too.

GloVe's text format is read as well, and any of them packed as .gz, .xz or .zst. word2vec's formats begin with a line
that says how many vectors of how many numbers there are. Then comes for each word, in the text format, a line with the
word and its numbers; in the binary one the word, a space, and float32 in little-endian order. GloVe's begins at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from bertsmith import files
from bertsmith.data.corpus.lines import READ_ERRORS
from bertsmith.data.corpus.sources import Source
from bertsmith.errors import FolderError

Format = Literal["binary", "text"]
MAX_WORD_BYTES = 1 << 12  # bytes a word may have
MAX_HEADER_BYTES = 64  # bytes the first line may have
MAX_WIDTH = 1 << 16  # numbers a vector may have
WRITE_ROWS = 4_096  # vectors written at once
READ_BYTES = 1 << 20  # bytes read at once
COMPRESSIONS = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ", ".zst": b"(\xb5/\xfd", ".zip": b"PK\x03\x04"}  # by first bytes
REMEDY = "Word vectors are a file in word2vec's text or binary format, or in GloVe's; also .gz .xz .zst"

Pair = tuple[str, Float32[np.ndarray, " D"]]  # a word and its vector


@dataclass(frozen=True)
class WordVectors:
    """A vector for each word, the most frequent word first."""

    words: list[str]
    table: Float32[np.ndarray, "V D"]


def write(path: Path, vectors: WordVectors, format_name: Format = "binary") -> None:
    """Put a file in place that any reader of word2vec's formats opens."""
    beside = path.with_name(path.name + ".writing")
    with files.Writer(beside) as writer:
        writer.write(f"{len(vectors.words)} {vectors.table.shape[1]}\n".encode())
        for start in range(0, len(vectors.words), WRITE_ROWS):
            some = slice(start, start + WRITE_ROWS)
            rows = zip(vectors.words[some], vectors.table[some].astype("<f4"), strict=True)
            writer.write(b"".join(_line(word, row, format_name) for word, row in rows))
        writer.close()
    with files.explain_os_errors(path):
        beside.replace(path)
    files.sync_folder(path.parent)


def _line(word: str, row: Float32[np.ndarray, " D"], form: Format) -> bytes:
    if not word or any(character.isspace() for character in word):
        raise FolderError("words", f"{word!r} is no word", "A word has no spaces in it")
    if form == "binary":
        return word.encode() + b" " + row.tobytes() + b"\n"
    return f"{word} {' '.join(map(str, row))}\n".encode()  # as few digits as bring back the same float32


def read(path: Path) -> WordVectors:
    """The vectors of a file in either format, or in GloVe's, packed or not, known by its contents.

    No size is believed before it is checked; of a packed file, memory is taken as its vectors come.
    """
    try:
        with path.open("rb") as raw:
            unpacked, packed = _decompressed(path, raw)
            return _read(path, _ByteStream(unpacked), 0 if packed else path.stat().st_size)
    except FileNotFoundError:
        raise FolderError(path, "is missing") from None
    except READ_ERRORS as error:
        reason = getattr(error, "strerror", None) or str(error) or "it is damaged"
        raise FolderError(
            path, f"cannot be read ({reason})", "Fetch it again" if compression_of(path) else ""
        ) from None


def _read(path: Path, data: "_ByteStream", size: int) -> WordVectors:
    """The vectors; `size` is that of a file that is not packed, and 0 of one that is."""
    count, width = _header(path, data)
    if size and count * (2 * width + 1) > size:
        fact = f"names {count:,} vectors of {width:,} numbers, which do not fit into {size:,} bytes"
        raise FolderError(path, fact, "Fetch it again")
    table = np.empty((count if size and count else min(count or WRITE_ROWS, WRITE_ROWS), width), np.float32)
    rows = _text(path, data, count, width) if _is_text(data, width) else _binary(path, data, count, width)
    words = list[str]()
    for word, numbers in rows:
        if len(words) == len(table):
            table = np.concatenate((table, np.empty_like(table)))
        table[len(words)] = numbers
        words.append(word)
    table = table[: len(words)]
    if not np.isfinite(table).all():
        raise FolderError(path, f"the vector of '{words[_first_bad(table)]}' holds what is not a number")
    return WordVectors(words, table)


class _ByteStream:
    """Bytes of a stream, taken by marks or by number, a block held at a time."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.buffer, self.offset = stream, b"", 0

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay; fewer where the stream ends."""
        while len(self.buffer) - self.offset < size and (block := self.stream.read(max(READ_BYTES, size))):
            self.buffer, self.offset = self.buffer[self.offset :] + block, 0
        return self.buffer[self.offset : self.offset + size]

    def read_until(self, mark: bytes, limit: int) -> bytes | None:
        """The bytes before the next mark, which is taken with them; None where there is none among the next."""
        end = self.buffer.find(mark, self.offset, self.offset + limit)
        if end < 0:
            self.peek(limit)
            end = self.buffer.find(mark, self.offset, self.offset + limit)
        if end < 0:
            return None
        found, self.offset = self.buffer[self.offset : end], end + len(mark)
        return found

    def read(self, size: int) -> bytes:
        found = self.peek(size)
        self.offset += len(found)
        return found


def compression_of(path: Path) -> str:
    """How a file is packed, by its first bytes: .gz, .xz, .zst, .zip; or not at all."""
    try:
        with path.open("rb") as raw:
            first = raw.read(6)
    except OSError:
        return ""
    return next((ending for ending, mark in COMPRESSIONS.items() if first.startswith(mark)), "")


def _decompressed(path: Path, raw: Any) -> tuple[Any, bool]:
    packing = compression_of(path)
    if packing == ".zip":
        raise FolderError(path, "is a zip archive", "Unpack it, and name a file of it")
    return Source(path, ".txt", packing).decompressed(raw), bool(packing)


def _header(path: Path, data: _ByteStream) -> tuple[int, int]:
    """How many vectors of how many numbers. GloVe's files do not say: 0 vectors, and the width of the first."""
    line, end, _ = data.peek(MAX_HEADER_BYTES).partition(b"\n")
    parts = line.split()
    if end and len(parts) == 2 and all(part.isdigit() for part in parts):
        count, width = map(int, parts)
        if not count or not 0 < width <= MAX_WIDTH:
            raise FolderError(path, f"names {count:,} vectors of {width:,} numbers", REMEDY)
        data.read(len(line) + 1)
        return count, width
    line = data.peek(MAX_WORD_BYTES + 32 * MAX_WIDTH).partition(b"\n")[0]
    width = len(line.split()) - 1
    if width < 2 or not _numbers(line.split()[1:]):
        raise FolderError(path, "does not begin with the number of its vectors and of their numbers", REMEDY)
    return 0, width


def _is_text(data: _ByteStream, width: int) -> bool:
    """Whether the first line after the header is a word and so many numbers that can be read."""
    parts = data.peek(MAX_WORD_BYTES + 32 * width).partition(b"\n")[0].split()
    return len(parts) > 1 and _numbers(parts[-min(width, len(parts) - 1) :])


def _numbers(parts: list[bytes]) -> bool:
    try:
        return bool([float(part) for part in parts])
    except ValueError:
        return False


def _text(path: Path, data: _ByteStream, count: int, width: int) -> Iterator[Pair]:
    """Words and numbers by lines. A word may have blanks in it: the last numbers of a line are the vector."""
    row, most = 0, MAX_WORD_BYTES + 32 * width
    while not count or row < count:
        place = f"{path}:{row + (2 if count else 1)}"
        line = data.read_until(b"\n", most)
        line = data.read(most) if line is None else line
        word, *numbers = line.rsplit(None, width) or [b""]
        if not word:
            if not count:  # nothing says how many there are to be
                return
            raise FolderError(path, f"ends after {row:,} of {count:,} vectors", "Fetch it again")
        more = word.split()[1:] if not row else []  # the first word hardly ends in numbers: the header is wrong
        if len(numbers) != width or (more and _numbers(more)):
            raise FolderError(place, f"has {len(numbers) + len(more):,} numbers, not {width:,}", "Fetch the file again")
        try:
            values = np.array([float(number) for number in numbers], np.float32)
        except ValueError:
            raise FolderError(place, "holds what is not a number", "Fetch the file again") from None
        yield _decoded(word.strip(), place), values
        row += 1


def _binary(path: Path, data: _ByteStream, count: int, width: int) -> Iterator[Pair]:
    for row in range(count):
        place = f"{path}, vector {row + 1:,}"
        while data.peek(1) == b"\n":  # word2vec ends a vector with a line feed, others do not
            data.read(1)
        word = data.read_until(b" ", MAX_WORD_BYTES)
        numbers = b"" if word is None else data.read(4 * width)
        if word is None or len(numbers) < 4 * width:
            cut = word is not None or len(data.peek(MAX_WORD_BYTES)) < MAX_WORD_BYTES
            fact = f"ends after {row:,} of {count:,} vectors" if cut else f"there is no word at vector {row + 1:,}"
            raise FolderError(path, fact, "Fetch it again")
        yield _decoded(word, place), np.frombuffer(numbers, "<f4")


def _decoded(word: bytes, location: str) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise FolderError(location, "its word is not UTF-8 text", REMEDY) from None


def _first_bad(table: np.ndarray) -> int:
    return int((~np.isfinite(table).all(1)).argmax())
