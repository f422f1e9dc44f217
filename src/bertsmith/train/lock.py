"""A lock on a run's folder: two runs cannot share it, and a killed run leaves it free."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from weakref import WeakSet

from bertsmith.errors import RunError
from bertsmith.files import check_not_foreign, explain_os_errors

NAME = ".lock"
RUN_FILES = (NAME, "recipe.toml", "log.jsonl", "failure.txt")  # a folder with one of these belongs to a run
RUN_FOLDERS = ("model", "generator", "checkpoints", "tensorboard", "adapter")  # folders that a run writes over


class Lock:
    """Holds a folder for one run. The system releases it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = -1

    def __enter__(self) -> "Lock":
        check_not_foreign(self.folder, markers=RUN_FILES, outputs=RUN_FOLDERS)
        with explain_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            _held_locks.add(self)
            try:
                self._acquire()
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, str(os.getpid()).encode(), 0)
            except BaseException:
                self.release()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file >= 0:
            with suppress(OSError):  # releasing the lock is what matters
                os.ftruncate(self._file, 0)
        self.release()

    def release(self) -> None:
        """Close the file, which releases the lock once no other process has it open."""
        _held_locks.discard(self)
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _acquire(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 20, 0).decode(errors="replace")
            by = f"another run (process {holder})" if holder.isdecimal() else "another run"
            remedy = "Wait for it, stop it, or choose another folder"
            raise RunError(self.folder, f"{by} is using it", remedy) from None
        except OSError as error:
            fact = f"cannot be locked ({error.strerror})"
            raise RunError(self.folder, fact, "Choose a folder on a local disk") from error


def _release_all() -> None:
    for lock in list(_held_locks):
        lock.release()


# A forked loader worker would hold its parent's lock until it noticed that the parent was killed.
_held_locks: WeakSet[Lock] = WeakSet()
os.register_at_fork(after_in_child=_release_all)
