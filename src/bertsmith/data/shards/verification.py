"""The verification of shards: the SHA-256 of every file is compared with the manifest before a model is trained.

A core hashes more than a gigabyte a second. Little text is verified before the first step; much of it by threads during
the first steps, and a run writes no checkpoint and no model before they have finished.
"""

import os
import threading
import time
from collections import deque
from pathlib import Path

from bertsmith import files
from bertsmith.data.shards.shards import Shards

VERIFIED_AT_ONCE_BYTES = 256 << 20  # bytes; more than that is verified during the first steps
# A file rewritten within one tick of the file system's clock keeps its time, so a younger file is not cached.
RECENT_NANOSECONDS = 2_000_000_000  # nanoseconds

_Stamp = tuple[str, int, int, int, str]
_verified: set[_Stamp] = set()  # by this process; disk errors change no time, so nothing is cached beyond it
_running: dict[tuple[Path, str], "Verification"] = {}


class Verification:
    """One folder's files hashed by threads that end with the process. `poll` and `wait` raise their errors."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._failure: BaseException | None = None
        names = [name for name in shards.manifest if not _is_known(shards, name)]
        self.bytes = sum(shards.manifest[name].size for name in names)
        self._jobs = deque(sorted(names, key=lambda name: -shards.manifest[name].size))
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(min(_cores(), len(names)))]
        for thread in self._threads:
            thread.start()

    @property
    def is_running(self) -> bool:
        """Whether some file is not yet verified."""
        return any(thread.is_alive() for thread in self._threads)

    def poll(self) -> None:
        """Raise an error found so far, without waiting."""
        if self._failure is not None:
            raise self._failure

    def wait(self) -> None:
        """Return when every file is verified; raise as soon as one is damaged."""
        for thread in self._threads:
            thread.join()
        self.poll()

    def _work(self) -> None:
        while self._failure is None:
            try:
                name = self._jobs.popleft()
            except IndexError:
                return
            try:
                before = _stamp(self._shards, name)
                self._shards.check_file(name, files.digest)
            except BaseException as error:  # with any error the file is not verified
                self._failure = error
                return
            if before is not None and time.time_ns() - before[3] > RECENT_NANOSECONDS:
                _verified.add(before)


def verify(shards: Shards) -> Verification:
    """Start verifying a folder, once per process. Little text is verified when this returns."""
    key = shards.folder.resolve(), shards.fingerprint
    running = _running.get(key)
    if running is None or not running.is_running:
        running = _running[key] = Verification(shards)
    if running.bytes <= VERIFIED_AT_ONCE_BYTES:
        running.wait()
    return running


def _stamp(shards: Shards, name: str) -> _Stamp | None:
    """Identity, size, time and expected hash of a file: with the same stamp it is not verified again."""
    path = shards.folder.resolve() / name
    try:
        found = path.stat()
    except OSError:
        return None
    return str(path), found.st_ino, found.st_size, found.st_mtime_ns, shards.manifest[name].sha256


def _is_known(shards: Shards, name: str) -> bool:
    return _stamp(shards, name) in _verified


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
