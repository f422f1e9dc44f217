"""A feed: what a trainer sees of the data. Batches by position, and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from bertsmith.data.batch import Batch
from bertsmith.data.loader import Loader
from bertsmith.data.shards.verification import Verification


@runtime_checkable
class PositionSource(Protocol):
    """Whatever gives something for a position, which is one integer, and knows the position after it."""

    def __call__(self, position: int) -> Any: ...
    def first_position(self) -> int: ...
    def next_position(self, position: int) -> int: ...
    def epoch(self, position: int) -> float: ...


@dataclass(frozen=True)
class Feed:
    """What lies at a position, handed through a collator: a pure function from a position to a batch."""

    source: PositionSource
    collate: Callable[[Any], Batch]
    fingerprint: str  # of the data: a run goes on only with the data it was begun with
    workers: int = 2
    verification: Verification | None = None  # of the files, which may still be under way

    def __call__(self, position: int) -> Batch:
        if self.verification is not None:
            self.verification.poll()
        return self.collate(self.source(position))

    def first_position(self) -> int:
        return self.source.first_position()

    def next_position(self, position: int) -> int:
        return self.source.next_position(position)

    def epoch(self, position: int) -> float:
        """How many times the data had been seen before this position."""
        return self.source.epoch(position)

    def verify(self) -> None:
        """Return when all of the data is known to be whole. What a run writes comes after that."""
        if self.verification is not None:
            self.verification.wait()

    def loader(self, position: int, *, pin_memory: bool) -> Loader:
        return Loader(self, self.source.next_position, position, self.workers, pin_memory=pin_memory)
