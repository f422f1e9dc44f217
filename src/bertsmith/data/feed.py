"""A feed: the trainer's view of the data, batches by position."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from bertsmith.data.batch import Batch
from bertsmith.data.loader import Loader
from bertsmith.data.shards.verification import Verification


@runtime_checkable
class PositionSource(Protocol):
    """Examples or sequences by position, which is one integer, with the position that follows."""

    def __call__(self, position: int) -> Any: ...
    def first_position(self) -> int: ...
    def next_position(self, position: int) -> int: ...
    def epoch(self, position: int) -> float: ...


@dataclass(frozen=True)
class Feed:
    """A source and a collator: a pure function from a position to a batch."""

    source: PositionSource
    collate: Callable[[Any], Batch]
    fingerprint: str  # of the data: a run is resumed only with the same data
    workers: int = 2
    verification: Verification | None = None  # of the files, which may not have finished

    def __call__(self, position: int) -> Batch:
        if self.verification is not None:
            self.verification.poll()
        return self.collate(self.source(position))

    def first_position(self) -> int:
        return self.source.first_position()

    def next_position(self, position: int) -> int:
        return self.source.next_position(position)

    def epoch(self, position: int) -> float:
        """The number of epochs before this position."""
        return self.source.epoch(position)

    def verify(self) -> None:
        """Return when all files are verified. A run writes nothing before."""
        if self.verification is not None:
            self.verification.wait()

    def loader(self, position: int, *, pin_memory: bool, update: int = 1, part: range | None = None) -> Loader:
        """A loader of the batches from this position on: all, or of every `update` of so many batches a `part`."""
        positions = self._positions(position, update, range(update) if part is None else part)
        return Loader(self, positions, self.workers, pin_memory=pin_memory)

    def after(self, position: int, update: int) -> int:
        """The position after an update of so many batches."""
        for _ in range(update):
            position = self.next_position(position)
        return position

    def _positions(self, position: int, update: int, part: range) -> Iterator[int]:
        while True:
            for index in range(update):
                if index in part:
                    yield position
                position = self.next_position(position)
