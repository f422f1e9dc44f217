"""Words and a vector for each, in the field's own files: word2vec's text and binary formats, which gensim opens, too.

Both begin with a line that says how many vectors of how many numbers there are. Then comes for each word, in the text
format, a line with the word and its numbers; in the binary one the word, a space, and float32 in little-endian order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float32

from bertsmith.data import files
from bertsmith.errors import FolderError

Form = Literal["binary", "text"]
LONGEST = 1 << 12  # bytes a word may have
HEADER = 64  # bytes the first line may have
WIDEST = 1 << 16  # numbers a vector may have
TOGETHER = 4_096  # vectors written at once
REMEDY = "Word vectors are a file in word2vec's text or binary format"


@dataclass(frozen=True)
class WordVectors:
    """A vector for each word, the most frequent word first."""

    words: list[str]
    table: Float32[np.ndarray, "V D"]


def write(path: Path, vectors: WordVectors, form: Form = "binary") -> None:
    """Put a file in place that any reader of word2vec's formats opens."""
    beside = path.with_name(path.name + ".writing")
    with files.Writer(beside) as writer:
        writer.write(f"{len(vectors.words)} {vectors.table.shape[1]}\n".encode())
        for start in range(0, len(vectors.words), TOGETHER):
            some = slice(start, start + TOGETHER)
            rows = zip(vectors.words[some], vectors.table[some].astype("<f4"), strict=True)
            writer.write(b"".join(_line(word, row, form) for word, row in rows))
        writer.close()
    with files.explained(path):
        beside.replace(path)
    files.sync_folder(path.parent)


def _line(word: str, row: Float32[np.ndarray, " D"], form: Form) -> bytes:
    if not word or any(character.isspace() for character in word):
        raise FolderError("words", f"{word!r} is no word", "A word has no spaces in it")
    if form == "binary":
        return word.encode() + b" " + row.tobytes() + b"\n"
    return f"{word} {' '.join(map(str, row))}\n".encode()  # as few digits as bring back the same float32


def read(path: Path) -> WordVectors:
    """The vectors of a file in either format, known by what it holds. No size is believed before it is checked."""
    try:
        data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    except FileNotFoundError:
        raise FolderError(path, "is missing") from None
    except OSError as error:
        raise FolderError(path, f"cannot be read ({error.strerror})") from None
    count, width, begin = _header(path, data)
    if count * (2 * width + 1) > len(data):
        fact = f"names {count:,} vectors of {width:,} numbers, which do not fit into {len(data):,} bytes"
        raise FolderError(path, fact, "Fetch it again")
    table = np.empty((count, width), np.float32)
    rows = _text(path, data, begin, table) if _is_text(data, begin, width) else _binary(path, data, begin, table)
    words = list(rows)
    if not np.isfinite(table).all():
        raise FolderError(path, f"the vector of '{words[_first_bad(table)]}' holds what is not a number")
    return WordVectors(words, table)


def _header(path: Path, data: np.ndarray) -> tuple[int, int, int]:
    """How many vectors, of how many numbers, and where the first begins."""
    line, end, _ = data[:HEADER].tobytes().partition(b"\n")
    parts = line.split()
    if not end or len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise FolderError(path, "does not begin with the number of its vectors and of their numbers", REMEDY)
    count, width = map(int, parts)
    if not count or not 0 < width <= WIDEST:
        raise FolderError(path, f"names {count:,} vectors of {width:,} numbers", REMEDY)
    return count, width, len(line) + 1


def _is_text(data: np.ndarray, begin: int, width: int) -> bool:
    """Whether the first line after the header is a word and so many numbers that can be read."""
    line = data[begin : begin + LONGEST + 32 * width].tobytes().partition(b"\n")[0]
    try:
        return len([float(part) for part in line.split()[1:]]) > 0
    except ValueError:
        return False


def _text(path: Path, data: np.ndarray, begin: int, table: np.ndarray) -> Iterator[str]:
    lines = data[begin:].tobytes().split(b"\n")
    for row in range(len(table)):
        place = f"{path}:{row + 2}"
        word, *numbers = lines[row].split() if row < len(lines) and lines[row] else [b""]
        if not word:
            raise FolderError(path, f"ends after {row:,} of {len(table):,} vectors", "Fetch it again")
        if len(numbers) != table.shape[1]:
            raise FolderError(place, f"has {len(numbers):,} numbers, not {table.shape[1]:,}", "Fetch the file again")
        try:
            table[row] = [float(number) for number in numbers]
        except ValueError:
            raise FolderError(place, "holds what is not a number", "Fetch the file again") from None
        yield _decoded(word, place)


def _binary(path: Path, data: np.ndarray, begin: int, table: np.ndarray) -> Iterator[str]:
    count, width = table.shape
    for row in range(count):
        place = f"{path}, vector {row + 1:,}"
        head = data[begin : begin + LONGEST].tobytes()
        skipped = len(head) - len(head.lstrip(b"\n"))  # word2vec ends a vector with a line feed, others do not
        word, space, _ = head[skipped:].partition(b" ")
        start = begin + skipped + len(word) + 1
        begin = start + 4 * width
        if not space or begin > len(data):
            cut = len(head) < LONGEST or begin > len(data)
            fact = f"ends after {row:,} of {count:,} vectors" if cut else f"there is no word at vector {row + 1:,}"
            raise FolderError(path, fact, "Fetch it again")
        table[row] = data[start:begin].view("<f4")
        yield _decoded(word, place)


def _decoded(word: bytes, place: str) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise FolderError(place, "its word is not UTF-8 text", REMEDY) from None


def _first_bad(table: np.ndarray) -> int:
    return int((~np.isfinite(table).all(1)).argmax())
