"""Counter-based random numbers: hashes of integers instead of a random number generator.

A generator has a state and a version; a hash has neither. The number for (seed, epoch, index) is the same on every
machine, in every process, in any order, and after an update of numpy.
"""

from math import isqrt

import numpy as np
from numpy.typing import NDArray

RandomBits = NDArray[np.uint64]
Integers = int | NDArray[np.integer]

# The purpose of a draw: the second part of a hash, after the seed, so that no two purposes share random bits.
WALK, ORDER, RANDOM_SECOND, BATCH, TEXT, DOCUMENT, IMAGE = range(7)

_MASK64 = 0xFFFF_FFFF_FFFF_FFFF
_STEP, _FIRST, _SECOND = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB


def mix(*parts: Integers) -> RandomBits:
    """64 random bits as a hash of integers, element by element: splitmix64, Steele et al. 2014."""
    bits: int | RandomBits = 0
    for part in parts:
        if isinstance(part, int) and isinstance(bits, int):  # numpy is slow on single numbers
            bits = (bits + _STEP & _MASK64) ^ (part & _MASK64)
            bits = (bits ^ bits >> 30) * _FIRST & _MASK64
            bits = (bits ^ bits >> 27) * _SECOND & _MASK64
            bits ^= bits >> 31
        else:
            old = bits + _STEP & _MASK64 if isinstance(bits, int) else bits + np.uint64(_STEP)
            new = part & _MASK64 if isinstance(part, int) else part.astype(np.uint64, copy=False)
            bits = np.bitwise_xor(old, new, dtype=np.uint64)
            bits ^= bits >> np.uint64(30)
            bits *= np.uint64(_FIRST)
            bits ^= bits >> np.uint64(27)
            bits *= np.uint64(_SECOND)
            bits ^= bits >> np.uint64(31)
    return np.asarray(bits, np.uint64)


def uniform(*parts: Integers) -> NDArray[np.float64]:
    """A uniform random number in [0, 1), of 53 random bits, for each element of the parts."""
    return np.asarray((mix(*parts) >> 11) * 2.0**-53)


def permute(index: NDArray[np.integer], size: int, key: int) -> NDArray[np.int64]:
    """A random permutation of `range(size)` at some indices, computed without the others.

    A Feistel network (Luby and Rackoff 1988) on a grid of about sqrt(size) by sqrt(size): in turn the row is shifted by
    a hash of the column and the column by a hash of the row. Each shift is invertible, so no two indices collide. The
    few cells past `size` are permuted again until they fall inside (cycle walking).
    """
    rows = isqrt(max(size - 1, 0)) + 1
    columns = -(-size // rows)
    shifts = [  # there are few rows and columns, so that each hash is used many times
        (
            _integers_below(rows, key, 2 * turn, np.arange(columns)),
            _integers_below(columns, key, 2 * turn + 1, np.arange(rows)),
        )
        for turn in range(3)
    ]
    permuted = index.astype(np.int64)
    outside = np.flatnonzero(permuted < size)
    while len(outside):
        row, column = np.divmod(permuted[outside], columns)
        for row_shift, column_shift in shifts:
            row += row_shift[column]
            row -= rows * (row >= rows)
            column += column_shift[row]
            column -= columns * (column >= columns)
        permuted[outside] = row * columns + column
        outside = outside[permuted[outside] >= size]
    return permuted


def _integers_below(size: int, *parts: Integers) -> NDArray[np.int64]:
    """Random integers from 0 to size - 1, for sizes of up to 32 bits."""
    return np.asarray(((mix(*parts) >> 32) * np.uint64(size)) >> 32).astype(np.int64)
