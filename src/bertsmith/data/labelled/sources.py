"""Labelled files: found by name or pattern, with kind, compression and encoding."""

import glob
from dataclasses import replace
from pathlib import Path

from bertsmith.data.corpus import encoding
from bertsmith.data.corpus.lines import READ_ERRORS
from bertsmith.data.corpus.sources import ARCHIVES, COMPRESSIONS, UNPACK, Source
from bertsmith.errors import TextError, suggest
from bertsmith.files import check_local

MAX_BAD_LINES = 100  # that are looked at
MIN_LINES, MIN_BYTES = 3, 2  # lines that are not UTF-8, and different bytes in them, that show another encoding
MANY_LINES = 10  # lines that show it by one byte alone, if they are most of all
ASCII_SEARCH_BYTES = 1 << 26  # bytes of a file that are searched for characters beyond ASCII


def find_sources(path: str | Path) -> list[Source]:
    """The file of this name, or all that a pattern matches."""
    if glob.has_magic(str(path)) and "\0" not in str(path) and not Path(path).exists():
        found = sorted(glob.glob(str(path)))  # noqa: PTH207  (a Path takes no absolute pattern)
        if not found:
            raise TextError(path, "matches no file")
        return [find_source(Path(name)) for name in found]
    return [find_source(Path(path))]


def find_source(path: Path) -> Source:
    """A file that exists, with its kind and compression by its endings, and its encoding."""
    endings = [ending.lower() for ending in path.suffixes]
    compression = endings.pop() if endings and endings[-1] in COMPRESSIONS else ""
    try:
        size = path.stat().st_size
        if path.is_dir():
            inside = sorted(child.name for child in path.iterdir())[:9]
            raise TextError(path, "is a folder", f"Name a file in it: {', '.join(inside) or 'there is none'}")
    except (FileNotFoundError, ValueError):
        check_local(path)
        siblings = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
        remedy = suggest(path.name, siblings)
        raise TextError(path, "does not exist", remedy if remedy.startswith("Did") else "") from None
    except OSError as error:
        raise TextError(path, f"cannot be read ({error.strerror})") from None
    if endings and endings[-1] in ARCHIVES:
        raise TextError(path, "is an archive", UNPACK)
    return with_encoding(Source(path, endings[-1] if endings else "", compression, size), sure=True)


def with_encoding(source: Source, *, sure: bool = False) -> Source:
    """The same file, with its encoding where that is not UTF-8: guessed from the first block that is not ASCII.

    `sure` asks for several letters in several lines, or one letter in most of ten or more: a stray byte is a bad row,
    not another encoding. In the header of a table one letter is enough; lines that are UTF-8 are read as such.
    """
    if source.kind == ".parquet" or source.encoding:
        return source
    size = 0
    try:
        for block in source.blocks(lambda _: None):
            if not size and encoding.wide(block):
                return source  # found again when the file is read
            if not block.isascii():
                body = block[: block.rfind(b"\n") + 1] or block
                try:
                    body.decode()
                except UnicodeDecodeError:
                    whole = encoding.SURROGATE_BYTES.sub(b"", body)
                    lines = [line for line in whole.split(b"\n") if line]
                    odd = [line for line in lines if not _is_utf8(line)]
                    letters = {byte for line in odd[:MAX_BAD_LINES] for byte in line if byte > 0x7F}
                    most = len(odd) >= MANY_LINES and 2 * len(odd) > len(lines)
                    header = whole.partition(b"\n")[0] if source.kind in (".csv", ".tsv") and not size else b""
                    few = sure and not most and (len(odd) < MIN_LINES or len(letters) < MIN_BYTES)
                    known = encoding.UTF8 if few else encoding.guess(body)
                    if known == encoding.UTF8 and not _is_utf8(header):
                        known = encoding.guess(header)  # it names the columns, and cannot be left out
                    return source if known == encoding.UTF8 else replace(source, encoding=known)
                return source
            size += len(block)
            if size >= ASCII_SEARCH_BYTES:
                break
    except (TextError, *READ_ERRORS):
        pass  # the reader reports it
    return source


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
