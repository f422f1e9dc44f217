"""The log of a run: one JSON record per line, and TensorBoard's curves if it is installed."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bertsmith import files
from bertsmith.errors import FolderError

NAME = "log.jsonl"


class Log:
    """Appends records: {"kind": "step" | "validation" | "untrained" | "note", "step": 7, ...}.

    A record survives the death of the process once it is written, and that of the machine after `sync`. Numbers that
    are not finite are written as "nan", "inf" or "-inf": the file stays JSON, and `float` reads both.
    """

    def __init__(self, folder: Path, *, tensorboard: bool = True) -> None:
        self.path = folder / NAME
        self._file = -1
        self._use_tensorboard = tensorboard
        self._tensorboard: Any = None

    def write(self, record: Mapping[str, Any], *, scalars: bool = True) -> None:
        """Append a record; with `scalars`, also its numbers to TensorBoard's curves, which is slow."""
        if self._file < 0:
            self.rewind(math.inf)  # opens the file, and removes a torn last line
        data = (json.dumps(_to_json(record), ensure_ascii=False, allow_nan=False) + "\n").encode()
        while data:  # a disk may accept only a part
            with files.explain_os_errors(self.path, len(data)):
                data = data[os.write(self._file, data) :]
        if scalars and "step" in record:
            self._add_scalars(record)

    def sync(self) -> None:
        """Flush to disk. Called before a checkpoint is written, so that the log always covers it."""
        with files.explain_os_errors(self.path):
            if self._file >= 0:
                os.fsync(self._file)
            if self._tensorboard is not None:
                self._tensorboard.flush()

    def rewind(self, step: int | float, *, every_step: bool = False) -> str:
        """Remove all records after this step, so that the log of a resumed run equals an uninterrupted one's.

        Returns a line for the user if earlier records are damaged and left out, else an empty one. `every_step`: each
        step has a record, so that a missing one counts as damage.
        """
        self.close()
        damage = ""
        with files.explain_os_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            old = self.path.read_bytes() if self.path.exists() else b""
            lines = _lines_until(old, step)
            kept = b"".join(lines)
            damage = _damage(self.path, old, lines, step if every_step else 0)
            if kept != old:
                temporary = self.path.with_name(NAME + ".writing")
                files.write(temporary, kept)
                temporary.replace(self.path)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o666)
        files.sync_folder(self.path.parent)
        return damage

    def close(self) -> None:
        file, self._file = self._file, -1
        tensorboard, self._tensorboard = self._tensorboard, None
        if file >= 0:
            os.close(file)
        if tensorboard is not None:
            with files.explain_os_errors(self.path):
                tensorboard.close()

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add_scalars(self, record: Mapping[str, Any]) -> None:
        """Add the record's numbers to TensorBoard's curves."""
        if self._use_tensorboard and self._tensorboard is None:
            self._tensorboard = _summary_writer(self.path.parent / "tensorboard", record["step"])
            self._use_tensorboard = self._tensorboard is not None
        if self._tensorboard is not None:
            with files.explain_os_errors(self.path):
                for name, value in _scalars(record):
                    self._tensorboard.add_scalar(f"{record.get('kind', 'step')}/{name}", value, record["step"])


def read(path: Path) -> list[dict[str, Any]]:
    """All records of a log, without a torn last line that a kill left."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise FolderError(path, f"cannot be read ({error.strerror})") from None
    records = [_parse(line) for line in lines]
    if records and records[-1] is None:
        records.pop()
    if None in records:
        raise FolderError(f"{path}:{records.index(None) + 1}", "is not a JSON record", "Remove the line")
    return [record for record in records if record is not None]


def has_steps(path: Path) -> bool:
    """Whether a log has the record of a step; False if there is no log."""
    try:
        return any((_parse(line) or {}).get("kind") == "step" for line in path.read_bytes().splitlines(keepends=True))
    except OSError:
        return False


def _lines_until(data: bytes, step: int | float) -> list[bytes]:
    """The whole lines up to a step; a record without a step belongs to the one before it.

    The search runs from the end, so that one damaged step number does not cut off the records after it.
    """
    found = [(line, record) for line in data.splitlines(keepends=True) if (record := _parse(line)) is not None]
    steps = [_step(record) for _, record in found]
    last = max((index for index, one in enumerate(steps) if one is not None and one <= step), default=-1)
    later = (index for index, one in enumerate(steps) if index > last and one is not None)
    end = next(later, len(found))
    return [line for (line, _), one in zip(found[:end], steps, strict=False) if one is None or one <= step]


def _damage(path: Path, old: bytes, kept: list[bytes], steps: int | float) -> str:
    """A line about lost records; empty if all are there. A torn last line, left by a kill, is no damage."""
    whole = old[: old.rfind(b"\n") + 1].splitlines(keepends=True)
    broken = sum(_parse(line) is None for line in whole)
    records = [_parse(line) or {} for line in kept] if steps > 0 else []
    missing = int(steps) - len({_step(record) for record in records if record.get("kind") == "step"})
    if missing > 0:
        return f"{path}: damaged, the records of {missing:,} of {steps:,} steps are lost. Only the curves lack them"
    return f"{path}: {broken:,} damaged lines left out" if broken else ""


def _step(record: Mapping[str, Any]) -> float | None:
    """The step of a record; None if it has none, or one that is not a number."""
    step = record.get("step")
    return step if isinstance(step, int | float) and not isinstance(step, bool) else None


def _parse(line: bytes) -> dict[str, Any] | None:
    """The record in a line, None if the line is torn or damaged."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _to_json(value: Any) -> Any:
    """The value, with numbers that are not finite as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _to_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(part) for part in value]
    return value


def _scalars(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The record's numbers by name, also those one level down: `terms/masked`."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            yield f"{prefix}{name}", float(value)


def _summary_writer(folder: Path, step: int) -> Any:
    """TensorBoard's writer, None if it is not installed. Hides earlier points from this step on."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step)
