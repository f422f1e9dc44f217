"""Time that evaluations and checkpoints take from training, kept to a small share where time bounds a run."""

from torch import nn

from bertsmith.train.clock import Clock
from bertsmith.train.evaluate import EVALUATION_SHARE

DISK_BYTES_PER_SECOND = 5e7  # assumed before the first checkpoint is written
REPORT_SECONDS_PER_STEP = 3e-5  # of a step's record in the log


class Overhead:
    """Seconds of evaluations and checkpoints: of all of them since this start, and of the last of each."""

    def __init__(self, objective: nn.Module, clock: Clock) -> None:
        self._clock = clock
        size = 3 * sum(parameter.nbytes for parameter in objective.parameters())  # weights and two moments
        self.evaluation_seconds = self.checkpoint_seconds = 0.0
        self.last_evaluation, self.last_checkpoint, self.last_step = 0.0, size / DISK_BYTES_PER_SECOND, 0.0

    def restart(self) -> None:
        """Count from now on: the clock of training begins."""
        self.evaluation_seconds = self.checkpoint_seconds = 0.0

    def add_evaluation(self, seconds: float) -> None:
        self.last_evaluation = seconds
        self.evaluation_seconds += seconds

    def add_checkpoint(self, seconds: float) -> None:
        """What a checkpoint took from training, which goes on while it is written."""
        self.checkpoint_seconds += seconds

    def checkpoint_written(self, seconds: float) -> None:
        """How long the newest checkpoint took until it was on the disk, as the final one will."""
        self.last_checkpoint = seconds

    def may_evaluate(self, progress: float) -> bool:
        """Whether one more evaluation, and the final one, keep evaluations to their share, if time bounds the run."""
        seconds = self.evaluation_seconds + 2 * self.last_evaluation
        untimed = self._clock.wall is None and self._clock.extent.budget is None
        return untimed or self._fits(seconds, progress)

    def may_save(self, progress: float) -> bool:
        """Whether one more checkpoint, and the final one, keep checkpoints to it, if time bounds the whole command."""
        seconds = self.checkpoint_seconds + 2 * self.last_checkpoint
        return self._clock.wall is None or self._fits(seconds, progress)

    def final_seconds(self, steps: int) -> float:
        """What follows the last step: an evaluation, a checkpoint, a model folder of half its size, and the report.

        Each is given more than it took the last time, since other processes may slow it down.
        """
        return (
            1.3 * self.last_evaluation + 2.0 * self.last_checkpoint + REPORT_SECONDS_PER_STEP * steps + self.last_step
        )

    def _fits(self, seconds: float, progress: float) -> bool:
        return seconds <= EVALUATION_SHARE * (self._clock.training_seconds / progress)
