"""Files of word vectors: word2vec's text and binary formats, which gensim opens, too; GloVe's text format is read.

All of them may be compressed as .gz, .xz or .zst. word2vec's formats begin with a header line: the number of vectors
and their width. Then follows for each word, in the text format, a line with the word and its numbers; in the binary
format the word, a space, and the vector as little-endian float32. GloVe's format has no header.
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
MAX_WORD_BYTES = 1 << 12  # of a word
MAX_HEADER_BYTES = 64  # of the first line
MAX_WIDTH = 1 << 16  # numbers of a vector
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
    """Write a file in one of word2vec's formats, in one move."""
    partial = path.with_name(path.name + ".writing")
    with files.Writer(partial) as writer:
        writer.write(f"{len(vectors.words)} {vectors.table.shape[1]}\n".encode())
        for start in range(0, len(vectors.words), WRITE_ROWS):
            chunk = slice(start, start + WRITE_ROWS)
            rows = zip(vectors.words[chunk], vectors.table[chunk].astype("<f4"), strict=True)
            writer.write(b"".join(_line(word, row, format_name) for word, row in rows))
        writer.close()
    with files.explain_os_errors(path):
        partial.replace(path)
    files.sync_folder(path.parent)


def _line(word: str, row: Float32[np.ndarray, " D"], format_name: Format) -> bytes:
    if not word or any(character.isspace() for character in word):
        raise FolderError("words", f"{word!r} is no word", "A word has no spaces in it")
    if format_name == "binary":
        return word.encode() + b" " + row.tobytes() + b"\n"
    return f"{word} {' '.join(map(str, row))}\n".encode()  # the fewest digits that give the same float32 again


def read(path: Path) -> WordVectors:
    """The vectors of a file in any of these formats, compressed or not, recognised by its contents.

    The header's size is checked against the file's; for a compressed file memory grows with the vectors read.
    """
    try:
        with path.open("rb") as raw:
            stream, compressed = _decompressed(path, raw)
            return _read(path, _ByteStream(stream), 0 if compressed else path.stat().st_size)
    except FileNotFoundError:
        raise FolderError(path, "is missing") from None
    except READ_ERRORS as error:
        reason = getattr(error, "strerror", None) or str(error) or "it is damaged"
        raise FolderError(
            path, f"cannot be read ({reason})", "Fetch it again" if compression_of(path) else ""
        ) from None


def _read(path: Path, data: "_ByteStream", size: int) -> WordVectors:
    """The vectors; `size` is the file's, or 0 if it is compressed."""
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
    while data.peek(1) in (b"\n", b"\r", b" "):
        data.read(1)
    if data.peek(1):
        fact = f"holds more than the {count:,} vectors that its first line names"
        raise FolderError(path, fact, "Correct that line, or fetch the file again")
    table = table[: len(words)]
    if not np.isfinite(table).all():
        raise FolderError(path, f"the vector of '{words[_first_bad(table)]}' has a value that is not finite")
    return WordVectors(words, table)


class _ByteStream:
    """A buffered stream of bytes, read by delimiter or by count."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.buffer, self.offset = stream, b"", 0

    def peek(self, size: int) -> bytes:
        """The next bytes, without consuming them; fewer where the stream ends."""
        while len(self.buffer) - self.offset < size and (block := self.stream.read(max(READ_BYTES, size))):
            self.buffer, self.offset = self.buffer[self.offset :] + block, 0
        return self.buffer[self.offset : self.offset + size]

    def read_until(self, mark: bytes, limit: int) -> bytes | None:
        """The bytes up to the next mark, which is consumed, too; None if it is not among the next `limit` bytes."""
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
    """The compression of a file by its first bytes: .gz, .xz, .zst, .zip, or empty for none."""
    try:
        with path.open("rb") as raw:
            first = raw.read(6)
    except OSError:
        return ""
    return next((ending for ending, mark in COMPRESSIONS.items() if first.startswith(mark)), "")


def _decompressed(path: Path, raw: Any) -> tuple[Any, bool]:
    compression = compression_of(path)
    if compression == ".zip":
        raise FolderError(path, "is a zip archive", "Unpack it, and name a file of it")
    return Source(path, ".txt", compression).decompressed(raw), bool(compression)


def _header(path: Path, data: _ByteStream) -> tuple[int, int]:
    """The number of vectors and their width. GloVe's files have no header: 0, and the width of the first vector."""
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
    """Whether the first line after the header is a word and numbers in decimal."""
    parts = data.peek(MAX_WORD_BYTES + 32 * width).partition(b"\n")[0].split()
    return len(parts) > 1 and _numbers(parts[-min(width, len(parts) - 1) :])


def _numbers(parts: list[bytes]) -> bool:
    try:
        return bool([float(part) for part in parts])
    except ValueError:
        return False


def _text(path: Path, data: _ByteStream, count: int, width: int) -> Iterator[Pair]:
    """Words and vectors by lines. A word may have spaces in it: the last `width` columns are the vector."""
    row, number, max_line = 0, 1 if count else 0, MAX_WORD_BYTES + 32 * width
    while not count or row < count:
        number += 1
        location = f"{path}:{number}"
        line = data.read_until(b"\n", max_line)
        line = data.read(max_line) if line is None else line
        word, *numbers = line.rsplit(None, width) or [b""]
        if not word and data.peek(1):
            continue  # a blank line among the others
        if not word:
            if not count:  # GloVe's format does not give the number of vectors
                return
            raise FolderError(path, f"ends after {row:,} of {count:,} vectors", "Fetch it again")
        extra = word.split()[1:] if not row else []  # a first word that ends in numbers: the header's width is wrong
        if len(numbers) != width or (extra and _numbers(extra)):
            fact = f"has {len(numbers) + len(extra):,} numbers, not {width:,}"
            raise FolderError(location, fact, "Fetch the file again")
        try:
            values = np.array([float(number) for number in numbers], np.float32)
        except ValueError:
            raise FolderError(location, "has a value that is not a number", "Fetch the file again") from None
        yield _decoded(word.strip(), location), values
        row += 1


def _binary(path: Path, data: _ByteStream, count: int, width: int) -> Iterator[Pair]:
    for row in range(count):
        location = f"{path}, vector {row + 1:,}"
        while data.peek(1) == b"\n":  # word2vec ends a vector with a line feed, other programs do not
            data.read(1)
        word = data.read_until(b" ", MAX_WORD_BYTES)
        numbers = b"" if word is None else data.read(4 * width)
        if word is None or len(numbers) < 4 * width:
            truncated = word is not None or len(data.peek(MAX_WORD_BYTES)) < MAX_WORD_BYTES
            fact = f"ends after {row:,} of {count:,} vectors" if truncated else f"vector {row + 1:,} has no word"
            raise FolderError(path, fact, "Fetch it again")
        yield _decoded(word, location), np.frombuffer(numbers, "<f4")


def _decoded(word: bytes, location: str) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise FolderError(location, "its word is not UTF-8 text", REMEDY) from None


def _first_bad(table: np.ndarray) -> int:
    return int((~np.isfinite(table).all(1)).argmax())
