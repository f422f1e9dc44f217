"""The cache of shards that are at an address: training reads at random, by memory map, from copies on this machine."""

import fcntl
import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bertsmith import files
from bertsmith.data.address import Address, is_address
from bertsmith.data.shards.shards import SOURCE, manifest_files
from bertsmith.errors import FolderError, RunError

VARIABLE = "BERTSMITH_CACHE"
SPLITS = ("train", "valid")
PREPARE = "Prepare the text first, with --out and this address"


def cache_folder() -> Path:
    """The folder that BERTSMITH_CACHE names, or ~/.cache/bertsmith."""
    return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "bertsmith").absolute()


def local_copy(folder: Path | str) -> Path:
    """A prepared folder on this machine: itself, or where it is an address, its copy in the cache.

    A copy is of one content: other shards at the same address get a copy of their own.
    """
    return _copy(str(Address(folder))) if is_address(folder) else Path(folder)


@cache
def _copy(name: str) -> Path:
    """The copy of what an address held when this process first asked."""
    address = Address(name)
    manifests = {split: _manifest(address / split / "MANIFEST.json") for split in SPLITS}
    key = hashlib.sha256(b"\0".join([str(address).encode(), *manifests.values()])).hexdigest()[:16]
    copy = cache_folder() / "shards" / key
    with _locked(copy):
        for split, manifest in manifests.items():
            _fetch_split(address / split, copy / split, manifest)
        _fetch_others(address, copy)
    return copy


def is_prepared(folder: Path | str) -> bool:
    """Whether a folder, or an address, holds prepared text."""
    return ((Address(folder) if is_address(folder) else Path(folder)) / "train").is_dir()


def _manifest(address: Address) -> bytes:
    if not address.exists():
        raise FolderError(address, "is missing", PREPARE)
    return address.read_bytes()


def _fetch_split(address: Address, copy: Path, manifest: bytes) -> None:
    """The files of one split that are not there in full, and then its manifest, which says that all are."""
    with files.explain_os_errors(copy):
        copy.mkdir(exist_ok=True)
    unfinished = _own(copy / "MANIFEST.json")
    files.write(unfinished, manifest)
    for name, digest in manifest_files(unfinished).items():
        _download(address / name, copy / name, digest)
    _put(unfinished, copy / "MANIFEST.json")


def _fetch_others(address: Address, copy: Path) -> None:
    """The tokenizer, whose fingerprint is in the shards, and the summary."""
    with files.explain_os_errors(copy):
        (copy / "tokenizer").mkdir(exist_ok=True)
    files.write(copy / SOURCE, str(address).encode())
    others = {f"tokenizer/{source.name}": source for source in (address / "tokenizer").iterdir()}
    for name, source in (others | {"summary.json": address / "summary.json"}).items():
        if not (copy / name).exists():
            files.write(own := _own(copy / name), source.read_bytes())
            _put(own, copy / name)


def _download(source: Address, path: Path, expected: files.Digest) -> None:
    """Copy a file, and compare it with the manifest; one that is there already is kept."""
    if path.exists() and path.stat().st_size == expected.size:
        return
    partial = _own(path)
    with files.Writer(partial) as writer:
        for piece in source.pieces():
            writer.write(piece)
        found = writer.close()
    if found != expected:
        partial.unlink()
        fact = "is not what its manifest lists: it was damaged there, or on the way"
        raise RunError(source, fact, "Run the same command again, or prepare the text again")
    _put(partial, path)


def _own(path: Path) -> Path:
    """The name under which this machine writes a file; after a kill the next start writes over it.

    Some shared disks lock a folder for each machine alone, so that two machines may fetch the same file.
    """
    return path.with_name(f"{path.name}.{socket.gethostname()}.writing")


def _put(own: Path, path: Path) -> None:
    """Give a complete file its name; one that another machine has put there meanwhile has the same content."""
    with files.explain_os_errors(path):
        own.replace(path)
    files.sync_folder(path.parent)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make a folder, and wait for other processes that fill it."""
    with files.explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
