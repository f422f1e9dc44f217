"""The loader: batches made ahead of time by threads, and returned in order."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from torch import Tensor

from bertsmith.data.batch import Batch


class Loader:
    """An iterator of (position, batch), for as many positions as are wanted.

    Each batch is a pure function of its position, so that the number of workers changes only the speed. Threads
    suffice, since numpy releases the interpreter's lock. An error in a thread is raised by `next` for its batch.
    """

    def __init__(
        self,
        make_batch: Callable[[int], Batch],
        positions: Iterator[int],
        workers: int,
        prefetch: int = 4,
        pin_memory: bool = False,
    ) -> None:
        self._make_batch, self._positions = make_batch, positions
        self._pin_memory = pin_memory
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="loader") if workers else None
        self._prefetch = max(prefetch, workers)
        self._pending: deque[tuple[int, Future[Batch]]] = deque()

    def __iter__(self) -> "Loader":
        return self

    def __next__(self) -> tuple[int, Batch]:
        if self._pool is None:
            position = next(self._positions)
            return position, self._prepare(position)
        while len(self._pending) < self._prefetch:
            position = next(self._positions)
            self._pending.append((position, self._pool.submit(self._prepare, position)))
        position, future = self._pending.popleft()
        return position, future.result()

    def close(self) -> None:
        """Stop the threads; pending batches are dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pending.clear()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self, position: int) -> Batch:
        batch = self._make_batch(position)
        return batch.map_tensors(Tensor.pin_memory) if self._pin_memory else batch
