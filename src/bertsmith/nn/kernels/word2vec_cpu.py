"""Loops: blocks of word2vec learnt from on a processor, as plain loops that Numba compiles.

A library takes longer to begin the small products of a block than to work them out, and leaves them to one processor.
Here the tiles of a block are shared by all processors, and so are the numbers of a vector when, after every tile has
read the tables as they were, all is added: nothing depends on who is faster, or on how many they are.
`objectives/word2vec.py` says what is learnt, and is the exact, slower twin.

Shapes here: G blocks, R tiles of a block, W words of a tile, C the same with the window on both sides, K false
neighbours that a block shares, V words of the vocabulary, D width.

Imported only where it is wanted, since it needs Numba.
"""

import math
from typing import Any, Literal, no_type_check

import numba
import numpy as np
from jaxtyping import Bool, Float32, Int64
from numba import prange

AT_ONCE = 4  # rows on either side that `_products` and `_gather` go over in one loop
PROCESSORS = numba.get_num_threads()

FLOAT = np.float32
DOUBLINGS = FLOAT(-1 / np.log(2))  # e to the -x is 2 to so many x
FIRST, SECOND, THIRD, FOURTH, FIFTH = (FLOAT(np.log(2) ** part / math.factorial(part)) for part in range(1, 6))

jit: Any = numba.njit(fastmath=True, error_model="numpy")
parallel_jit: Any = numba.njit(fastmath=True, error_model="numpy", parallel=True, nogil=True, cache=True)


def update(
    inputs: Float32[np.ndarray, "V D"],
    outputs: Float32[np.ndarray, "V D"],
    words: Int64[np.ndarray, "G R C"],
    in_window: Bool[np.ndarray, "G R W C"],
    context_counts: Float32[np.ndarray, "G RW 1"],
    negative_ids: Int64[np.ndarray, "G K"],
    *,
    learning_rate: float,
    kind: Literal["skip-gram", "cbow"],
    negatives: int,
    max_step: float,
    threads: int,
) -> None:
    """Move both tables by one block after the other, no false neighbour by more than `farthest` at once."""
    pieces = min(threads, PROCESSORS)
    numba.set_num_threads(pieces)
    (_, tiles, tile, wide), drawn, width = in_window.shape, negative_ids.shape[1], inputs.shape[1]
    held = -(-drawn // AT_ONCE) * AT_ONCE
    shapes = (tiles, tile, width), (tiles, wide, width), (held, width), (tiles * tile, width), (tiles * tile, held)
    space = tuple(np.empty(shape, FLOAT) for shape in shapes)
    lies = np.zeros((held, width), FLOAT)  # what only fills the last four stays nought
    own, others = (inputs, outputs) if kind == "skip-gram" else (outputs, inputs)
    rates = FLOAT(-learning_rate), FLOAT(negatives / drawn), FLOAT(max_step)
    _update(
        (own, others, outputs),
        (words, in_window, context_counts, negative_ids),
        rates,
        kind == "cbow",
        pieces,
        lies,
        space,
    )


# fmt: off
@parallel_jit
@no_type_check
def _update(tables, blocks, rates, cbow, pieces, lies, space):
    """Block after block: all tiles, then what they do to each false neighbour, then both tables, piece by piece."""
    own, others, outputs = tables
    words, near, company, false = blocks
    scale, weight, farthest = rates
    of_own, of_others, of_false, read, fooled = space
    tiles, tile = near.shape[1:3]
    wide, width = of_others.shape[1:]
    margin, drawn = (wide - tile) // 2, false.shape[1]
    for block in range(len(words)):
        for lot in range(drawn):
            lies[lot] = outputs[false[block, lot]]
        for number in prange(tiles):
            these = slice(number * tile, (number + 1) * tile)
            given = words[block, number], near[block, number], company[block, these, 0], lies, scale, weight
            left = of_own[number], of_others[number], read[these], fooled[these]
            if cbow:
                _cbow(own, others, given, left)
            else:
                _skip_gram(own, others, given, left)
        for four in prange(len(of_false) // AT_ONCE):
            lots = slice(four * AT_ONCE, (four + 1) * AT_ONCE)
            _negative_gradients(fooled[:, lots], read, of_false[lots], farthest)
        for piece in prange(pieces):
            some = slice(piece * width // pieces, (piece + 1) * width // pieces)
            for number in range(tiles):
                for place in range(tile):
                    _add_scaled(own[words[block, number, margin + place], some], FLOAT(1), of_own[number, place, some])
                for place in range(wide):
                    _add_scaled(others[words[block, number, place], some], FLOAT(1), of_others[number, place, some])
            for lot in range(drawn):
                _add_scaled(outputs[false[block, lot], some], FLOAT(1), of_false[lot, some])


@jit
@no_type_check
def _skip_gram(own, others, given, left):
    """What a tile leaves to be added where each word tells its neighbours, one by one."""
    words, near, company, lies, scale, weight = given
    of_own, of_others, read, fooled = left
    tile, reach = near.shape[0], near.shape[1] - near.shape[0] + 1
    of_own[:], of_others[:] = 0, 0
    for place in range(tile):
        read[place] = own[words[reach // 2 + place]]
    _products(read, lies, fooled)
    for place in range(tile):
        for other in range(place, place + reach):
            if near[place, other]:
                row = others[words[other]]
                missed = (_sigmoid(_product(read[place], row)) - FLOAT(1)) * scale
                _add_scaled(of_own[place], missed, row)
                _add_scaled(of_others[other], missed, read[place])
    _scaled_sigmoid(fooled, company * (scale * weight))
    _gather(fooled, lies, of_own)


@jit
@no_type_check
def _cbow(own, others, given, left):
    """What a tile leaves to be added where the mean of a word's neighbours tells the word."""
    words, near, company, lies, scale, weight = given
    of_own, of_others, read, fooled = left
    tile, reach = near.shape[0], near.shape[1] - near.shape[0] + 1
    shares, told = FLOAT(1) / np.maximum(company, FLOAT(1)), np.minimum(company, FLOAT(1)) * scale
    missed = np.empty(tile, FLOAT)
    of_read = of_own  # until all others have theirs
    read[:], of_read[:], of_others[:] = 0, 0, 0
    for place in range(tile):
        for other in range(place, place + reach):
            if near[place, other]:
                _add_scaled(read[place], shares[place], others[words[other]])
    _products(read, lies, fooled)
    for place in range(tile):
        true = own[words[reach // 2 + place]]
        missed[place] = (_sigmoid(_product(read[place], true)) - FLOAT(1)) * told[place]
        _add_scaled(of_read[place], missed[place], true)
    _scaled_sigmoid(fooled, told * weight)
    _gather(fooled, lies, of_read)
    for place in range(tile):
        for other in range(place, place + reach):
            if near[place, other]:
                _add_scaled(of_others[other], shares[place], of_read[place])
        of_own[place] = read[place] * missed[place]


@jit
@no_type_check
def _negative_gradients(fooled, read, of_false, farthest):
    """What all words of a block do to some of its false neighbours."""
    of_false[:] = 0
    _gather(fooled.T, read, of_false)
    for lot in range(len(of_false)):
        row = of_false[lot]
        length = np.sqrt(_product(row, row))
        if length > farthest:
            row *= farthest / length


@jit
@no_type_check
def _sigmoid(number):
    return FLOAT(1) / (FLOAT(1) + np.exp(-number))


@jit
@no_type_check
def _scaled_sigmoid(scores, factors):
    """The sigmoid of each, times its row's factor: to 1e-6, and as a compiler can do many at once.

    A power of two is its whole part, which is put where a float has its exponent, times that of what is left, at most
    a half, by the first parts of its series.
    """
    every, powers = scores.reshape(-1), np.empty_like(scores)
    exponents = powers.reshape(-1).view(np.int32)
    for lot in range(len(every)):
        power = min(max(every[lot] * DOUBLINGS, FLOAT(-126)), FLOAT(126))
        whole = np.floor(power + FLOAT(0.5))
        left = power - whole
        exponents[lot] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        every[lot] = FLOAT(1) + left * (FIRST + left * (SECOND + left * (THIRD + left * (FOURTH + left * FIFTH))))
    for place in range(len(scores)):
        row, power = scores[place], powers[place]
        for lot in range(len(row)):
            row[lot] = factors[place] / (FLOAT(1) + row[lot] * power[lot])


@jit
@no_type_check
def _product(one, other):
    total = FLOAT(0)
    for number in range(len(one)):
        total += one[number] * other[number]
    return total


@jit
@no_type_check
def _add_scaled(row, factor, other):
    for number in range(len(row)):
        row[number] += factor * other[number]


@jit
@no_type_check
def _products(rows, table, found):
    """Of every row with every one of a table: four with four at a time, so that more is multiplied than loaded."""
    for row in range(0, len(rows), 4):
        one, two, three, four = _four(rows, row)
        for place in range(0, len(table), 4):
            a, b, c, d = _four(table, place)
            first = second = third = fourth = (FLOAT(0), FLOAT(0), FLOAT(0), FLOAT(0))
            for number in range(len(one)):
                these = a[number], b[number], c[number], d[number]
                first = _multiply_add(first, one[number], these)
                second = _multiply_add(second, two[number], these)
                third = _multiply_add(third, three[number], these)
                fourth = _multiply_add(fourth, four[number], these)
            _store_four(first, found[row], place)
            _store_four(second, found[row + 1], place)
            _store_four(third, found[row + 2], place)
            _store_four(fourth, found[row + 3], place)


@jit
@no_type_check
def _gather(weights, table, found):
    """To every row all rows of a table, each by its weight: to four of them four at a time."""
    for row in range(0, len(found), 4):
        one, two, three, four = _four(found, row)
        for place in range(0, len(table), 4):
            a, b, c, d = _four(table, place)
            first, second = _four(weights[row], place), _four(weights[row + 1], place)
            third, fourth = _four(weights[row + 2], place), _four(weights[row + 3], place)
            for number in range(len(one)):
                these = a[number], b[number], c[number], d[number]
                one[number] += _weighted_sum(first, these)
                two[number] += _weighted_sum(second, these)
                three[number] += _weighted_sum(third, these)
                four[number] += _weighted_sum(fourth, these)


@jit
@no_type_check
def _four(rows, place):
    """Four rows of a table, or four numbers of a row."""
    return rows[place], rows[place + 1], rows[place + 2], rows[place + 3]


@jit
@no_type_check
def _store_four(numbers, row, place):
    row[place], row[place + 1], row[place + 2], row[place + 3] = numbers


@jit
@no_type_check
def _multiply_add(sums, factor, others):
    a, b, c, d = others
    return sums[0] + factor * a, sums[1] + factor * b, sums[2] + factor * c, sums[3] + factor * d


@jit
@no_type_check
def _weighted_sum(weights, others):
    a, b, c, d = others
    return weights[0] * a + weights[1] * b + weights[2] * c + weights[3] * d
# fmt: on
