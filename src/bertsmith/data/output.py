"""Output: a file that is written as its rows come, and gone on with by the same command after a kill.

Rows go to NAME.part; a journal beside it, NAME.part.json, says how many are there, how many bytes they take, what was
asked for, and the SHA-256 of the inputs they were made from. A second start of the same command reads as many inputs
again, and if they are the same, cuts the file to the journal's length and goes on behind them. At the end the file
takes its name. So an interrupted file is never mistaken for a whole one, and a resumed one is the same byte for byte.
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

EVERY = 2.0  # seconds between two notes in the journal: what a kill may cost, but for the rows under way
FORMAT = 1

R = TypeVar("R")


class Output:
    """A growing file. `rows` are done, and `state` is whatever the writer wants to find again."""

    def __init__(self, out: Path, made_with: Callable[[], Mapping[str, Any]], *, header: bytes = b"") -> None:
        """`asked` tells which model and options make the rows; `head` is what the file begins with."""
        self.out, self._made_with, self._header = (
            out,
            cache(made_with),
            header,
        )  # to know a model its files are read whole
        self.part, self.journal = (out.with_name(out.name + ending) for ending in (".part", ".part.json"))
        self.rows, self.size, self.state, self.restart_reason = 0, 0, dict[str, Any](), ""
        self._hash, self._journal_digest, self._file, self._journal_time = hashlib.sha256(), "", -1, time.monotonic()
        self.is_stream = False  # into a device or a pipe, which cannot be gone on with

    def __enter__(self) -> "Output":
        try:
            self.is_stream = self.out.exists() and not stat.S_ISREG(self.out.stat().st_mode) and not self.out.is_dir()
            if self.out.is_dir():
                raise RunError(self.out, "is a folder", "Name a file in it")
            with files.explain_os_errors(self.out):
                there = next(place for place in self.out.absolute().parents if place.exists())
                if not there.is_dir():
                    raise RunError(self.out, f"'{there}' is a file and not a folder", "Choose another place")
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
        """The inputs whose rows are still to be made; all of them, if those of the rows that are there have changed.

        `key` is all of an input that its row depends on.
        """
        left = inputs()
        if not self.rows:
            return left
        digest, count = hashlib.sha256(), 0
        for one in islice(left, self.rows):
            _add(digest, key(one))
            count += 1
        if count == self.rows and digest.hexdigest() == self._journal_digest:
            self._hash = digest
            return left
        self.restart_reason = "other inputs"
        self._restart()
        return inputs()

    def add(self, keys: Iterable[str], data: bytes, state: Mapping[str, Any] | None = None) -> None:
        """Some rows, made from the inputs with these keys."""
        self._write(data)
        for one in keys:
            _add(self._hash, one)
            self.rows += 1
        self.size += len(data)
        self.state = dict(state or {})
        if time.monotonic() - self._journal_time >= EVERY:
            self._write_journal()

    def finish(self, convert: Callable[[Path, Path], None] | None = None, *, header: bytes = b"") -> None:
        """Put the file in place: as it is, with another head of the same length, or as `convert` writes it anew."""
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
            self._write_journal()  # what was computed outlives a conversion that fails
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
        with suppress(OSError, BertsmithError):  # what counts is the first mishap, and the journal's last note holds
            if not self.is_stream and self.rows:
                os.ftruncate(self._file, self.size)  # half a row; on a full disk this makes room for the note
                self._write_journal()
            elif not self.is_stream:
                self.part.unlink(missing_ok=True)
        self._release()

    def _read(self) -> None:
        """What the journal says, if it is of the same command."""
        if not self.journal.exists():
            return
        try:
            said = files.read_json(self.journal)
            same = said["format"] == FORMAT and said["asked"] == json.loads(json.dumps(self._made_with()))
            there = os.fstat(self._file).st_size >= said["size"]
            if same and there:
                self.rows, self.size, self.state = int(said["rows"]), int(said["size"]), dict(said["state"])
                self._journal_digest = str(said["inputs"])
            else:
                self.restart_reason = "another model or other options" if there else "a file that has lost its end"
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
        while view:  # a disk may take less than it was given
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
        said = {"format": FORMAT, "asked": self._made_with(), "rows": self.rows, "size": self.size, "state": self.state}
        files.write_json(self.journal, said | {"inputs": self._hash.hexdigest()})

    def _release(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def fingerprint(folder: Path) -> str:
    """The SHA-256 of the files that a model is made of."""
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".txt", ".bin") and path.is_file():
            whole.update(f"{path.name} {files.digest(path).sha256}\n".encode())
    return whole.hexdigest()


def write_error(out: Path, error: OSError) -> BertsmithError:
    """What to say where a file cannot be made, as by its name."""
    return RunError(out, f"cannot be written ({error.strerror})", "Choose another place")


def changed_input_error(name: str) -> TextError:
    """What to say where a stream that has been read is not the one that was read before."""
    return TextError(name, "is not what was read before the interruption", "Remove the .part file, and run it again")


def _add(digest: Any, key: str) -> None:
    raw = key.encode("utf-8", "surrogatepass")
    digest.update(len(raw).to_bytes(8, "little") + raw)
