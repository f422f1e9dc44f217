"""Shards: token ids on disk, with the ends of sentences and documents; read by memory map.

A folder holds `index.json` (the counts), and for each shard `000000.tokens` (ids, little-endian), `000000.sentences`
(where each sentence ends, in tokens of the shard) and `000000.documents` (where each document ends, in sentences of the
shard). `MANIFEST.json` has the size and SHA-256 of each file.
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
TOKEN_DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
ENDS_DTYPE = np.dtype("<i8")
SHARD_PARTS = ("tokens", "sentences", "documents")
PREPARE_AGAIN = "Delete the folder and prepare the text again"
FETCH_AGAIN = "Delete this file and run the same command: it is fetched again from where it was prepared"
SOURCE = "ADDRESS"  # of a copy in the cache: the file that says where it is from


def token_dtype(vocabulary: int) -> str:
    """The narrowest integer type that holds every token of a vocabulary."""
    return "uint16" if vocabulary <= 1 << 16 else "uint32"


class Shards:
    """The prepared tokens of one folder. A position is a number from 0 to `tokens`, across all shards."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise FolderError(self.folder, "no such folder", "Make it with: bertsmith prepare")
        self.manifest = manifest_files(self.folder / "MANIFEST.json")
        self.fingerprint = hashlib.sha256((self.folder / "MANIFEST.json").read_bytes()).hexdigest()
        self.check_file("index.json", files.digest)
        index = self._index()
        self.dtype = TOKEN_DTYPES[index["dtype"]]
        self.vocabulary: int = index["vocabulary"]
        self.tokenizer: str = index["tokenizer"]
        self.tokens: int = index["tokens"]
        self.sentences: int = index["sentences"]
        self.documents: int = index["documents"]
        self.bytes: int = index["bytes"]
        self.words: int = index["words"]
        self._check_sizes(index["shards"])

        self._names = names = [shard["name"] for shard in index["shards"]]
        self._tokens = [self._memory_map(f"{name}.tokens") for name in names]
        self._shard_starts = np.cumsum([0, *(len(view) // self.dtype.itemsize for view in self._tokens)])
        self.sentence_ends = self._read_ends(names, "sentences", [shard["tokens"] for shard in index["shards"]])
        self.document_ends = self._read_ends(names, "documents", [shard["sentences"] for shard in index["shards"]])

    def gather(self, starts: Int64[ndarray, "N"], lengths: Int64[ndarray, "N"]) -> Int32[ndarray, "T"]:
        """The tokens of many ranges, laid end to end. A range lies inside one shard."""
        shard = np.searchsorted(self._shard_starts, starts, side="right") - 1
        first = (starts - self._shard_starts[shard]) * self.dtype.itemsize
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
        """The error for a token without an embedding, which on a GPU would end the process without its location."""
        first = int(np.flatnonzero((found < 0) | (found >= self.vocabulary))[0])
        which = int(np.repeat(shard, lengths)[first])
        return self._vocabulary_error(self._names[which], int(found[first : first + 1].view(np.uint32)[0]))

    def _vocabulary_error(self, name: str, token: int) -> FolderError:
        fact = f"is damaged: it holds token {token:,}, beyond its vocabulary of {self.vocabulary:,}"
        return FolderError(self.folder / f"{name}.tokens", fact, PREPARE_AGAIN)

    def frequencies(self) -> Int64[ndarray, "V"]:
        """The number of occurrences of each token of the vocabulary."""
        counts = np.zeros(self.vocabulary, np.int64)
        piece = 1 << 20
        for name, view in zip(self._names, self._tokens, strict=True):
            shard = np.frombuffer(view, self.dtype)
            for start in range(0, len(shard), piece):
                found = np.bincount(shard[start : start + piece], minlength=self.vocabulary)
                if len(found) > self.vocabulary:
                    raise self._vocabulary_error(name, len(found) - 1)
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
            list(pool.map(lambda name: self.check_file(name, files.digest), sorted(self.manifest)))

    def __reduce__(self) -> tuple[type["Shards"], tuple[Path]]:
        """Pickled as its folder: a worker process opens it again, and no tokens are copied."""
        return Shards, (self.folder,)

    def _index(self) -> dict[str, Any]:
        path = self.folder / "index.json"
        index = files.read_json(path)
        if index.get("format") != FORMAT or index.get("version") != VERSION:
            found = f"{index.get('format')!r} version {index.get('version')!r}"
            raise FolderError(path, f"is {found}, not {FORMAT!r} version {VERSION}", PREPARE_AGAIN)
        counts = ("vocabulary", "tokens", "sentences", "documents", "bytes", "words")
        valid = (
            index.get("dtype") in TOKEN_DTYPES
            and isinstance(index.get("tokenizer"), str)
            and all(_is_count(index.get(key)) for key in counts)
            and isinstance(index.get("shards"), list)
            and all(_is_valid(shard) for shard in index["shards"])
            and all(index[part] == sum(shard[part] for shard in index["shards"]) for part in SHARD_PARTS)
        )
        if not valid:
            raise FolderError(path, "does not describe its shards", PREPARE_AGAIN)
        return index

    def _check_sizes(self, shards: list[dict[str, Any]]) -> None:
        widths = (self.dtype.itemsize, ENDS_DTYPE.itemsize, ENDS_DTYPE.itemsize)
        expected = {
            f"{shard['name']}.{part}": shard[part] * width
            for shard in shards
            for part, width in zip(SHARD_PARTS, widths, strict=True)
        }
        for name, size in expected.items():
            if name not in self.manifest:
                raise FolderError(self.folder / "MANIFEST.json", f"does not list {name}", PREPARE_AGAIN)
            if self.manifest[name].size != size:
                fact = f"gives {name} {self.manifest[name].size:,} bytes, index.json {size:,}"
                raise FolderError(self.folder / "MANIFEST.json", fact, PREPARE_AGAIN)
            self.check_file(name, lambda path: files.Digest(path.stat().st_size, ""))
        if unknown := sorted(self.manifest.keys() - expected.keys() - {"index.json"}):
            raise FolderError(self.folder / "index.json", f"does not list {unknown[0]}", PREPARE_AGAIN)

    def check_file(self, name: str, digest: Any) -> None:
        """Compare a file with the manifest: by size alone, or by size and hash."""
        path, expected = self.folder / name, self.manifest[name]
        try:
            found: files.Digest = digest(path)
        except FileNotFoundError:
            raise FolderError(path, "is missing", PREPARE_AGAIN) from None
        except OSError as error:
            raise FolderError(path, f"cannot be read ({error.strerror})", PREPARE_AGAIN) from None
        if found.size != expected.size:
            raise FolderError(path, f"has {found.size:,} bytes instead of {expected.size:,}", PREPARE_AGAIN)
        if found.sha256 and found.sha256 != expected.sha256:
            remedy = FETCH_AGAIN if (self.folder.parent / SOURCE).exists() else PREPARE_AGAIN
            raise FolderError(path, "is damaged: its SHA-256 is not the one in the manifest", remedy)

    def _memory_map(self, name: str) -> memoryview:
        with (self.folder / name).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def _read_ends(self, names: list[str], part: str, spans: list[int]) -> Int64[ndarray, "N"]:
        """The ends in all shards, counted from the beginning of the first shard."""
        before, ends = 0, [np.zeros(0, ENDS_DTYPE)]
        for name, span in zip(names, spans, strict=True):
            found = np.fromfile(self.folder / f"{name}.{part}", ENDS_DTYPE)
            if found[-1] != span or found[0] <= 0 or (found[1:] <= found[:-1]).any():  # differences may overflow
                raise FolderError(
                    self.folder / f"{name}.{part}", "is damaged: its ends are not in order", PREPARE_AGAIN
                )
            ends.append(found + before)
            before += span
        return np.concatenate(ends)


def manifest_files(path: Path) -> dict[str, files.Digest]:
    """The files that a manifest lists, with their digests."""
    if not path.exists():  # as where preparing was refused, or broke off
        raise FolderError(path, "is missing", PREPARE_AGAIN)
    entries = files.read_json(path).get("files")
    if not isinstance(entries, dict) or "index.json" not in entries:
        raise FolderError(path, "lists no files", PREPARE_AGAIN)
    for name, entry in entries.items():
        if not re.fullmatch(r"index\.json|\d{6}\.(tokens|sentences|documents)", name):
            raise FolderError(path, f"lists {name!r}, which is no file of shards", PREPARE_AGAIN)
        valid = isinstance(entry, dict) and _is_count(entry.get("size")) and isinstance(entry.get("sha256"), str)
        if not valid:
            raise FolderError(path, f"gives no size and SHA-256 of {name}", PREPARE_AGAIN)
    return {name: files.Digest(entry["size"], entry["sha256"]) for name, entry in entries.items()}


def _is_valid(shard: Any) -> bool:
    """Whether an entry of the index has a shard's name and its counts, none of them zero."""
    return (
        isinstance(shard, dict)
        and isinstance(shard.get("name"), str)
        and re.fullmatch(r"\d{6}", shard["name"]) is not None
        and all(_is_count(shard.get(part)) and shard[part] > 0 for part in SHARD_PARTS)
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63
