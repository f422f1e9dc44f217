"""Sources: the files of a corpus, found by name or pattern and decompressed while they are read."""

import glob
import gzip
import lzma
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bertsmith.data.address import Address, is_address
from bertsmith.data.corpus.decompression import MAGIC_BYTES, READ_BYTES, BoundedStream
from bertsmith.data.corpus.encoding import looks_like_text, to_utf8
from bertsmith.data.corpus.folders import Folders, Skipped, skipped_summary
from bertsmith.errors import TextError, suggest

HTML = (".html", ".htm", ".xhtml")
MARKUP = (".md", ".markdown", ".rst", *HTML)
TABLES = (".csv", ".tsv")
DOCUMENTS = {".pdf": "pypdf", ".docx": "docx"}  # endings, and the libraries that read them
BINARY_KINDS = (".parquet", *DOCUMENTS)  # which have their own compression
ALIASES = {".text": ".txt", ".ndjson": ".jsonl"}
TEXT_SUFFIXES = (".txt", ".jsonl", *ALIASES, *MARKUP, *TABLES, *BINARY_KINDS)
COMPRESSIONS = (".gz", ".xz", ".zst")
KNOWN_SUFFIXES = (
    "Known: .txt .md .rst .html .csv .tsv .jsonl .parquet .pdf .docx, most also with .gz .xz .zst; --as text reads any"
)
STANDARD_INPUT = Path("/dev/stdin")
ARCHIVE_BYTES = (b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!")  # the first bytes of an archive; tar has a mark at byte 257
ARCHIVES = (".tar", ".tgz", ".zip", ".7z", ".rar", ".bz2")
CLEANING = "clean.json"  # the result in a folder that `clean` wrote
CLEANED_NAME = re.compile(r"(lines|running)-\d{5}\.txt")  # its files, by their layouts
UNPACK = "Unpack it, and give the files in it"
DOCUMENTS_REMEDY = "needs: pip install 'bertsmith[documents]'"


@dataclass(frozen=True)
class Source:
    """A file of text: its path, its kind by its ending, and its compression."""

    path: Path | Address
    kind: str  # its ending; .txt for every file that is read as plain text
    compression: str = ""  # .gz, .xz, .zst or none
    size: int = 0  # bytes on disk; 0 for standard input
    plain: bool = False  # read as text by request and not by its ending, so that it may turn out to be binary
    encoding: str = ""  # if it is known not to be UTF-8
    layout: str = ""  # if it is known: text that `clean` wrote has a sentence or a paragraph a line
    copy: Any = None  # of standard input: an open temporary file, which can be read again

    @property
    def name(self) -> str:
        return "standard input" if self.path == STANDARD_INPUT else str(self.path)

    @property
    def is_stream(self) -> bool:
        """Whether it can be read only once."""
        return self.path == STANDARD_INPUT and self.copy is None

    def buffered(self) -> "Source":
        """The same source, copied to a temporary file if it can be read only once."""
        if not self.is_stream:
            return self
        copy = tempfile.TemporaryFile()  # noqa: SIM115  (it is read from until the end)
        try:
            shutil.copyfileobj(sys.stdin.buffer, copy, READ_BYTES)
            size = copy.tell()
        except OSError as error:
            raise TextError(self.name, f"cannot be read ({error.strerror})") from None
        return replace(self, copy=copy, size=size)

    def blocks(self, progress: Callable[[int], object]) -> Iterator[bytes]:
        """The decompressed bytes in blocks; `progress` is called with the position in the file on disk."""
        blocks = self._blocks(progress)
        return to_utf8(blocks, self.encoding) if self.encoding else blocks

    def _blocks(self, progress: Callable[[int], object]) -> Iterator[bytes]:
        with self._opened() as raw:
            stream, first = self.decompressed(raw), True
            while block := stream.read(READ_BYTES):
                if self.plain and first and not looks_like_text(block):
                    archive = block[257:262] == b"ustar" or block.startswith((*ARCHIVE_BYTES, *MAGIC_BYTES))
                    kind, remedy = ("an archive", UNPACK) if archive else ("binary data", "Give it text")
                    raise TextError(self.name, f"is not text, but {kind}", remedy)
                first = False
                if not self.is_stream:
                    progress(raw.tell())
                yield block

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        if self.is_stream:
            yield sys.stdin.buffer
        elif self.copy is not None:
            self.copy.seek(0)
            yield self.copy
        else:
            with self.path.open("rb") as raw:
                yield raw

    @contextmanager
    def parquet(self) -> Iterator[Any]:
        """The file as pyarrow opens it: by its path, or at an address as a stream."""
        if isinstance(self.path, Path):
            yield self.path
        else:
            with self.path.open() as file:
                yield file

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """A stream of the decompressed bytes."""
        with self._opened() as raw:
            yield self.decompressed(raw)

    def decompressed(self, raw: Any) -> Any:
        """The decompressed stream of a raw one, bounded in size if it is compressed."""
        match self.compression:
            case ".gz":
                return BoundedStream(gzip.GzipFile(fileobj=raw), self.path)
            case ".xz":
                return BoundedStream(lzma.LZMAFile(raw), self.path)
            case ".zst":
                arrow = import_pyarrow(self.name)
                return BoundedStream(arrow.CompressedInputStream(arrow.PythonFile(raw, mode="r"), "zstd"), self.path)
        return raw


def find_sources(names: Sequence[str], *, plain: bool = False, skipped: Skipped | None = None) -> list[Source]:
    """The files for some names: files, folders (recursively), globs, and - for standard input.

    A file that is named, or matched by a glob, is read whatever its ending; in a folder only the known kinds are. With
    `plain` all are read, as plain text. Files that are left out are counted in `skipped`.
    """
    if not names:
        raise TextError("text", "no file is named", "Name files, folders or globs, or - for standard input")
    finder = _Finder(plain, Counter() if skipped is None else skipped)
    try:
        found = [source for name in names for source in finder.expand(str(name))]
    except OSError as error:
        raise TextError(error.filename, f"cannot be read ({error.strerror})") from None
    once: dict[Path | Address, Source] = {}
    for source in found:
        once.setdefault(source.path.resolve(), source)
    return list(once.values())


def import_pyarrow(location: str) -> Any:
    """The library that reads Parquet and Zstandard, needed only for such files."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise TextError(location, "needs pyarrow", "Install it with: pip install 'bertsmith[parquet]'") from None
    return pyarrow


class _Finder:
    """Finds text files, and counts the files that it skips."""

    def __init__(self, plain: bool, skipped: Skipped) -> None:
        self.plain, self.skipped = plain, skipped
        self.folders = Folders(skipped)

    def expand(self, name: str) -> list[Source]:
        """The files that one name stands for."""
        if name == "-":
            return [Source(STANDARD_INPUT, ".txt")]
        if not name:  # which a Path takes for this folder
            raise TextError("texts", "one name is empty", "Give files or folders; is a variable of the shell not set?")
        path = Address(name) if is_address(name) else Path(name)
        if "\0" in name or not path.exists():
            if "\0" in name or not glob.has_magic(name):
                raise TextError(name, "does not exist", _suggest_file(path))
            found = [source for match in _matches(path, name) for source in self.walk(match, named=True)]
            return self._checked(found, name, "matches no text file")
        if path.is_dir():
            return self._checked(self.walk(path), name, "is a folder without text files")
        return [_source(path, self.plain) or _named(path)]

    def _checked(self, found: list[Source], name: str, fact: str) -> list[Source]:
        if not found:
            raise TextError(name, fact, skipped_summary(self.skipped).capitalize() or KNOWN_SUFFIXES)
        return found

    def walk(self, path: Path | Address, *, named: bool = False) -> list[Source]:
        """A file, or all files in a folder and its folders, in the order of their names, except hidden ones."""
        if path.is_dir():
            self.folders.enter(path)
            children: list[Any] = [child for child in path.iterdir() if not child.name.startswith(".")]
            shown = sorted(children)
            inside = [child for child in shown if not self.folders.leave_out(child)]
            if any(child.name == CLEANING for child in inside):  # a folder of `clean`, with a page about its text
                inside = [child for child in inside if child.name != "clean.html"]
            return [source for child in inside for source in self.walk(child)]
        if not path.is_file():
            return []
        source = _source(path, self.plain) or (_named(path) if named else None)
        ending = _endings(path)[0]
        if source is None or source.plain:
            if ending in ARCHIVES or not _looks_like_text(path):
                self.skipped[ending, "an archive: unpack it" if ending in ARCHIVES else "not text"] += 1
                return []
            if source is None:
                self.skipped[ending, "not a text format: add --as text"] += 1
        elif (library := DOCUMENTS.get(source.kind)) and not find_spec(library):
            self.skipped[ending, DOCUMENTS_REMEDY] += 1
            return []
        return [source] if source else []


def _matches(path: Path | Address, name: str) -> list[Any]:
    """The files and folders that a pattern stands for."""
    if isinstance(path, Address):
        return path.glob()
    return [Path(match) for match in sorted(glob.glob(name, recursive=True))]  # noqa: PTH207  (Path: none absolute)


def _source(path: Path | Address, plain: bool) -> Source | None:
    """A file of a known kind; with `plain` any file, as plain text."""
    kind, compression = _endings(path)
    if plain and kind not in BINARY_KINDS:
        return _plain(path)
    if kind not in TEXT_SUFFIXES or (kind in BINARY_KINDS and compression):
        return None
    return Source(path, ALIASES.get(kind, kind), compression, path.stat().st_size, layout=_cleaned_layout(path))


def _named(path: Path | Address) -> Source:
    """A file of no known kind that is named itself: JSON, which holds much else than text in folders, or plain text."""
    return replace(_plain(path), kind=".json") if _endings(path)[0] == ".json" else _plain(path)


def _plain(path: Path | Address) -> Source:
    size, layout = path.stat().st_size, _cleaned_layout(path)
    return Source(path, ".txt", _endings(path)[1], size, plain=True, layout=layout)


def _cleaned_layout(path: Path | Address) -> str:
    """The layout of a file that `clean` wrote; else empty."""
    match = CLEANED_NAME.fullmatch(path.name)
    return match[1] if match and isinstance(path, Path) and path.with_name(CLEANING).exists() else ""


def _endings(path: Path | Address) -> tuple[str, str]:
    """A file's kind and compression by its endings, in lower case."""
    endings = [ending.lower() for ending in path.suffixes]
    compression = endings.pop() if endings and endings[-1] in COMPRESSIONS else ""
    return endings[-1] if endings else "", compression


def _looks_like_text(path: Path | Address) -> bool:
    """Whether a file begins as text; a file that cannot be opened is reported when it is read."""
    try:
        with path.open("rb") as file:
            return bool(_endings(path)[1]) or looks_like_text(file.read(1 << 13))
    except OSError:
        return True


def _suggest_file(path: Path | Address) -> str:
    """The remedy for a misspelt name, if there is a file with nearly that name in the folder."""
    if isinstance(path, Address):  # whose folder may be endless
        return ""
    siblings = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
    remedy = suggest(path.name, siblings)
    return remedy if remedy.startswith("Did") else ""
