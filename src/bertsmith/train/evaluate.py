"""Validation: the same batches with the same masks every time, so that metrics are comparable."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from bertsmith.data.batch import Batch
from bertsmith.objectives.base import Objective, Sums, Term

EVALUATION_SHARE = 0.05  # of a run's time, for all evaluations together
SINGLE_EVALUATION_SHARE = EVALUATION_SHARE / 8  # for one of them
MIN_BATCHES = 4  # of an evaluation, however slow they are


def evaluate(
    objective: Objective,
    batches: Sequence[Batch],
    bytes_per_token: float,
    forward: Callable[[Any], dict[str, Term]] | None = None,
) -> dict[str, float]:
    """Mean loss and accuracy of each term, the weighted sum of losses, and bits per byte of the predicted tokens.

    `forward` computes the terms instead of the objective, as for one part of a mixed objective. A term that tells no
    number of correct predictions, as for pixels, has no accuracy.
    """
    compute = forward or objective
    sums: dict[str, Sums] = {}
    device = next(objective.parameters()).device
    for batch in batches:
        for name, term in compute(objective.prepare(batch, device)).items():
            if batch.counts[name]:
                sums[name] = sums.get(name, Sums()).plus(term, batch.counts[name])
    metrics = {"loss": sum(part.weight * part.total / part.count for part in sums.values())}
    for name, part in sums.items():
        metrics[f"{name}_loss"] = part.total / part.count
        if part.correct is not None:
            metrics[f"{name}_accuracy"] = part.correct / part.count
        metrics |= {f"{name}_{ratio}": count / max(1, total) for ratio, (count, total) in part.ratios.items()}
    for name in [name for name in ("next_token", "masked") if name in sums][-1:]:
        metrics["bits_per_byte"] = metrics[f"{name}_loss"] / math.log(2) / bytes_per_token
    return metrics


class Validation:
    """The validation of a run: the same batches every time, as many as the time for one evaluation allows.

    Their number is measured at the first evaluation, and stored in checkpoints, so that metrics stay comparable.
    """

    def __init__(
        self, objective: Objective, batches: Sequence[Batch], bytes_per_token: float, seconds: float | None = None
    ) -> None:
        self.objective, self.bytes_per_token, self.seconds = objective, bytes_per_token, seconds
        self._batches = batches
        self.last_seconds = 0.0  # of the last evaluation, without the trial batches before the first
        self.count: int | None = None if seconds is not None else len(batches)

    @property
    def batches(self) -> Sequence[Batch]:
        """The batches of an evaluation."""
        return self._batches[: self.count]

    def __call__(self) -> dict[str, float]:
        if self.count is None:
            self.count = self._affordable_batches()
        began = time.monotonic()
        metrics = evaluate(self.objective, self.batches, self.bytes_per_token)
        self.last_seconds = time.monotonic() - began
        return metrics

    def _affordable_batches(self) -> int:
        """The number of batches that the time allows, by three trial batches, the first of which warms up."""
        assert self.seconds is not None
        times, device = [], next(self.objective.parameters()).device
        for batch in self._batches[:3]:
            began = time.monotonic()
            for term in self.objective(self.objective.prepare(batch, device)).values():
                float(term.total)  # waits for the GPU
            times.append(time.monotonic() - began)
        return max(MIN_BATCHES, int(self.seconds / max(min(times), 1e-9)))
