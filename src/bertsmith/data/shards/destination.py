"""The destination of prepared shards: a folder of this machine, or an address to which finished files go at once.

At an address the disk of this machine holds the open shards only. The journal goes there, too, after the shards that it
lists, so that an interrupted preparation is resumed from any machine; manifest and summary go last.
"""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.data.address import Address, is_address
from bertsmith.data.shards.cache import cache_folder
from bertsmith.data.shards.shards import PREPARE_AGAIN, Shards, manifest_files
from bertsmith.data.shards.verification import verify
from bertsmith.errors import BertsmithError, FolderError, RunError

RESTORED = ("summary.json", "unfinished")  # that a run begins with
ATTEMPTS = 3  # at a file that arrives damaged


class Destination:
    """A folder of this machine, in which files are where they belong as soon as they are written."""

    is_here = True  # files are read and locked where they are

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def send(self, path: Path, digest: files.Digest) -> None:
        """Put a finished file into its place."""

    def send_shard(self, path: Path, digest: files.Digest) -> None:
        """Put a finished part of a shard into its place; it is not read again."""

    def restore(self) -> None:
        """Begin with the journal that an interrupted run has left."""

    def size(self, path: Path) -> int | None:
        """The size of a file; None if there is none."""
        return path.stat().st_size if path.is_file() else None

    def names(self) -> list[str]:
        """The files and folders that are there."""
        return [path.name for path in self.folder.iterdir()]

    def verify(self, splits: tuple[str, ...]) -> None:
        """Compare all files of finished shards with their manifests."""
        for name in splits:
            verify(Shards(self.folder / name)).wait()

    def delete(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def located(self) -> Iterator[None]:
        """Errors name the destination."""
        yield


class RemoteDestination(Destination):
    """An address. Files are written in a folder of the cache first, and compared by their hash when they are there."""

    is_here = False

    def __init__(self, address: Address) -> None:
        name = hashlib.sha256(str(address).encode()).hexdigest()[:16]
        super().__init__(cache_folder() / "preparing" / name)
        self.address = address
        self._sizes: dict[str, dict[str, int]] = {}  # of the files in each folder there

    def send(self, path: Path, digest: files.Digest) -> None:
        target = self._address(path)
        (target_folder := self._address(path.parent)).make_folder()
        for _ in range(ATTEMPTS):
            target.upload(path)
            if hash_pieces(target.pieces()) == digest:
                self._sizes.pop(str(target_folder), None)
                return
        raise RunError(target, f"was damaged {ATTEMPTS} times on the way", "Run the same command again")

    def send_shard(self, path: Path, digest: files.Digest) -> None:
        self.send(path, digest)
        path.unlink()

    def restore(self) -> None:
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in RESTORED:
            self._fetch(self.address / name, self.folder / name)

    def size(self, path: Path) -> int | None:
        folder = self._address(path.parent)
        if str(folder) not in self._sizes:
            self._sizes[str(folder)] = (
                {child.name: child.stat().st_size for child in folder.iterdir()} if folder.exists() else {}
            )
        return self._sizes[str(folder)].get(path.name)

    def names(self) -> list[str]:
        return [child.name for child in self.address.iterdir()] if self.address.exists() else []

    def verify(self, splits: tuple[str, ...]) -> None:
        """Compare sizes; hashes are compared when the files are fetched for training."""
        for name in splits:
            manifest = self.folder / name / "MANIFEST.json"
            manifest.parent.mkdir()
            self._fetch(self.address / name / "MANIFEST.json", manifest)
            for file, digest in manifest_files(manifest).items():
                if self.size(manifest.with_name(file)) != digest.size:
                    raise FolderError(manifest.with_name(file), "is missing or cut off", PREPARE_AGAIN)

    def delete(self, folder: Path) -> None:
        self._address(folder).delete()
        super().delete(self.folder)

    @contextmanager
    def located(self) -> Iterator[None]:
        try:
            yield
        except BertsmithError as error:
            location, *rest = error.parts
            raise type(error)(location.replace(str(self.folder), str(self.address)), *rest) from error.__cause__

    def _address(self, path: Path) -> Address:
        parts = path.relative_to(self.folder).parts
        return self.address / "/".join(parts) if parts else self.address

    def _fetch(self, source: Address, path: Path) -> None:
        """Copy a file or a folder, if there is one."""
        if source.is_dir():
            path.mkdir()
            for child in source.iterdir():
                self._fetch(child, path / child.name)
        elif source.exists():
            files.write(path, source.read_bytes())


def destination(out: Any) -> Destination:
    """Where prepared shards go, by the name that the user gives."""
    return RemoteDestination(Address(out)) if is_address(out) else Destination(Path(out))


def hash_pieces(pieces: Iterator[bytes]) -> files.Digest:
    """The size and SHA-256 of some bytes."""
    size, sha256 = 0, hashlib.sha256()
    for piece in pieces:
        size += len(piece)
        sha256.update(piece)
    return files.Digest(size, sha256.hexdigest())
