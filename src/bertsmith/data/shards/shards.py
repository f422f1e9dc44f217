"""Text as numbers on disk: long runs of token ids, and where sentences and documents end; read by memory map.

A folder holds `index.json` (what there is), and for each shard `000000.tokens` (ids, little-endian),
`000000.sentences` (where each sentence ends, in tokens of the shard) and `000000.documents` (where each
document ends, in sentences of the shard). `MANIFEST.json` knows the size and SHA-256 of all of them.
"""

import hashlib
import mmap
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64
from numpy import ndarray

from bertsmith import files
from bertsmith.errors import FolderError

FORMAT, VERSION = "bertsmith-shards", 1
WIDTHS: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
ENDS = np.dtype("<i8")
PARTS = ("tokens", "sentences", "documents")
AGAIN = "Delete the folder and prepare the text again"


def token_dtype(vocabulary: int) -> str:
    """The narrowest number that holds every token of a vocabulary."""
    return "uint16" if vocabulary <= 1 << 16 else "uint32"


class Shards:
    """The prepared tokens of one folder. A place is a number from 0 to `tokens`, across all shards."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise FolderError(self.folder, "no such folder", "Make it with: bertsmith prepare")
        self.manifest = _manifest(self.folder / "MANIFEST.json")
        self.fingerprint = hashlib.sha256((self.folder / "MANIFEST.json").read_bytes()).hexdigest()
        self.compare("index.json", files.digest)
        index = self._index()
        self.dtype = WIDTHS[index["dtype"]]
        self.vocabulary: int = index["vocabulary"]
        self.tokenizer: str = index["tokenizer"]
        self.tokens: int = index["tokens"]
        self.sentences: int = index["sentences"]
        self.documents: int = index["documents"]
        self.bytes: int = index["bytes"]
        self.words: int = index["words"]
        self._check_sizes(index["shards"])

        self._names = names = [shard["name"] for shard in index["shards"]]
        self._tokens = [self._mapped(f"{name}.tokens") for name in names]
        self._firsts = np.cumsum([0, *(len(view) // self.dtype.itemsize for view in self._tokens)])
        self.sentence_ends = self._ends(names, "sentences", [shard["tokens"] for shard in index["shards"]])
        self.document_ends = self._ends(names, "documents", [shard["sentences"] for shard in index["shards"]])

    def gather(self, starts: Int64[ndarray, "N"], lengths: Int64[ndarray, "N"]) -> Int32[ndarray, "T"]:
        """The tokens of many ranges, laid end to end. A range lies inside one shard."""
        shard = np.searchsorted(self._firsts, starts, side="right") - 1
        first = (starts - self._firsts[shard]) * self.dtype.itemsize
        last = first + lengths * self.dtype.itemsize
        # Joining views copies each byte once and needs no index per token: twice as fast as numpy's take.
        views = self._tokens
        ranges = zip(shard.tolist(), first.tolist(), last.tolist(), strict=True)
        joined = b"".join([views[which][start:stop] for which, start, stop in ranges])
        if len(joined) != int(lengths.sum()) * self.dtype.itemsize:
            raise IndexError("a range of tokens lies outside its shard")
        found = np.array(np.frombuffer(joined, self.dtype), np.int32)
        if len(found) and not 0 <= int(found.min()) <= int(found.max()) < self.vocabulary:
            raise self._unknown_token(shard, lengths, found)
        return found

    def _unknown_token(
        self, shard: Int64[ndarray, "N"], lengths: Int64[ndarray, "N"], found: Int32[ndarray, "T"]
    ) -> FolderError:
        """A token that no embedding has: on a GPU it would end the process without a word of where it came from."""
        first = int(np.flatnonzero((found < 0) | (found >= self.vocabulary))[0])
        which = int(np.repeat(shard, lengths)[first])
        return self._beyond(self._names[which], int(found[first : first + 1].view(np.uint32)[0]))

    def _beyond(self, name: str, token: int) -> FolderError:
        fact = f"is damaged: it holds token {token:,}, beyond its vocabulary of {self.vocabulary:,}"
        return FolderError(self.folder / f"{name}.tokens", fact, AGAIN)

    def frequencies(self) -> Int64[ndarray, "V"]:
        """How often each token of the vocabulary occurs."""
        counts = np.zeros(self.vocabulary, np.int64)
        piece = 1 << 20
        for name, view in zip(self._names, self._tokens, strict=True):
            shard = np.frombuffer(view, self.dtype)
            for start in range(0, len(shard), piece):
                found = np.bincount(shard[start : start + piece], minlength=self.vocabulary)
                if len(found) > self.vocabulary:
                    raise self._beyond(name, len(found) - 1)
                counts += found
        return counts

    def check_tokenizer(self, tokenizer: str) -> None:
        """Refuse text that was prepared with another tokenizer."""
        if self.tokenizer != tokenizer:
            fact = f"was prepared with another tokenizer ({self.tokenizer[:12]}, not {tokenizer[:12]})"
            raise FolderError(self.folder, fact, "Use the tokenizer beside it, or prepare the text again")

    def verify(self) -> None:
        """Read everything once and compare each file's SHA-256 with the manifest."""
        with ThreadPoolExecutor() as pool:  # hashing runs outside the interpreter's lock
            list(pool.map(lambda name: self.compare(name, files.digest), sorted(self.manifest)))

    def __reduce__(self) -> tuple[type["Shards"], tuple[Path]]:
        """A worker process opens the folder again; the tokens do not travel."""
        return Shards, (self.folder,)

    def _index(self) -> dict[str, Any]:
        path = self.folder / "index.json"
        index = files.read_json(path)
        if index.get("format") != FORMAT or index.get("version") != VERSION:
            found = f"{index.get('format')!r} version {index.get('version')!r}"
            raise FolderError(path, f"is {found}, not {FORMAT!r} version {VERSION}", AGAIN)
        counts = ("vocabulary", "tokens", "sentences", "documents", "bytes", "words")
        sound = (
            index.get("dtype") in WIDTHS
            and isinstance(index.get("tokenizer"), str)
            and all(_count(index.get(key)) for key in counts)
            and isinstance(index.get("shards"), list)
            and all(_sound(shard) for shard in index["shards"])
            and all(index[part] == sum(shard[part] for shard in index["shards"]) for part in PARTS)
        )
        if not sound:
            raise FolderError(path, "does not describe its shards", AGAIN)
        return index

    def _check_sizes(self, shards: list[dict[str, Any]]) -> None:
        widths = (self.dtype.itemsize, ENDS.itemsize, ENDS.itemsize)
        expected = {
            f"{shard['name']}.{part}": shard[part] * width
            for shard in shards
            for part, width in zip(PARTS, widths, strict=True)
        }
        for name, size in expected.items():
            if name not in self.manifest:
                raise FolderError(self.folder / "MANIFEST.json", f"does not know {name}", AGAIN)
            if self.manifest[name].size != size:
                fact = f"gives {name} {self.manifest[name].size:,} bytes, index.json {size:,}"
                raise FolderError(self.folder / "MANIFEST.json", fact, AGAIN)
            self.compare(name, lambda path: files.Digest(path.stat().st_size, ""))
        if unknown := sorted(self.manifest.keys() - expected.keys() - {"index.json"}):
            raise FolderError(self.folder / "index.json", f"does not know {unknown[0]}", AGAIN)

    def compare(self, name: str, look: Any) -> None:
        """Hold a file against the manifest: by size alone, or by size and hash."""
        path, expected = self.folder / name, self.manifest[name]
        try:
            found: files.Digest = look(path)
        except FileNotFoundError:
            raise FolderError(path, "is missing", AGAIN) from None
        except OSError as error:
            raise FolderError(path, f"cannot be read ({error.strerror})", AGAIN) from None
        if found.size != expected.size:
            raise FolderError(path, f"has {found.size:,} bytes instead of {expected.size:,}", AGAIN)
        if found.sha256 and found.sha256 != expected.sha256:
            raise FolderError(path, "is damaged: its SHA-256 is not the one in the manifest", AGAIN)

    def _mapped(self, name: str) -> memoryview:
        with (self.folder / name).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def _ends(self, names: list[str], part: str, spans: list[int]) -> Int64[ndarray, "N"]:
        """The ends of all shards one after the other, counted from the beginning of the first."""
        before, ends = 0, [np.zeros(0, ENDS)]
        for name, span in zip(names, spans, strict=True):
            found = np.fromfile(self.folder / f"{name}.{part}", ENDS)
            if found[-1] != span or found[0] <= 0 or (found[1:] <= found[:-1]).any():  # differences may overflow
                raise FolderError(self.folder / f"{name}.{part}", "is damaged: its ends are not in order", AGAIN)
            ends.append(found + before)
            before += span
        return np.concatenate(ends)


def _manifest(path: Path) -> dict[str, files.Digest]:
    entries = files.read_json(path).get("files")
    if not isinstance(entries, dict) or "index.json" not in entries:
        raise FolderError(path, "lists no files", AGAIN)
    for name, entry in entries.items():
        if not re.fullmatch(r"index\.json|\d{6}\.(tokens|sentences|documents)", name):
            raise FolderError(path, f"lists {name!r}, which is no file of shards", AGAIN)
        sound = isinstance(entry, dict) and _count(entry.get("size")) and isinstance(entry.get("sha256"), str)
        if not sound:
            raise FolderError(path, f"gives no size and SHA-256 of {name}", AGAIN)
    return {name: files.Digest(entry["size"], entry["sha256"]) for name, entry in entries.items()}


def _sound(shard: Any) -> bool:
    """Whether an entry of the index names a shard and says how much is in it (never nothing)."""
    return (
        isinstance(shard, dict)
        and isinstance(shard.get("name"), str)
        and re.fullmatch(r"\d{6}", shard["name"]) is not None
        and all(_count(shard.get(part)) and shard[part] > 0 for part in PARTS)
    )


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63
