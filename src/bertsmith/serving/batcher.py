"""Continuous batching: whatever is waiting goes next, up to a budget of tokens, and nothing waits for more to come."""

from collections import deque
from collections.abc import Sequence
from threading import Condition
from typing import Generic, Protocol, TypeVar, runtime_checkable


@runtime_checkable
class HasTokens(Protocol):
    """A waiting job, with its number of tokens."""

    @property
    def tokens(self) -> int: ...


T = TypeVar("T", bound=HasTokens)


class Batcher(Generic[T]):
    """Jobs in the order of their arrival. Threads of connections add to it, and the thread that computes takes."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._jobs: deque[T] = deque()
        self._changed = Condition()
        self._closed = False

    def put(self, jobs: Sequence[T]) -> None:
        """Add jobs."""
        with self._changed:
            self._jobs.extend(jobs)
            self._changed.notify()

    def take(self, *, wait: bool = True) -> list[T]:
        """Everything that is waiting, up to the budget, and one job at least; empty when the batcher is closed.

        Without `wait` the list is also empty when there is no job.
        """
        with self._changed:
            while wait and not self._jobs and not self._closed:
                self._changed.wait()
            taken, tokens = list[T](), 0
            while self._jobs and (not taken or tokens + self._jobs[0].tokens <= self.budget):
                taken.append(self._jobs.popleft())
                tokens += taken[-1].tokens
            return taken

    def close(self) -> None:
        """Let `take` return when no job is left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
