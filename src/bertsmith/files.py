"""Durable files: hashed while written, synced to the disk, and put in place by an atomic rename.

The only module that writes durably. Every call that can fail goes through `os.open`, `os.write`, `os.fsync` and
`os.replace`, so that a test can make each of them fail; an error of the disk becomes one line for the user.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from bertsmith.errors import FolderError, RunError

Bytes = bytes | bytearray | memoryview
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):(/{1,3})(?=[^/])", re.IGNORECASE)  # a Path makes one slash of several
HASHED_BYTES = 1 << 20  # bytes that are hashed and written while they are in the processor's cache


@dataclass(frozen=True)
class Digest:
    """The size and SHA-256 of a file."""

    size: int
    sha256: str


class Writer:
    """A file that is written piece by piece; `close` syncs it to the disk and returns its digest."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self._hash = path, 0, hashlib.sha256()
        with explain_os_errors(path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def write(self, data: Bytes) -> None:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), HASHED_BYTES):
            piece = view[start : start + HASHED_BYTES]
            self._hash.update(piece)
            while piece:  # a write may be partial
                with explain_os_errors(self.path, len(view) - start):
                    taken = os.write(self._file, piece)
                self.size, piece = self.size + taken, piece[taken:]

    def close(self) -> Digest:
        with explain_os_errors(self.path):
            os.fsync(self._file)
        self._release()
        return Digest(self.size, self._hash.hexdigest())

    def _release(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()


def write(path: Path, data: Bytes) -> Digest:
    """Write the whole file and sync it. Only a rename or a manifest makes it count."""
    with Writer(path) as writer:
        writer.write(data)
        return writer.close()


def write_json(path: Path, value: Any) -> Digest:
    """Write a JSON file atomically."""
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    return write_atomic(path, text.encode())


def write_atomic(path: Path, data: Bytes) -> Digest:
    """Write a file atomically: readers see the old file or the new one, never half of it."""
    temporary = path.with_name(path.name + ".writing")
    digest = write(temporary, data)
    with explain_os_errors(path, digest.size):
        temporary.replace(path)
    sync_folder(path.parent)
    return digest


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds one object."""
    value = _json(path)
    if not isinstance(value, dict):
        raise FolderError(path, "does not hold a JSON object")
    return value


def read_json_list(path: Path) -> list[Any]:
    """A JSON file that holds a list."""
    value = _json(path)
    if not isinstance(value, list):
        raise FolderError(path, "does not hold a JSON list")
    return value


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FolderError(path, "is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise FolderError(path, f"cannot be read as JSON ({error})") from None


def check_folder(out: Path) -> None:
    """Refuse a folder that cannot be made or written, before any work is done. Writes nothing."""
    _check_is_here(out)
    with explain_os_errors(out):  # a name may be too long
        is_file = out.exists() and not out.is_dir()
    if is_file:
        raise FolderError(out, "is a file, not a folder", "Choose another name")
    _check_parents(out, out if out.is_dir() else out.parent)


def check_file(out: Path) -> None:
    """Refuse a file that cannot be written, before any work is done; its parent folders are made."""
    _check_is_here(out)
    if out.is_dir():
        raise FolderError(out, "is a folder, not a file", "Name a file in it")
    _check_parents(out, out.parent)
    if out.exists() and not os.access(out, os.W_OK):
        raise RunError(out, "may not be written", "Choose a file that is yours")
    with explain_os_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)


def _check_is_here(out: Path) -> None:
    """Refuse an address: what is written by names of this disk would land in a folder `s3:` here."""
    if ADDRESS.match(str(out)) and not out.exists():
        fact = "is an address, and this is written to this machine's disk"
        raise RunError(ADDRESS.sub(r"\1://", str(out)), fact, "Name a folder or a file here")


def check_not_foreign(out: Path, *, markers: Collection[str], outputs: Collection[str] = ()) -> None:
    """Refuse a folder with files that bertsmith has not written, such as a model or texts. Writes nothing.

    A folder of ours has one of the `markers`. One without them may hold folders, but none of our `outputs`.
    """
    check_folder(out)
    if not out.is_dir() or any((out / name).exists() for name in markers):
        return
    visible = (path for path in sorted(out.iterdir()) if not path.name.startswith("."))
    foreign = [path.name for path in visible if path.is_file() or path.name in outputs]
    if foreign:
        shown = ", ".join(foreign[:2]) + (", ..." if len(foreign) > 2 else "")
        raise FolderError(out, f"holds files that bertsmith has not written there ({shown})", "Choose a new folder")


def _check_parents(out: Path, folder: Path) -> None:
    """Refuse a folder whose nearest existing parent is a file, or may not be written."""
    with explain_os_errors(out):
        paths = (folder.absolute(), *folder.absolute().parents)
        existing = next(path for path in paths if path.exists() or path.is_symlink())
    if existing.is_symlink() and not existing.exists():
        raise FolderError(out, f"{existing} is a link that leads nowhere", "Mount its disk, or choose another name")
    if not existing.is_dir():
        raise FolderError(out, f"{existing} is a file, and holds no folders", "Choose another name")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise RunError(out, f"{existing} may not be written", "Choose a folder that is yours")


def check_local(path: Path) -> None:
    """Refuse an address, such as s3://bucket/model, where only files of this machine are read."""
    if (found := ADDRESS.match(str(path))) is not None and not path.exists():
        name = f"{found[1]}://{str(path)[found.end() :]}"
        raise FolderError(name, "is an address, from which only text and prepared text are read", "Copy it here first")


def digest(path: Path) -> Digest:
    """The size and SHA-256 of a file."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return Digest(file.tell(), sha256)


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to the disk (syncing a file does not sync its name)."""
    with explain_os_errors(path):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def publish(temporary: Path, final: Path) -> None:
    """Rename a folder whose files are all synced to its final name. Nothing is ever overwritten."""
    sync_folder(temporary)
    if final.exists():
        raise FolderError(final, "exists already", "Choose another name")
    with explain_os_errors(final):
        temporary.replace(final)
    sync_folder(final.parent)


@contextmanager
def explain_os_errors(path: Path, needed: int = 0) -> Iterator[None]:
    """Turn errors of the operating system into one line with path, fact and remedy."""
    try:
        yield
    except OSError as error:
        again = "run the same command again"
        match error.errno:
            case errno.ENOSPC:
                fact = f"the disk is full: {needed:,} bytes needed, {_free(path):,} free"
                raise RunError(path, fact, f"Free space and {again}") from error
            case errno.EDQUOT:
                fact = f"your disk quota is used up: {needed:,} bytes needed"
                raise RunError(path, fact, f"Free space and {again}") from error
            case errno.EROFS:
                raise RunError(path, "the disk is read-only", "Choose a folder on another disk") from error
            case errno.EACCES | errno.EPERM:
                raise RunError(path, "may not be written", "Choose a folder that is yours") from error
            case errno.ENOTDIR | errno.EEXIST:
                raise RunError(path, "a file stands where a folder is needed", "Choose another name") from error
            case errno.EISDIR:
                raise RunError(path, "is a folder, not a file", "Choose another name") from error
            case errno.ENAMETOOLONG:
                raise RunError(path.name[:40] + "...", "the name is too long", "Choose a shorter one") from error
            case errno.EIO:
                fact = "the disk failed (input/output error)"
                raise RunError(path, fact, f"Check the disk and {again}") from error
        raise


def _free(path: Path) -> int:
    """Free bytes of the disk that the path is on; the path need not exist."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    return shutil.disk_usage(existing).free


def file_inside(folder: Path, name: str, subfolder: str = "") -> Path:
    """A plain file of a folder or subfolder. A link may lead to a file in it, or to the blobs of the Hub's cache."""
    path, home = folder / subfolder / name, folder.resolve()
    try:
        real = path.resolve()
        plain = Path(name).name == name and Path(subfolder).name == subfolder and (name + subfolder).isprintable()
        inside = plain and real.parent in (home / subfolder, home.parent.parent / "blobs")
        is_file, exists = real.is_file(), real.exists()
    except (OSError, ValueError, RuntimeError):
        inside = is_file = exists = False
    if not inside:
        raise FolderError(folder, f"the file {short_repr(name)} leads out of the folder", "Put it inside")
    if not is_file:
        raise FolderError(path, "is not a plain file" if exists else "is missing")
    return path


def check_size(path: Path, max_bytes: int) -> Path:
    """The same path, if the file has at most `max_bytes`."""
    if path.stat().st_size > max_bytes:
        raise FolderError(path, f"is larger than {max_bytes >> 20} MiB")
    return path


def short_repr(value: object) -> str:
    """A value from a file, shortened to fit one line."""
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
