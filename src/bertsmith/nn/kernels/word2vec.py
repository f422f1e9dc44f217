"""word2vec on a GPU: a block of skip-gram or CBOW with negative sampling, in two Triton kernels.

Of the thirty kernels that torch makes of a block each is so short that most of its time is the wait for the one before.
Here one kernel computes all products of a tile and stores the updates; the other adds them to the tables, after every
tile has read the tables. `objectives/word2vec.py` says what is learnt, and is the exact, slower twin.

Shapes: R tiles of a block, W words of a tile, C words of a tile with the windows on both sides, K negative samples that
the block shares, V words of the vocabulary, D width.

Imported only where it is used, since it needs Triton.
"""

from typing import Literal, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int64
from torch import Tensor

CHUNKS = {"skip-gram": 64, "cbow": 128}  # dimensions of a vector at a time: the fastest on an H200
MAX_WORDS = 128  # of a tile with its windows, and of negative samples: their products are kept in registers
WARPS = 8  # of a tile


def fits(wide: int, shared: int) -> bool:
    """Whether a tile of `wide` words, its windows included, fits with `shared` negative samples."""
    return max(wide, shared) <= MAX_WORDS


def update(
    inputs: Float[Tensor, "V D"],
    outputs: Float[Tensor, "V D"],
    words: Int64[Tensor, "R C"],
    in_window: Bool[Tensor, "R W C"],
    negative_ids: Int64[Tensor, " K"],
    learning_rate: Float[Tensor, ""],
    *,
    kind: Literal["skip-gram", "cbow"],
    negatives: int,
    max_step: float,
) -> None:
    """One step of SGD on both tables by one block; the update of a negative sample is at most `max_step` long."""
    (tiles, tile, wide), shared, width = in_window.shape, len(negative_ids), inputs.shape[1]
    centre_table, context_table = (inputs, outputs) if kind == "skip-gram" else (outputs, inputs)
    updates = tuple(inputs.new_empty(tiles, rows, width) for rows in (tile, wide, shared))
    shape = {"width": width, "tile": tile, "wide": wide, "shared": shared}
    _tile_updates[(tiles,)](
        centre_table, context_table, outputs, words, in_window.view(torch.uint8), negative_ids, learning_rate, *updates,
        negatives=negatives, cbow=kind == "cbow", context_block=_padded_size(wide),
        negative_block=_padded_size(shared), chunk=min(CHUNKS[kind], _padded_size(width)), num_warps=WARPS,
        num_stages=1, **shape,
    )  # fmt: skip
    _apply_updates[(tiles * (tile + wide) + shared,)](
        centre_table, context_table, outputs, words, negative_ids, *updates, tiles, max_step=max_step,
        width_block=_padded_size(width), num_warps=1, **shape,
    )  # fmt: skip


def _padded_size(size: int) -> int:
    """The block for a size: Triton takes powers of two, and products of at least 16."""
    return max(16, 1 << (size - 1).bit_length())


# fmt: off
@triton.jit
@no_type_check
def _load_rows(table, rows, valid, dims, width: tl.constexpr):
    addresses = table + rows[:, None] * width + dims[None, :]
    return tl.load(addresses, mask=valid[:, None] & (dims < width)[None, :], other=0.0)


@triton.jit
@no_type_check
def _store_rows(base, rows, valid, dims, width: tl.constexpr, values):
    addresses = base + rows[:, None] * width + dims[None, :]
    tl.store(addresses, values, mask=valid[:, None] & (dims < width)[None, :])


@triton.jit
@no_type_check
def _product(left, right):
    """In float32 precision, as three TF32 products of the tensor cores."""
    return tl.dot(left, right, input_precision="tf32x3")


@triton.jit
@no_type_check
def _tile_updates(
    centre_table, context_table, outputs, words, in_window, negative_ids, learning_rate, centre_updates,
    context_updates, negative_updates, negatives: tl.constexpr, cbow: tl.constexpr, width: tl.constexpr,
    tile: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, context_block: tl.constexpr,
    negative_block: tl.constexpr, chunk: tl.constexpr
):
    """The updates of a tile for the rows of its centre words, of their context words and of the negative samples."""
    number = tl.program_id(0)
    row, column = tl.arange(0, tile), tl.arange(0, context_block)
    sample, first = tl.arange(0, negative_block), tl.arange(0, chunk)
    valid_row, valid_column, valid_sample = row < tile, column < wide, sample < shared
    centre_ids = tl.load(words + number * wide + (wide - tile) // 2 + row)
    context_ids = tl.load(words + number * wide + column, mask=valid_column, other=0)
    sample_ids = tl.load(negative_ids + sample, mask=valid_sample, other=0)
    pairs = in_window + (number * tile + row[:, None]) * wide + column[None, :]
    pairs = tl.load(pairs, mask=valid_column[None, :], other=0).to(tl.float32)
    count = tl.sum(pairs, 1)
    targets = tl.where(count > 0, 1.0, 0.0) if cbow else count
    mean_weights = pairs / tl.maximum(count, 1.0)[:, None]

    # Dot products of the vectors, chunk by chunk.
    positive_scores = tl.zeros([tile, 1 if cbow else context_block], tl.float32)
    negative_scores = tl.zeros([tile, negative_block], tl.float32)
    for begin in range(0, width, chunk):
        dims = begin + first
        centres = _load_rows(centre_table, centre_ids, valid_row, dims, width)
        contexts = _load_rows(context_table, context_ids, valid_column, dims, width)
        samples = _load_rows(outputs, sample_ids, valid_sample, dims, width)
        if cbow:
            hidden = _product(mean_weights, contexts)
            positive_scores += tl.sum(hidden * centres, 1)[:, None]
        else:
            hidden = centres
            positive_scores += _product(hidden, tl.trans(contexts))
        negative_scores += _product(hidden, tl.trans(samples))

    # The gradients of the scores times the learning rate, then the updates of the vectors.
    scale = -tl.load(learning_rate)
    positive_steps = (tl.sigmoid(positive_scores) - 1) * scale * (targets[:, None] if cbow else pairs)
    negative_steps = tl.sigmoid(negative_scores) * targets[:, None] * (scale * negatives / shared)
    for begin in range(0, width, chunk):
        dims = begin + first
        centres = _load_rows(centre_table, centre_ids, valid_row, dims, width)
        contexts = _load_rows(context_table, context_ids, valid_column, dims, width)
        samples = _load_rows(outputs, sample_ids, valid_sample, dims, width)
        if cbow:
            hidden = _product(mean_weights, contexts)
            hidden_update = centres * positive_steps + _product(negative_steps, samples)
            centre_update = hidden * positive_steps
            context_update = _product(tl.trans(mean_weights), hidden_update)
        else:
            hidden = centres
            centre_update = _product(positive_steps, contexts) + _product(negative_steps, samples)
            context_update = _product(tl.trans(positive_steps), hidden)
        negative_update = _product(tl.trans(negative_steps), hidden)
        _store_rows(centre_updates, number * tile + row, valid_row, dims, width, centre_update)
        _store_rows(context_updates, number * wide + column, valid_column, dims, width, context_update)
        _store_rows(negative_updates, number * shared + sample, valid_sample, dims, width, negative_update)


@triton.jit
@no_type_check
def _apply_updates(
    centre_table, context_table, outputs, words, negative_ids, centre_updates, context_updates, negative_updates, tiles,
    max_step: tl.constexpr, width: tl.constexpr, tile: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr,
    width_block: tl.constexpr
):
    """One row added to its table: programs of centre words first, then of context words, then of negative samples."""
    index = tl.program_id(0)
    dim = tl.arange(0, width_block)
    valid = dim < width
    if index < tiles * tile:
        row = tl.load(words + index // tile * wide + (wide - tile) // 2 + index % tile)
        update = tl.load(centre_updates + index * width + dim, mask=valid, other=0.0)
        tl.atomic_add(centre_table + row * width + dim, update, mask=valid, sem="relaxed")
    elif index < tiles * (tile + wide):
        index -= tiles * tile
        row = tl.load(words + index)
        update = tl.load(context_updates + index * width + dim, mask=valid, other=0.0)
        tl.atomic_add(context_table + row * width + dim, update, mask=valid, sem="relaxed")
    else:
        index -= tiles * (tile + wide)
        row = tl.load(negative_ids + index)
        update = tl.zeros([width_block], tl.float32)
        for number in range(tiles):
            update += tl.load(negative_updates + (number * shared + index) * width + dim, mask=valid, other=0.0)
        length = tl.sqrt(tl.sum(update * update, 0))
        update *= max_step / tl.maximum(length, max_step)
        tl.atomic_add(outputs + row * width + dim, update, mask=valid, sem="relaxed")
# fmt: on
