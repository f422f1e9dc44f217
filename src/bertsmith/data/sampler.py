"""Shuffled items: every epoch sees each of them once, in an order of its own that is a pure function."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsmith.random_bits import ORDER, mix, permute


class BatchSampler:
    """Lists of items by position. `position = epoch << 32 | index`; the last list of an epoch may be shorter."""

    def __init__(self, items: Sequence[Any], batch_size: int, seed: int) -> None:
        self.items, self.batch_size, self.seed = items, batch_size, seed
        self.batches_per_epoch = -(-len(items) // batch_size)  # in an epoch

    def __call__(self, position: int) -> list[Any]:
        epoch, index = position >> 32, position & 0xFFFF_FFFF
        places = np.arange(index * self.batch_size, min((index + 1) * self.batch_size, len(self.items)))
        key = int(mix(self.seed, ORDER, epoch))
        return [self.items[row] for row in permute(places, len(self.items), key)]

    def first_position(self) -> int:
        return 0

    def next_position(self, position: int) -> int:
        epoch, index = position >> 32, position & 0xFFFF_FFFF
        return position + 1 if index + 1 < self.batches_per_epoch else (epoch + 1) << 32

    def epoch(self, position: int) -> float:
        return (position >> 32) + (position & 0xFFFF_FFFF) / self.batches_per_epoch
