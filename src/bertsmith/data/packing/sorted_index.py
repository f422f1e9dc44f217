"""A sorted index: `searchsorted` in many ascending numbers, by a table of first guesses instead of bisection."""

import numpy as np
from jaxtyping import Int32, Int64
from numpy import ndarray


class SortedIndex:
    """The starts of text units, and the end. Bisection takes three times as long, most of it waiting for memory.

    Positions are divided into buckets in which about one unit begins. The first unit of each bucket is stored, and the
    search steps on from there.
    """

    def __init__(self, numbers: Int64[ndarray, "N"]) -> None:
        self.values, self.last = numbers, int(numbers[-1])
        self._bits = (self.last // len(numbers)).bit_length()
        begun = np.bincount((numbers >> self._bits) + 1, minlength=(self.last >> self._bits) + 2)
        self._firsts: Int32[ndarray, ...] = np.cumsum(begun, dtype=np.int32 if len(numbers) < 1 << 31 else np.int64)

    def searchsorted(self, queries: Int64[ndarray, "N"]) -> Int64[ndarray, "N"]:
        """How many numbers are at or before each position: `np.searchsorted(numbers, positions, side="right")`."""
        inside = np.minimum(queries, self.last - 1)
        found = self._firsts[inside >> self._bits].astype(np.int64)
        late = np.flatnonzero(self.values[found] <= inside)
        while len(late):
            found[late] += 1
            late = late[self.values[found[late]] <= inside[late]]
        return np.asarray(found + (queries >= self.last))
