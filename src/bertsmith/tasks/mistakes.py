"""What a report keeps of a stream of predictions: the most confident mistakes, and an even sample of the rest."""

import heapq
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

MAX_MISTAKES = 20  # mistakes on a page
MAX_CHARACTERS = 400  # characters of each text that are kept

T = TypeVar("T")


class Mistakes:
    """The most confident mistakes, in order of confidence; ties in the order of the file."""

    def __init__(self, limit: int = MAX_MISTAKES) -> None:
        self.limit, self.count = limit, 0
        self._heap: list[tuple[float, int, dict[str, Any]]] = []

    def add(
        self, confidence: float, location: str, texts: Sequence[str], true: str, predicted: str, **more: Any
    ) -> None:
        """Count a mistake, and keep it if it is among the most confident."""
        self.count += 1
        if len(self._heap) == self.limit and confidence <= self._heap[0][0]:
            return
        entry = {"location": location, "texts": [clip_text(text) for text in texts], "true": clip_text(true)}
        entry |= {"predicted": clip_text(predicted), **more}
        push = heapq.heappush if len(self._heap) < self.limit else heapq.heappushpop
        push(self._heap, (confidence, -self.count, entry))

    def to_list(self) -> list[dict[str, Any]]:
        return [entry for _, _, entry in sorted(self._heap, key=lambda one: (-one[0], -one[1]))]


class Sample(Generic[T]):
    """At most `limit` elements of a stream, evenly spaced: when it is full, every second one is dropped."""

    def __init__(self, limit: int) -> None:
        self.limit, self.count, self.step = limit, 0, 1
        self.kept: list[T] = []

    def add(self, one: T) -> None:
        if self.count % self.step == 0:
            self.kept.append(one)
            if len(self.kept) > self.limit:
                self.kept, self.step = self.kept[::2], 2 * self.step
        self.count += 1


def clip_text(text: str) -> str:
    """The beginning of a text, for a page."""
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
