"""Writes checkpoints in a thread while training goes on, each process a part of the tensors.

A save copies the tensors to the host's memory, which takes as long as copying, and not as long as hashing, writing and
syncing. The next save waits for it, as does the end of the run, however it ends.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import TracebackType

from bertsmith.train import checkpoint
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.processes import ALONE, Processes


class CheckpointWriter:
    """The checkpoints of a run, written one after the other in the background.

    All processes save at the same step. A checkpoint that cannot be written has `failed`, and `wait` raises the error.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        processes: Processes = ALONE,
        tell_seconds: Callable[[float], None] = lambda seconds: None,  # called when a checkpoint is on the disk
    ) -> None:
        self.folder, self.keep, self.processes, self.tell_seconds = folder, keep, processes, tell_seconds
        self.error: BaseException | None = None
        self._thread: Thread | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None

    def save(self, saved: Checkpoint, divided: Collection[str] = ()) -> None:
        """Copy the tensors of this process, and write them in the background. Of `divided` tables it has its own."""
        self.wait()
        began = time.monotonic()
        part = copied(saved, self.processes, divided)
        self._thread = Thread(target=self._write, args=(part, began), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Return when the last checkpoint is on the disk."""
        self._join()
        error, self.error = self.error, None
        if error is not None:
            raise error

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._join()  # whatever ends the run, a checkpoint that was begun is finished
        if error is None:
            self.wait()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._thread = None

    def _write(self, part: Checkpoint, began: float) -> None:
        try:
            checkpoint.save(self.folder, part, keep=self.keep, processes=self.processes.in_background())
        except BaseException as error:
            self.error = error
        else:
            self.tell_seconds(time.monotonic() - began)


def copied(saved: Checkpoint, processes: Processes, divided: Collection[str] = ()) -> Checkpoint:
    """The part of a checkpoint that this process writes, in the host's memory, where training does not change it.

    Of `divided` tables that is all that it has. All have the same other tables, and write about as many bytes of them.
    """
    whole = [(table, name) for table, tensors in saved.tensors.items() if table not in divided for name in tensors]
    owners = processes.divide([saved.tensors[table][name].nbytes for table, name in whole])
    others = {entry for entry, owner in zip(whole, owners, strict=True) if owner != processes.rank}
    own = {
        table: {
            name: tensor.detach().to("cpu", copy=True)
            for name, tensor in tensors.items()
            if (table, name) not in others
        }
        for table, tensors in saved.tensors.items()
    }
    return replace(saved, tensors={table: tensors for table, tensors in own.items() if tensors or processes.main})
