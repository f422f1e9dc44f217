"""Validation: the same batches with the same masks every time, so that two figures can be compared."""

import math
import time
from collections.abc import Sequence

from bertsmith.data.batch import Batch
from bertsmith.objectives.base import Objective, Sums

EVALUATION_SHARE = 0.05  # of a run's time that evaluations may take, all together
SINGLE_EVALUATION_SHARE = EVALUATION_SHARE / 8  # and one of them at most
MIN_BATCHES = 4  # batches, however slow they are


def evaluate(objective: Objective, batches: Sequence[Batch], bytes_per_token: float) -> dict[str, float]:
    """Mean loss and accuracy of each term, the weighted sum of losses, and what guessed words cost in bits per byte."""
    sums: dict[str, Sums] = {}
    for batch in batches:
        for name, term in objective(batch).items():
            if batch.counts[name]:
                sums[name] = sums.get(name, Sums()).plus(term, batch.counts[name])
    figures = {"loss": sum(part.weight * part.total / part.count for part in sums.values())}
    for name, part in sums.items():
        figures[f"{name}_loss"] = part.total / part.count
        figures[f"{name}_accuracy"] = part.correct / part.count
        figures |= {f"{name}_{share}": some / max(1, every) for share, (some, every) in part.ratios.items()}
    for name in [name for name in ("next_token", "masked") if name in sums][-1:]:
        figures["bits_per_byte"] = figures[f"{name}_loss"] / math.log(2) / bytes_per_token
    return figures


class Validation:
    """The validation of a run: the same batches every time, as many as the time for one evaluation allows.

    How many that are is measured at the first evaluation, and kept with the run: its figures stay comparable.
    """

    def __init__(
        self, objective: Objective, batches: Sequence[Batch], bytes_per_token: float, seconds: float | None = None
    ) -> None:
        self.objective, self.bytes_per_token, self.seconds = objective, bytes_per_token, seconds
        self._batches = batches
        self.last_seconds = 0.0  # seconds of the last evaluation, without what was tried before the first
        self.count: int | None = None if seconds is not None else len(batches)

    @property
    def batches(self) -> Sequence[Batch]:
        """Those that are measured on."""
        return self._batches[: self.count]

    def __call__(self) -> dict[str, float]:
        if self.count is None:
            self.count = self._affordable_batches()
        began = time.monotonic()
        figures = evaluate(self.objective, self.batches, self.bytes_per_token)
        self.last_seconds = time.monotonic() - began
        return figures

    def _affordable_batches(self) -> int:
        """How many batches the time allows: the first one warms up, and two more are timed."""
        assert self.seconds is not None
        times = []
        for batch in self._batches[:3]:
            began = time.monotonic()
            for term in self.objective(batch).values():
                float(term.total)  # a GPU has done it when the figure is there
            times.append(time.monotonic() - began)
        return max(MIN_BATCHES, int(self.seconds / max(min(times), 1e-9)))
