"""Deduplication: a compact set of the 16-byte digests of the documents read before."""

from array import array
from itertools import compress
from struct import unpack


class DigestSet:
    """A set of digests in two arrays of integers, 24 to 48 bytes a digest; Python's own set takes over 100.

    Open addressing with linear probing: a digest is already a good hash, so its low bits are the slot.
    """

    def __init__(self) -> None:
        self._count = 0
        self._clear(1 << 10)

    def __len__(self) -> int:
        return self._count

    def add(self, digest: bytes) -> bool:
        """Add a digest of 16 bytes; True if it is new."""
        low, high = unpack("<QQ", digest)
        if not self._put(low or 1, high):  # zero marks an empty slot
            return False
        self._count += 1
        if self._count * 3 > len(self._low) * 2:
            self._grow()
        return True

    def _put(self, low: int, high: int) -> bool:
        lows, highs = self._low, self._high
        mask = len(lows) - 1
        slot = low & mask
        while stored := lows[slot]:
            if stored == low and highs[slot] == high:
                return False
            slot = (slot + 1) & mask
        lows[slot], highs[slot] = low, high
        return True

    def _grow(self) -> None:
        lows, highs = self._low, self._high
        self._clear(2 * len(lows))
        for low, high in zip(compress(lows, lows), compress(highs, lows), strict=True):
            self._put(low, high)

    def _clear(self, slots: int) -> None:
        self._low, self._high = array("Q", [0]) * slots, array("Q", [0]) * slots
