"""Validation: the same batches with the same masks every time, so that two figures can be compared."""

import math
from collections.abc import Sequence

from bertsmith.data.batch import Batch
from bertsmith.objectives.base import Objective, Sums


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
        figures[f"{name}_accuracy"] = part.right / part.count
        figures |= {f"{name}_{share}": some / max(1, every) for share, (some, every) in part.shares.items()}
    for name in [name for name in ("next_token", "masked") if name in sums][-1:]:
        figures["bits_per_byte"] = figures[f"{name}_loss"] / math.log(2) / bytes_per_token
    return figures
