"""Chance that never changes: hashes of integers where others would use a random number generator.

A generator has a state and a version; a hash has neither. What is drawn for (seed, epoch, index) is the same on every
machine, in every process, in any order, today and after an update of numpy.
"""

from math import isqrt

import numpy as np
from numpy.typing import NDArray

RandomBits = NDArray[np.uint64]
Integers = int | NDArray[np.integer]

# What a draw is for: the second part of a hash, after the seed, so that no two purposes ever share their chance.
WALK, ORDER, RANDOM_SECOND, BATCH, TEXT, DOCUMENT = range(6)

_MASK64 = 0xFFFF_FFFF_FFFF_FFFF
_STEP, _FIRST, _SECOND = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB


def mix(*parts: Integers) -> RandomBits:
    """Integers stirred into 64 bits that look random, element by element: splitmix64, Steele et al. 2014."""
    word: int | RandomBits = 0
    for part in parts:
        if isinstance(part, int) and isinstance(word, int):  # numpy is slow on lone numbers
            word = (word + _STEP & _MASK64) ^ (part & _MASK64)
            word = (word ^ word >> 30) * _FIRST & _MASK64
            word = (word ^ word >> 27) * _SECOND & _MASK64
            word ^= word >> 31
        else:
            old = word + _STEP & _MASK64 if isinstance(word, int) else word + np.uint64(_STEP)
            new = part & _MASK64 if isinstance(part, int) else part.astype(np.uint64, copy=False)
            word = np.bitwise_xor(old, new, dtype=np.uint64)
            word ^= word >> np.uint64(30)
            word *= np.uint64(_FIRST)
            word ^= word >> np.uint64(27)
            word *= np.uint64(_SECOND)
            word ^= word >> np.uint64(31)
    return np.asarray(word, np.uint64)


def uniform(*parts: Integers) -> NDArray[np.float64]:
    """One number in [0, 1) for each element of the parts, all 53 bits of it random."""
    return np.asarray((mix(*parts) >> 11) * 2.0**-53)


def permute(index: NDArray[np.integer], size: int, key: int) -> NDArray[np.int64]:
    """Where each index below `size` goes in a shuffle of all of them, found without shuffling the others.

    A Feistel network (Luby and Rackoff 1988) on a grid of about sqrt(size) by sqrt(size): in turn the row is moved by a
    hash of the column and the column by a hash of the row, each of which can be undone, so no two indices meet. The
    few cells past `size` are walked on from until they come back inside.
    """
    rows = isqrt(max(size - 1, 0)) + 1
    columns = -(-size // rows)
    moves = [  # a column holds few rows, so that each hash is looked up many times
        (
            _integers_below(rows, key, 2 * turn, np.arange(columns)),
            _integers_below(columns, key, 2 * turn + 1, np.arange(rows)),
        )
        for turn in range(3)
    ]
    place = index.astype(np.int64)
    outside = np.flatnonzero(place < size)
    while len(outside):
        row, column = np.divmod(place[outside], columns)
        for of_column, of_row in moves:
            row += of_column[column]
            row -= rows * (row >= rows)
            column += of_row[row]
            column -= columns * (column >= columns)
        place[outside] = row * columns + column
        outside = outside[place[outside] >= size]
    return place


def _integers_below(size: int, *parts: Integers) -> NDArray[np.int64]:
    """Whole numbers from 0 to size - 1, for sizes of up to 32 bits."""
    return np.asarray(((mix(*parts) >> 32) * np.uint64(size)) >> 32).astype(np.int64)
