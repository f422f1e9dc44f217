"""How far along a run is, from 0 to 1: by steps, by epochs, or by wall-clock time."""

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_duration(duration: str) -> float:
    """The seconds of a duration such as 90s, 10m, 1h30m or 2d."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smhd])", duration)
    if not parts or re.sub(r"\d+(?:\.\d+)?\s*[smhd]\s*", "", duration):
        raise ValueError(f"'{duration}' is not a duration. Write 90s, 10m, 1h30m or 2d")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def format_duration(duration: float) -> str:
    """A duration in seconds as text: 9 s, 4 min 05 s, 2 h 10 min."""
    whole = round(duration)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@dataclass(frozen=True, kw_only=True)
class Extent:
    """The length of a run, in one of three units."""

    steps: int | None = None
    epochs: float | None = None
    budget: float | None = None  # seconds


@dataclass(frozen=True, kw_only=True)
class WallBudget:
    """The wall-clock time of a whole command, with the work before and after training."""

    started: float  # by time.monotonic(), when the command started
    budget: float  # seconds, over all commands that resume the same run
    reserve: float = 0.0  # seconds that are needed after training

    def remaining(self, spent: float) -> float:
        """Seconds that are left, when earlier commands have spent some."""
        return self.budget - spent - (time.monotonic() - self.started)


def crossed_mark(before: float, now: float, times: int) -> bool:
    """Whether one of `times` evenly spaced marks lies between two fractions of a run. The end is no mark."""
    return now < 1 and math.floor(now * times) > math.floor(before * times)


class Clock:
    """The progress of a run, which the learning rate schedule follows, in any unit of its length.

    With a wall budget the end is a moment: if preparation took longer, training is shorter.
    """

    def __init__(self, extent: Extent, training_seconds: float = 0.0, wall: WallBudget | None = None) -> None:
        self.extent, self.wall = extent, wall
        self.reserve = 0.0 if wall is None else wall.reserve  # seconds after the last step; may be corrected
        self.finished = False  # a finished run stays finished, even if time is left
        self._earlier_training_seconds = training_seconds  # of earlier starts of this run
        self._earlier_total_seconds = 0.0  # of earlier commands
        self._started: float | None = None
        self._progress = 0.0

    def start(self) -> None:
        self._started = time.monotonic()

    def resume(self, training_seconds: float, used: Mapping[str, Any] | None) -> None:
        """Continue the training time and the spent wall budget of a checkpoint; a finished run needs a larger one."""
        self._earlier_training_seconds = training_seconds
        if self.wall is not None:
            # A run that had no wall budget before is charged for its training alone: nothing else was recorded.
            self._earlier_total_seconds = used["total_seconds"] if used else training_seconds
            self.finished = used is not None and used["finished"] and self.wall.budget <= used["budget"]

    @property
    def training_seconds(self) -> float:
        """Seconds of training so far, over all starts of this run."""
        return self._earlier_training_seconds + (0.0 if self._started is None else time.monotonic() - self._started)

    @property
    def total_seconds(self) -> float:
        """Seconds of all commands of this run so far, training and everything else."""
        return self._earlier_total_seconds + (0.0 if self.wall is None else time.monotonic() - self.wall.started)

    def progress(self, step: int, epoch: float) -> float:
        """The fraction of the run that is done, 1 at its end."""
        if self.wall is not None:
            return self._wall_progress(self.wall)
        if self.extent.steps is not None:
            return min(1.0, step / self.extent.steps)
        if self.extent.epochs is not None:
            return min(1.0, epoch / self.extent.epochs)
        assert self.extent.budget is not None
        return min(1.0, self.training_seconds / self.extent.budget)

    def remaining(self, progress: float) -> float | None:
        """Estimated seconds to the end; None before any progress."""
        return self.training_seconds * (1 - progress) / progress if progress > 0 and self.training_seconds > 0 else None

    def _wall_progress(self, wall: WallBudget) -> float:
        used, left = self.training_seconds, wall.remaining(self._earlier_total_seconds) - self.reserve
        now = 1.0 if self.finished or left <= 0 else used / (used + left)
        self._progress = max(self._progress, now)  # a smaller reserve must not turn the schedule back
        return self._progress
