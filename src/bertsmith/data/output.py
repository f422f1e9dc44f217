"""Output: a file of predictions that is written row by row, and resumed by the same command after a kill.

Rows go to NAME.part; a journal, NAME.part.json, has their number and bytes, the command's settings, and the SHA-256 of
the inputs they were made from. A second start of the same command reads as many inputs again, and if they are the same,
truncates the file to the journal's length and continues after them. At the end the file is renamed. So an interrupted
file is never mistaken for a complete one, and a resumed one is the same byte for byte.
"""

import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from bertsmith import files
from bertsmith.errors import BertsmithError, FolderError, RunError, TextError

JOURNAL_SECONDS = 2.0  # seconds between two entries of the journal: a kill costs at most this work
FORMAT = 2

R = TypeVar("R")


class Output:
    """A growing file. `rows` are done; `state` is a record of the writer's own that is restored on resuming."""

    def __init__(self, out: Path, made_with: Callable[[], Mapping[str, Any]], *, header: bytes = b"") -> None:
        """`made_with` gives the model and options that make the rows; `header` is the beginning of the file."""
        self.out, self._header = out, header
        self._made_with = cache(made_with)  # hashing a model reads all its files
        self.part, self.journal = (out.with_name(out.name + ending) for ending in (".part", ".part.json"))
        self.rows, self.size, self.state, self.restart_reason = 0, 0, dict[str, Any](), ""
        self._hash, self._journal_digest, self._file, self._journal_time = hashlib.sha256(), "", -1, time.monotonic()
        self.is_stream = False  # a device or a pipe, which cannot be resumed

    def __enter__(self) -> "Output":
        try:
            self.is_stream = self.out.exists() and not stat.S_ISREG(self.out.stat().st_mode) and not self.out.is_dir()
            if self.out.is_dir():
                raise RunError(self.out, "is a folder", "Name a file in it")
            with files.explain_os_errors(self.out):
                parent = next(path for path in self.out.absolute().parents if path.exists())
                if not parent.is_dir():
                    raise RunError(self.out, f"'{parent}' is a file and not a folder", "Choose another folder")
                self.out.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_WRONLY if self.is_stream else os.O_RDWR | os.O_CREAT
                self._file = os.open(self.out if self.is_stream else self.part, flags | os.O_CLOEXEC, 0o666)
                if not self.is_stream:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._release()
            raise RunError(self.out, "another command is writing it", "Wait for it, or choose another name") from None
        except OSError as error:
            raise write_error(self.out, error) from None
        if not self.is_stream:
            self._read()
        if not self.rows:
            self._restart()
        return self

    def resume(self, inputs: Callable[[], Iterator[R]], key: Callable[[R], str]) -> Iterator[R]:
        """The inputs whose rows are missing; all of them, if the inputs of existing rows have changed.

        `key` is the part of an input that its row depends on.
        """
        rest = inputs()
        if not self.rows:
            return rest
        digest, count = hashlib.sha256(), 0
        for one in islice(rest, self.rows):
            _add(digest, key(one))
            count += 1
        if count == self.rows and digest.hexdigest() == self._journal_digest:
            self._hash = digest
            return rest
        self.restart_reason = "other inputs"
        self._restart()
        return inputs()

    def add(self, keys: Iterable[str], data: bytes, state: Mapping[str, Any] | None = None) -> None:
        """Append rows, made from the inputs with these keys."""
        self._write(data)
        for one in keys:
            _add(self._hash, one)
            self.rows += 1
        self.size += len(data)
        self.state = dict(state or {})
        if time.monotonic() - self._journal_time >= JOURNAL_SECONDS:
            self._write_journal()

    def finish(self, convert: Callable[[Path, Path], None] | None = None, *, header: bytes = b"") -> None:
        """Put the file in place: as it is, with another header of the same length, or as `convert` rewrites it."""
        if self.is_stream:
            return
        with files.explain_os_errors(self.out, self.size):
            if header:
                assert len(header) == len(self._header)
                os.pwrite(self._file, header, 0)
            os.fsync(self._file)
        if convert is None:
            ready = self.part
        else:
            self._write_journal()  # so that a conversion that fails costs no rows
            ready = self.out.with_name(self.out.name + ".writing")
            with files.explain_os_errors(self.out, self.size):
                convert(self.part, ready)
        with files.explain_os_errors(self.out):
            ready.replace(self.out)
            self.journal.unlink(missing_ok=True)
            self.part.unlink(missing_ok=True)
        files.sync_folder(self.out.parent)
        self._release()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file < 0:
            return
        with suppress(OSError, BertsmithError):  # the first error counts, and the last entry of the journal holds
            if not self.is_stream and self.rows:
                os.ftruncate(self._file, self.size)  # drops half a row; on a full disk this makes room for the journal
                self._write_journal()
            elif not self.is_stream:
                self.part.unlink(missing_ok=True)
        self._release()

    def _read(self) -> None:
        """Restore the journal's entry, if it is of the same command."""
        if not self.journal.exists():
            return
        try:
            entry = files.read_json(self.journal)
            same = entry["format"] == FORMAT and entry["made_with"] == json.loads(json.dumps(self._made_with()))
            complete = os.fstat(self._file).st_size >= entry["size"]
            if same and complete:
                self.rows, self.size, self.state = int(entry["rows"]), int(entry["size"]), dict(entry["state"])
                self._journal_digest = str(entry["inputs"])
            else:
                self.restart_reason = "another model or other options" if complete else "a file that has lost its end"
        except (FolderError, LookupError, TypeError, ValueError):
            self.restart_reason = "a journal that cannot be read"
        if self.rows:
            with files.explain_os_errors(self.part):
                os.ftruncate(self._file, self.size)
                os.lseek(self._file, self.size, os.SEEK_SET)

    def _restart(self) -> None:
        self.rows, self.size, self.state, self._hash = 0, 0, {}, hashlib.sha256()
        if not self.is_stream:
            with files.explain_os_errors(self.part):
                self.journal.unlink(missing_ok=True)
                os.ftruncate(self._file, 0)
                os.lseek(self._file, 0, os.SEEK_SET)
        self._write(self._header)
        self.size = len(self._header)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # a write may be partial
            with files.explain_os_errors(self.out, len(view)):
                try:
                    view = view[os.write(self._file, view) :]
                except OSError as error:
                    if error.errno == errno.EFBIG:
                        raise write_error(self.out, error) from None
                    raise

    def _write_journal(self) -> None:
        if self.is_stream:
            return
        self._journal_time = time.monotonic()
        with files.explain_os_errors(self.part):
            os.fsync(self._file)
        said = {
            "format": FORMAT,
            "made_with": self._made_with(),
            "rows": self.rows,
            "size": self.size,
            "state": self.state,
        }
        files.write_json(self.journal, said | {"inputs": self._hash.hexdigest()})

    def _release(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def fingerprint(folder: Path) -> str:
    """A hash of all files of a model folder."""
    combined = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".txt", ".bin") and path.is_file():
            combined.update(f"{path.name} {files.digest(path).sha256}\n".encode())
    return combined.hexdigest()


def write_error(out: Path, error: OSError) -> BertsmithError:
    """The error for a file that cannot be written."""
    return RunError(out, f"cannot be written ({error.strerror})", "Choose another file")


def changed_input_error(name: str) -> TextError:
    """The error for standard input that differs from the one read before."""
    return TextError(name, "differs from the text read before the interruption", "Remove the .part file, and run again")


def _add(digest: Any, key: str) -> None:
    raw = key.encode("utf-8", "surrogatepass")
    digest.update(len(raw).to_bytes(8, "little") + raw)
