"""The log of a run: one JSON record a line, and TensorBoard's curves where it is installed."""

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
    """Grows by a record at a time: {"kind": "step" | "validation" | "note", "step": 7, ...}.

    A record is with the system as soon as it is written, and on the disk after `sync`.
    What is not a number is written as "nan", "inf" or "-inf": the file stays JSON, and `float` reads both.
    """

    def __init__(self, folder: Path, *, tensorboard: bool = True) -> None:
        self.path = folder / NAME
        self._file = -1
        self._use_tensorboard = tensorboard
        self._tensorboard: Any = None

    def write(self, record: Mapping[str, Any], *, scalars: bool = True) -> None:
        """Add a record; and its numbers to the curves, which for a GPU that waits takes long."""
        if self._file < 0:
            self.rewind(math.inf)  # opens the file; no line may be added to a torn one
        data = (json.dumps(_to_json(record), ensure_ascii=False, allow_nan=False) + "\n").encode()
        while data:  # a disk may take less than it was given
            with files.explain_os_errors(self.path, len(data)):
                data = data[os.write(self._file, data) :]
        if scalars and "step" in record:
            self._add_scalars(record)

    def sync(self) -> None:
        """Put all that was written on the disk. Comes before a checkpoint: the log is never behind one."""
        with files.explain_os_errors(self.path):
            if self._file >= 0:
                os.fsync(self._file)
            if self._tensorboard is not None:
                self._tensorboard.flush()

    def rewind(self, step: int | float, *, every_step: bool = False) -> str:
        """Forget all after this step: a resumed run's log then equals an undisturbed one's.

        Returns a line for the user where lines before it are damaged and left out, else nothing; `every`: whether
        each step has a record, so that a missing one is damage, too.
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
                beside = self.path.with_name(NAME + ".writing")
                files.write(beside, kept)
                beside.replace(self.path)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o666)
        files.sync_folder(self.path.parent)
        return damage

    def close(self) -> None:
        file, self._file = self._file, -1
        curves, self._tensorboard = self._tensorboard, None
        if file >= 0:
            os.close(file)
        if curves is not None:
            with files.explain_os_errors(self.path):
                curves.close()

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add_scalars(self, record: Mapping[str, Any]) -> None:
        """Add the record's numbers to the curves."""
        if self._use_tensorboard and self._tensorboard is None:
            self._tensorboard = _summary_writer(self.path.parent / "tensorboard", record["step"])
            self._use_tensorboard = self._tensorboard is not None
        if self._tensorboard is not None:
            with files.explain_os_errors(self.path):
                for name, value in _scalars(record):
                    self._tensorboard.add_scalar(f"{record.get('kind', 'step')}/{name}", value, record["step"])


def read(path: Path) -> list[dict[str, Any]]:
    """All records of a log. A torn last line, left by a kill, is not one."""
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
    """Whether a log holds a record of a step; none where there is no log."""
    try:
        return any((_parse(line) or {}).get("kind") == "step" for line in path.read_bytes().splitlines(keepends=True))
    except OSError:
        return False


def _lines_until(data: bytes, step: int | float) -> list[bytes]:
    """The whole lines up to a step; a record without a step belongs to the one before it.

    One record whose number is damaged must not cut off those that follow it: the end is sought from behind.
    """
    found = [(line, record) for line in data.splitlines(keepends=True) if (record := _parse(line)) is not None]
    steps = [_step(record) for _, record in found]
    last = max((place for place, one in enumerate(steps) if one is not None and one <= step), default=-1)
    later = (place for place, one in enumerate(steps) if place > last and one is not None)
    end = next(later, len(found))
    return [line for (line, _), one in zip(found[:end], steps, strict=False) if one is None or one <= step]


def _damage(path: Path, old: bytes, kept: list[bytes], steps: int | float) -> str:
    """What was lost of the records of so many steps, in a line. A torn last line, left by a kill, is no damage."""
    whole = old[: old.rfind(b"\n") + 1].splitlines(keepends=True)
    broken = sum(_parse(line) is None for line in whole)
    here = [_parse(line) or {} for line in kept] if steps > 0 else []
    missing = int(steps) - len({_step(record) for record in here if record.get("kind") == "step"})
    if missing > 0:
        return f"{path}: damaged, the records of {missing:,} of {steps:,} steps are lost. Only the curves lack them"
    return f"{path}: {broken:,} damaged lines left out" if broken else ""


def _step(record: Mapping[str, Any]) -> float | None:
    """The step of a record; one without, or with what is no number, has none."""
    step = record.get("step")
    return step if isinstance(step, int | float) and not isinstance(step, bool) else None


def _parse(line: bytes) -> dict[str, Any] | None:
    """The record in a line, None where the line is torn or broken."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _to_json(value: Any) -> Any:
    """The value with what is not a number as a string."""
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
    """TensorBoard's writer, None where it is not installed. Hides what was drawn from this step on."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step)
