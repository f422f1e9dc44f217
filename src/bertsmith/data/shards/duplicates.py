"""Deduplication: a packed set of 16-byte digests of the documents that were read before."""

from array import array
from itertools import compress
from struct import unpack


class DigestSet:
    """A set of digests in two arrays of numbers, 24 to 48 bytes for each; Python's own set takes over 100.

    Open addressing with linear steps: a digest is already a good hash, so its own bits say where to look.
    """

    def __init__(self) -> None:
        self._count = 0
        self._clear(1 << 10)

    def __len__(self) -> int:
        return self._count

    def add(self, digest: bytes) -> bool:
        """Put a digest of 16 bytes in; True if it was not there."""
        low, high = unpack("<QQ", digest)
        if not self._put(low or 1, high):  # zero marks an empty place
            return False
        self._count += 1
        if self._count * 3 > len(self._low) * 2:
            self._grow()
        return True

    def _put(self, low: int, high: int) -> bool:
        lows, highs = self._low, self._high
        last = len(lows) - 1
        place = low & last
        while found := lows[place]:
            if found == low and highs[place] == high:
                return False
            place = (place + 1) & last
        lows[place], highs[place] = low, high
        return True

    def _grow(self) -> None:
        lows, highs = self._low, self._high
        self._clear(2 * len(lows))
        for low, high in zip(compress(lows, lows), compress(highs, lows), strict=True):
            self._put(low, high)

    def _clear(self, slots: int) -> None:
        self._low, self._high = array("Q", [0]) * slots, array("Q", [0]) * slots
