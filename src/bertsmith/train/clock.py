"""How far along a run is, from 0 to 1: by steps, by epochs, or by wall-clock time."""

import re
import time
from dataclasses import dataclass

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_duration(duration: str) -> float:
    """A duration as people write it: 90s, 10m, 1h30m, 2d."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smhd])", duration)
    if not parts or re.sub(r"\d+(?:\.\d+)?\s*[smhd]\s*", "", duration):
        raise ValueError(f"'{duration}' is not a duration. Write 90s, 10m, 1h30m or 2d")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def format_duration(duration: float) -> str:
    """A duration as people say it: 9 s, 4 min 05 s, 2 h 10 min."""
    whole = round(duration)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How long a run is to be: exactly one of the three is given."""

    steps: int | None = None
    epochs: float | None = None
    budget: float | None = None  # seconds


@dataclass(frozen=True, kw_only=True)
class WallBudget:
    """The time of a whole command by the clock on the wall: what comes before and after training is part of it."""

    started: float  # by time.monotonic(), when the command was given
    budget: float  # seconds, over all commands that go on with the same run
    reserve: float = 0.0  # seconds that are known to be needed after training

    def remaining(self, spent: float) -> float:
        """Seconds until all must be over, of a run on which earlier commands have spent some."""
        return self.budget - spent - (time.monotonic() - self.started)


class Clock:
    """Measures a run against its extent. The schedule follows the share, so it fits any kind of extent.

    With a wall, the end is a moment, and not a time of training: whatever took longer before, trains shorter.
    """

    def __init__(
        self, extent: Extent, training_seconds: float = 0.0, wall: WallBudget | None = None, total_seconds: float = 0.0
    ) -> None:
        self.extent, self.wall = extent, wall
        self.reserve = 0.0 if wall is None else wall.reserve  # seconds to keep for what comes after; may be corrected
        self.finished = False  # a run that has ended stays ended, however little its last command took
        self._earlier_training_seconds = training_seconds  # seconds that earlier starts of this run have used
        self._earlier_total_seconds = total_seconds  # seconds that earlier commands took in all
        self._started: float | None = None
        self._progress = 0.0

    def start(self) -> None:
        self._started = time.monotonic()

    @property
    def training_seconds(self) -> float:
        """Seconds of training so far, over all starts of this run."""
        return self._earlier_training_seconds + (0.0 if self._started is None else time.monotonic() - self._started)

    @property
    def total_seconds(self) -> float:
        """Seconds that all commands of this run have taken so far, with what was not training."""
        return self._earlier_total_seconds + (0.0 if self.wall is None else time.monotonic() - self.wall.started)

    def progress(self, step: int, epoch: float) -> float:
        """The part of the run that is done, 1 when it is over."""
        if self.wall is not None:
            return self._wall_progress(self.wall)
        if self.extent.steps is not None:
            return min(1.0, step / self.extent.steps)
        if self.extent.epochs is not None:
            return min(1.0, epoch / self.extent.epochs)
        assert self.extent.budget is not None
        return min(1.0, self.training_seconds / self.extent.budget)

    def remaining(self, progress: float) -> float | None:
        """Seconds to go, once there is something to judge by."""
        return self.training_seconds * (1 - progress) / progress if progress > 0 and self.training_seconds > 0 else None

    def _wall_progress(self, wall: WallBudget) -> float:
        used, left = self.training_seconds, wall.remaining(self._earlier_total_seconds) - self.reserve
        now = 1.0 if self.finished or left <= 0 else used / (used + left)
        self._progress = max(
            self._progress, now
        )  # a larger reserve may bring the end nearer, and a smaller one not back
        return self._progress
