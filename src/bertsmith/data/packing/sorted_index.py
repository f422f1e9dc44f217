"""Nearby: which of many rising numbers is the first behind a place, looked up beside it instead of among all."""

import numpy as np
from jaxtyping import Int32, Int64
from numpy import ndarray


class SortedIndex:
    """Where units of text begin, and the end. A search among all takes three times as long, as most of it is waiting.

    The places are parted into stretches, in each of which about one unit begins. Of every stretch the first unit is
    kept, and from there on one after the other is tried.
    """

    def __init__(self, numbers: Int64[ndarray, "N"]) -> None:
        self.values, self.last = numbers, int(numbers[-1])
        self._bits = (self.last // len(numbers)).bit_length()
        begun = np.bincount((numbers >> self._bits) + 1, minlength=(self.last >> self._bits) + 2)
        self._firsts: Int32[ndarray, ...] = np.cumsum(begun, dtype=np.int32 if len(numbers) < 1 << 31 else np.int64)

    def searchsorted(self, queries: Int64[ndarray, "N"]) -> Int64[ndarray, "N"]:
        """How many numbers do not lie behind each place: `np.searchsorted(numbers, places, side="right")`."""
        inside = np.minimum(queries, self.last - 1)
        found = self._firsts[inside >> self._bits].astype(np.int64)
        late = np.flatnonzero(self.values[found] <= inside)
        while len(late):
            found[late] += 1
            late = late[self.values[found[late]] <= inside[late]]
        return np.asarray(found + (queries >= self.last))
