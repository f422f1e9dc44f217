"""Sources: the files that a corpus is made of, found by name and unpacked as they are read."""

import glob
import gzip
import lzma
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.errors import TextError, nearest

KINDS = (".txt", ".jsonl", ".parquet")
PACKINGS = (".gz", ".xz", ".zst")
KNOWN = "Known: .txt .jsonl .parquet, and .txt or .jsonl followed by .gz .xz .zst"
STANDARD_INPUT = Path("/dev/stdin")
BLOCK = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class Source:
    """One file of text: where it is, what its ending says it holds, and how it is packed."""

    path: Path
    kind: str  # .txt, .jsonl or .parquet
    packing: str = ""  # .gz, .xz, .zst or none
    size: int = 0  # bytes on disk; nothing is known of standard input
    copy: Any = None  # of standard input: an open file without a name, which can be read again

    @property
    def name(self) -> str:
        return "standard input" if self.path == STANDARD_INPUT else str(self.path)

    @property
    def passing(self) -> bool:
        """Whether it can be read only once."""
        return self.path == STANDARD_INPUT and self.copy is None

    def kept(self) -> "Source":
        """The same source, copied to the disk if it could be read only once. The copy goes with the process."""
        if not self.passing:
            return self
        copy = tempfile.TemporaryFile()  # noqa: SIM115  (it is read from until the end)
        try:
            shutil.copyfileobj(sys.stdin.buffer, copy, BLOCK)
            size = copy.tell()
        except OSError as error:
            raise TextError(self.name, f"cannot be read ({error.strerror})") from None
        return replace(self, copy=copy, size=size)

    def blocks(self, reached: Callable[[int], object]) -> Iterator[bytes]:
        """The unpacked bytes, piece by piece; `reached` is told how far into the packed file that is."""
        with self._opened() as raw:
            stream = self.unpacked(raw)
            while block := stream.read(BLOCK):
                if not self.passing:
                    reached(raw.tell())
                yield block

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        if self.passing:
            yield sys.stdin.buffer
        elif self.copy is not None:
            self.copy.seek(0)
            yield self.copy
        else:
            with self.path.open("rb") as raw:
                yield raw

    def unpacked(self, raw: Any) -> Any:
        """A stream of the contents, from one of the file's bytes."""
        match self.packing:
            case ".gz":
                return gzip.GzipFile(fileobj=raw)
            case ".xz":
                return lzma.LZMAFile(raw)
            case ".zst":
                arrow = pyarrow(self.name)
                return arrow.CompressedInputStream(arrow.PythonFile(raw, mode="r"), "zstd")
        return raw


def find(names: Sequence[str]) -> list[Source]:
    """The files behind names: files, folders with all that is in them, globs, and - for standard input."""
    if not names:
        raise TextError("text", "no file is named", "Name files, folders or globs, or - for standard input")
    try:
        found = [source for name in names for source in _behind(str(name))]
    except OSError as error:
        raise TextError(error.filename, f"cannot be read ({error.strerror})") from None
    once: dict[Path, Source] = {}
    for source in found:
        once.setdefault(source.path.resolve(), source)
    return list(once.values())


def pyarrow(place: str) -> Any:
    """The library that reads Parquet and Zstandard, wanted only where there is such a file."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise TextError(place, "needs pyarrow", "Install it with: pip install 'bertsmith[parquet]'") from None
    return pyarrow


def _behind(name: str) -> list[Source]:
    if name == "-":
        return [Source(STANDARD_INPUT, ".txt")]
    path = Path(name)
    if "\0" in name or not path.exists():
        if "\0" in name or not glob.has_magic(name):
            raise TextError(name, "does not exist", _neighbour(path))
        matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207  (a Path takes no absolute pattern)
        found = [source for match in matches for source in _within(Path(match))]
        if not found:
            raise TextError(name, "matches no text file", KNOWN)
        return found
    if path.is_dir():
        found = _within(path)
        if not found:
            raise TextError(name, "is a folder without text files", KNOWN)
        return found
    source = _source(path)
    if source is None:
        raise TextError(name, f"has the unknown ending '{path.suffix}'", KNOWN)
    return [source]


def _within(path: Path) -> list[Source]:
    """A file, or all files in a folder and its folders, in the order of their names, but for hidden ones."""
    if path.is_dir():
        shown = sorted(child for child in path.iterdir() if not child.name.startswith("."))
        inside = (child for child in shown if not (child.is_symlink() and child.is_dir()))  # no circles
        return [source for child in inside for source in _within(child)]
    source = _source(path)
    return [source] if source else []


def _source(path: Path) -> Source | None:
    endings = [ending.lower() for ending in path.suffixes]
    packing = endings.pop() if endings and endings[-1] in PACKINGS else ""
    kind = endings[-1] if endings else ""
    if kind not in KINDS or (kind == ".parquet" and packing) or not path.is_file():
        return None
    return Source(path, kind, packing, path.stat().st_size)


def _neighbour(path: Path) -> str:
    """The remedy for a misspelt name, where a file with nearly that name stands beside it."""
    beside = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
    remedy = nearest(path.name, beside)
    return remedy if remedy.startswith("Did") else ""
