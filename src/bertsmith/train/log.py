"""The log of a run: one JSON record a line, and TensorBoard's curves where it is installed."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bertsmith.data import files
from bertsmith.errors import FolderError

NAME = "log.jsonl"


class Log:
    """Grows by a record at a time: {"kind": "step" | "valid" | "note", "step": 7, ...}.

    A record is with the system as soon as it is written, and on the disk after `sync`.
    What is not a number is written as "nan", "inf" or "-inf": the file stays JSON, and `float` reads both.
    """

    def __init__(self, folder: Path, *, tensorboard: bool = True) -> None:
        self.path = folder / NAME
        self._file = -1
        self._wants_curves = tensorboard
        self._curves: Any = None

    def write(self, record: Mapping[str, Any], *, curves: bool = True) -> None:
        """Add a record; and its numbers to the curves, which for a GPU that waits takes long."""
        if self._file < 0:
            self.rewind(math.inf)  # opens the file; no line may be added to a torn one
        data = (json.dumps(_plain(record), ensure_ascii=False, allow_nan=False) + "\n").encode()
        while data:  # a disk may take less than it was given
            with files.explained(self.path, len(data)):
                data = data[os.write(self._file, data) :]
        if curves and "step" in record:
            self._draw(record)

    def sync(self) -> None:
        """Put all that was written on the disk. Comes before a checkpoint: the log is never behind one."""
        with files.explained(self.path):
            if self._file >= 0:
                os.fsync(self._file)
            if self._curves is not None:
                self._curves.flush()

    def rewind(self, step: int | float) -> None:
        """Forget all after this step: a resumed run's log then equals an undisturbed one's."""
        self.close()
        with files.explained(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            old = self.path.read_bytes() if self.path.exists() else b""
            kept = b"".join(_until(old, step))
            if kept != old:
                beside = self.path.with_name(NAME + ".writing")
                files.write(beside, kept)
                beside.replace(self.path)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o666)
        files.sync_folder(self.path.parent)

    def close(self) -> None:
        file, self._file = self._file, -1
        curves, self._curves = self._curves, None
        if file >= 0:
            os.close(file)
        if curves is not None:
            with files.explained(self.path):
                curves.close()

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _draw(self, record: Mapping[str, Any]) -> None:
        """Add the record's numbers to the curves."""
        if self._wants_curves and self._curves is None:
            self._curves = _curves(self.path.parent / "tensorboard", record["step"])
            self._wants_curves = self._curves is not None
        if self._curves is not None:
            with files.explained(self.path):
                for name, value in _numbers(record):
                    self._curves.add_scalar(f"{record.get('kind', 'step')}/{name}", value, record["step"])


def read(path: Path) -> list[dict[str, Any]]:
    """All records of a log. A torn last line, left by a kill, is not one."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise FolderError(path, f"cannot be read ({error.strerror})") from None
    records = [_parsed(line) for line in lines]
    if records and records[-1] is None:
        records.pop()
    if None in records:
        raise FolderError(f"{path}:{records.index(None) + 1}", "is not a JSON record", "Remove the line")
    return [record for record in records if record is not None]


def _until(data: bytes, step: int | float) -> Iterator[bytes]:
    """The whole lines before the first record of a later step; one without a step belongs to the last."""
    for line in data.splitlines(keepends=True):
        record = _parsed(line)
        if record is not None and record.get("step", -1) > step:
            return
        if record is not None:
            yield line


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The record in a line, None where the line is torn or broken."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _plain(value: Any) -> Any:
    """The value with what is not a number as a string."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _numbers(record: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, float]]:
    """The record's numbers by name, also those one level down: `terms/masked`."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{under}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            yield f"{under}{name}", float(value)


def _curves(folder: Path, step: int) -> Any:
    """TensorBoard's writer, None where it is not installed. Hides what was drawn from this step on."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step)
