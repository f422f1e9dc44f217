"""The checkpoint that a run goes on from: the main process chooses it, and all others read the same one.

Another process may see less of a shared folder, whose listing it has cached. Had each its own choice, they could go on
from different steps, and nothing would say so.
"""

from functools import partial
from pathlib import Path

from bertsmith.errors import FolderError
from bertsmith.train import checkpoint
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.processes import Processes


def load_newest(folder: Path, processes: Processes) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that verifies in the main process, and a line for each damaged one that it skipped."""
    found: list[Checkpoint] = []
    [(step, broken), *_] = processes.together(partial(_choose, folder, found, processes))
    processes.together(partial(_follow, folder, step, found, processes))
    return next(iter(found), None), broken


def _choose(folder: Path, found: list[Checkpoint], processes: Processes) -> tuple[int | None, list[str]]:
    """Put the newest checkpoint into `found`, and return its step, in the main process."""
    newest = checkpoint.load_newest(folder) if processes.main else None
    if newest is None:
        return None, []
    found.append(newest[0])
    return newest[0].step, newest[1]


def _follow(folder: Path, step: int | None, found: list[Checkpoint], processes: Processes) -> None:
    """Put the checkpoint of this step into `found`, in all other processes."""
    if step is None or processes.main:
        return
    try:
        found.append(checkpoint.load(checkpoint.path_of(folder, step)))
    except FolderError as error:
        fact = f"{error.fact}, for {processes.name}, but the main process reads it"
        remedy = "All processes need the same folder; the same command resumes the run"
        raise FolderError(error.location, fact, remedy) from None
