"""Worker processes of a cleaning: the first reading (judge) and the second (rewrite) on all cores."""

import os
import sys
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, Literal

from bertsmith import files
from bertsmith.data import workers as processes
from bertsmith.data.cleaning import passages
from bertsmith.data.cleaning.config import CleaningConfig
from bertsmith.data.cleaning.judge import Judge
from bertsmith.data.cleaning.passages import NumberedPassage
from bertsmith.data.cleaning.rewrite import Rewriter

SETTINGS = "settings.json"

Reading = Literal["judge", "rewrite"]
Answer = tuple[Any, list[bytes]]  # a record, and raw bytes
Chosen = tuple[passages.Chunk, list[NumberedPassage]]  # a chunk, and those of its passages that are worked on


class Worker(processes.Worker):
    """A process that reads passages for one of the two readings."""

    def __init__(self, folder: Path, reading: Reading) -> None:
        program = f"from bertsmith.data.cleaning.workers import serve; serve({os.fspath(folder)!r}, {reading!r})"
        super().__init__("clean", program)

    def read(self, some: list[NumberedPassage]) -> Answer:
        return self.ask(passages.encode(some), passages.receive)


def read_all(
    chunks: Iterable[Chosen], folder: Path, reading: Reading, workers: int
) -> Generator[tuple[passages.Chunk, Answer], None, None]:
    """The answer for each chunk, in order. With no workers this process does the work."""
    if workers == 0:
        work = _work(folder, reading)
        for chunk, some in chunks:
            yield chunk, work(some)
        return
    yield from processes.map_in_order(
        chunks, lambda: Worker(folder, reading), lambda worker, some: worker.read(some), workers, "clean"
    )


def serve(folder: str, reading: Reading) -> None:
    """The worker's main function: read passages until the input ends."""
    work = _work(Path(folder), reading)
    for message in processes.messages():
        passages.send(sys.stdout.buffer, *work(passages.decode(message)))


def _work(folder: Path, reading: Reading) -> Callable[[list[NumberedPassage]], Answer]:
    config = CleaningConfig.from_record(files.read_json(folder / SETTINGS)["config"])
    return Judge(config).judge if reading == "judge" else Rewriter(folder, config).rewrite
