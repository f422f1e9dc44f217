"""word2vec on a CPU: blocks of skip-gram or CBOW with negative sampling, as plain loops that Numba compiles.

A library takes longer to start the small products of a block than to compute them, and leaves them to one core. Here
the tiles of a block are shared by all cores. After every tile has read the tables, the updates are added, and the cores
share the dimensions of the vectors: the result depends neither on timing nor on the number of cores.
`objectives/word2vec.py` says what is learnt, and is the exact, slower twin.

Shapes: G blocks, R tiles of a block, W words of a tile, C words of a tile with the windows on both sides, K negative
samples that a block shares, V words of the vocabulary, D width.

Imported only where it is used, since it needs Numba.
"""

import math
from typing import Any, Literal, no_type_check

import numba
import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from numba import prange

UNROLL = 4  # rows on either side that `_products` and `_gather` take in one loop
PROCESSORS: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # numba's function starts its threads

FLOAT = np.float32
MINUS_LOG2_E = FLOAT(-1 / np.log(2))  # exp(-x) is 2 ** (x * MINUS_LOG2_E)
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
    """Steps of SGD on both tables, block by block; the update of a negative sample is at most `max_step` long."""
    cores = min(threads, PROCESSORS)
    before = torch.get_num_threads()
    numba.set_num_threads(cores)
    torch.set_num_threads(before)  # Numba's threads set the number of OpenMP's as they start, and torch has the same
    (_, tiles, tile, wide), shared, width = in_window.shape, negative_ids.shape[1], inputs.shape[1]
    padded = -(-shared // UNROLL) * UNROLL
    shapes = (tiles, tile, width), (tiles, wide, width), (padded, width), (tiles * tile, width), (tiles * tile, padded)
    buffers = tuple(np.empty(shape, FLOAT) for shape in shapes)
    samples = np.zeros((padded, width), FLOAT)  # rows of padding stay 0
    centre_table, context_table = (inputs, outputs) if kind == "skip-gram" else (outputs, inputs)
    rates = FLOAT(-learning_rate), FLOAT(negatives / shared), FLOAT(max_step)
    _update(
        (centre_table, context_table, outputs),
        (words, in_window, context_counts, negative_ids),
        rates,
        kind == "cbow",
        cores,
        samples,
        buffers,
    )


# fmt: off
@parallel_jit
@no_type_check
def _update(tables, blocks, rates, cbow, cores, samples, buffers):
    """Block after block: all tiles, then the updates of the negative samples, then both tables."""
    centre_table, context_table, outputs = tables
    words, in_window, context_counts, negative_ids = blocks
    scale, weight, max_step = rates
    centre_updates, context_updates, negative_updates, hidden, negative_steps = buffers
    tiles, tile = in_window.shape[1:3]
    wide, width = context_updates.shape[1:]
    margin, shared = (wide - tile) // 2, negative_ids.shape[1]
    for block in range(len(words)):
        for index in range(shared):
            samples[index] = outputs[negative_ids[block, index]]
        for number in prange(tiles):
            rows = slice(number * tile, (number + 1) * tile)
            inputs = (
                words[block, number], in_window[block, number], context_counts[block, rows, 0], samples, scale, weight
            )
            results = centre_updates[number], context_updates[number], hidden[rows], negative_steps[rows]
            if cbow:
                _cbow(centre_table, context_table, inputs, results)
            else:
                _skip_gram(centre_table, context_table, inputs, results)
        for four in prange(len(negative_updates) // UNROLL):
            some = slice(four * UNROLL, (four + 1) * UNROLL)
            _negative_updates(negative_steps[:, some], hidden, negative_updates[some], max_step)
        for core in prange(cores):
            dims = slice(core * width // cores, (core + 1) * width // cores)
            for number in range(tiles):
                for place in range(tile):
                    word = words[block, number, margin + place]
                    _add_scaled(centre_table[word, dims], FLOAT(1), centre_updates[number, place, dims])
                for place in range(wide):
                    word = words[block, number, place]
                    _add_scaled(context_table[word, dims], FLOAT(1), context_updates[number, place, dims])
            for index in range(shared):
                _add_scaled(outputs[negative_ids[block, index], dims], FLOAT(1), negative_updates[index, dims])


@jit
@no_type_check
def _skip_gram(centre_table, context_table, inputs, results):
    """The updates of a tile by skip-gram: each word predicts its neighbours, one by one."""
    words, in_window, context_counts, samples, scale, weight = inputs
    centre_updates, context_updates, hidden, negative_steps = results
    tile, span = in_window.shape[0], in_window.shape[1] - in_window.shape[0] + 1
    centre_updates[:], context_updates[:] = 0, 0
    for place in range(tile):
        hidden[place] = centre_table[words[span // 2 + place]]
    _products(hidden, samples, negative_steps)
    for place in range(tile):
        for other in range(place, place + span):
            if in_window[place, other]:
                row = context_table[words[other]]
                positive_steps = (_sigmoid(_product(hidden[place], row)) - FLOAT(1)) * scale
                _add_scaled(centre_updates[place], positive_steps, row)
                _add_scaled(context_updates[other], positive_steps, hidden[place])
    _scaled_sigmoid(negative_steps, context_counts * (scale * weight))
    _gather(negative_steps, samples, centre_updates)


@jit
@no_type_check
def _cbow(centre_table, context_table, inputs, results):
    """The updates of a tile by CBOW: the mean of a word's neighbours predicts the word."""
    words, in_window, context_counts, samples, scale, weight = inputs
    centre_updates, context_updates, hidden, negative_steps = results
    tile, span = in_window.shape[0], in_window.shape[1] - in_window.shape[0] + 1
    mean_weights, scales = FLOAT(1) / np.maximum(context_counts, FLOAT(1)), np.minimum(context_counts, FLOAT(1)) * scale
    positive_steps = np.empty(tile, FLOAT)
    hidden_updates = centre_updates  # the same buffer, until the context words have their updates
    hidden[:], hidden_updates[:], context_updates[:] = 0, 0, 0
    for place in range(tile):
        for other in range(place, place + span):
            if in_window[place, other]:
                _add_scaled(hidden[place], mean_weights[place], context_table[words[other]])
    _products(hidden, samples, negative_steps)
    for place in range(tile):
        true = centre_table[words[span // 2 + place]]
        positive_steps[place] = (_sigmoid(_product(hidden[place], true)) - FLOAT(1)) * scales[place]
        _add_scaled(hidden_updates[place], positive_steps[place], true)
    _scaled_sigmoid(negative_steps, scales * weight)
    _gather(negative_steps, samples, hidden_updates)
    for place in range(tile):
        for other in range(place, place + span):
            if in_window[place, other]:
                _add_scaled(context_updates[other], mean_weights[place], hidden_updates[place])
        centre_updates[place] = hidden[place] * positive_steps[place]


@jit
@no_type_check
def _negative_updates(negative_steps, hidden, updates, max_step):
    """The updates of some negative samples by all words of a block, each at most `max_step` long."""
    updates[:] = 0
    _gather(negative_steps.T, hidden, updates)
    for index in range(len(updates)):
        row = updates[index]
        length = np.sqrt(_product(row, row))
        if length > max_step:
            row *= max_step / length


@jit
@no_type_check
def _sigmoid(number):
    return FLOAT(1) / (FLOAT(1) + np.exp(-number))


@jit
@no_type_check
def _scaled_sigmoid(scores, factors):
    """The sigmoid of each score times its row's factor, in place: to 1e-6, in loops that a compiler can vectorise.

    Two to a power is two to its integer part, which is written into the exponent of a float, times two to the rest, at
    most a half, by the first five terms of its series.
    """
    every, powers = scores.reshape(-1), np.empty_like(scores)
    exponents = powers.reshape(-1).view(np.int32)
    for index in range(len(every)):
        power = min(max(every[index] * MINUS_LOG2_E, FLOAT(-126)), FLOAT(126))
        whole = np.floor(power + FLOAT(0.5))
        rest = power - whole
        exponents[index] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        every[index] = FLOAT(1) + rest * (FIRST + rest * (SECOND + rest * (THIRD + rest * (FOURTH + rest * FIFTH))))
    for place in range(len(scores)):
        row, power = scores[place], powers[place]
        for index in range(len(row)):
            row[index] = factors[place] / (FLOAT(1) + row[index] * power[index])


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
    """Dot products of every row with every row of a table: four by four, so that more is multiplied than loaded."""
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
    """Adds the weighted rows of a table to every row: four by four."""
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
    """Four consecutive rows of a table, or numbers of a row."""
    return rows[place], rows[place + 1], rows[place + 2], rows[place + 3]


@jit
@no_type_check
def _store_four(numbers, row, place):
    row[place], row[place + 1], row[place + 2], row[place + 3] = numbers


@jit
@no_type_check
def _multiply_add(sums, factor, four):
    a, b, c, d = four
    return sums[0] + factor * a, sums[1] + factor * b, sums[2] + factor * c, sums[3] + factor * d


@jit
@no_type_check
def _weighted_sum(weights, four):
    a, b, c, d = four
    return weights[0] * a + weights[1] * b + weights[2] * c + weights[3] * d
# fmt: on
