"""A feed: what a trainer sees of the data. Batches by position, and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass

from bertsmith.data.batch import Batch
from bertsmith.data.loader import Loader
from bertsmith.data.pack import Pack, Packed


@dataclass(frozen=True)
class Feed:
    """Packed text handed through a collator: a pure function from a position to a batch."""

    pack: Pack
    collate: Callable[[Packed], Batch]
    fingerprint: str  # of the data: a run goes on only with the text it was begun with
    workers: int = 2

    def __call__(self, position: int) -> Batch:
        return self.collate(self.pack(position))

    def epoch(self, position: int) -> float:
        """How many times the text had been seen before this position."""
        return self.pack.epoch(position)

    def loader(self, position: int, *, pin: bool) -> Loader:
        return Loader(self, self.pack.after, position, self.workers, pin=pin)
