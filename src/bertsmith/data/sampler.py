"""The batch sampler: every epoch has each example once, in a shuffled order that is a pure function of the seed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64

from bertsmith.random_bits import ORDER, mix, permute


class BatchSampler:
    """Batches of examples by position: `position = epoch << 32 | index`; the last batch of an epoch may be smaller.

    With `whole` there are whole batches only, so that all have one shape: the few examples that are left over, other
    ones in each epoch, are not used in it.
    """

    def __init__(self, items: Sequence[Any], batch_size: int, seed: int, *, whole: bool = False) -> None:
        self.items, self.batch_size, self.seed = items, min(batch_size, len(items)) if whole else batch_size, seed
        self.batches_per_epoch = len(items) // self.batch_size if whole else -(-len(items) // batch_size)

    def __call__(self, position: int) -> list[Any]:
        return [self.items[row] for row in self.rows(position)]

    def rows(self, position: int) -> Int64[np.ndarray, "B"]:
        """The numbers of the examples of a batch."""
        epoch, index = position >> 32, position & 0xFFFF_FFFF
        rows = np.arange(index * self.batch_size, min((index + 1) * self.batch_size, len(self.items)))
        return permute(rows, len(self.items), int(mix(self.seed, ORDER, epoch)))

    def first_position(self) -> int:
        return 0

    def next_position(self, position: int) -> int:
        epoch, index = position >> 32, position & 0xFFFF_FFFF
        return position + 1 if index + 1 < self.batches_per_epoch else (epoch + 1) << 32

    def epoch(self, position: int) -> float:
        return (position >> 32) + (position & 0xFFFF_FFFF) / self.batches_per_epoch
