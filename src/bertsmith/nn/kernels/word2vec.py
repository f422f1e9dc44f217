"""Words and the company they keep: a block of word2vec learnt from in two programs of a GPU.

The thirty kernels that torch makes of a block are each so short that most of their time is the wait for the one before.
Here one kernel holds all products of a tile, and leaves what is to be added; the other adds it, when every tile has
read the tables as they were. `objectives/word2vec.py` says what is learnt, and is the exact, slower twin.

Shapes here: R tiles of a block, W words of a tile, C the same with the window on both sides, K false neighbours that
the block shares, V words of the vocabulary, D width.

Imported only where it is wanted, since it needs Triton.
"""

from typing import Literal, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int64
from torch import Tensor

PIECES = {"skip-gram": 64, "cbow": 128}  # numbers of a vector that are looked at together: the fastest on an H200
WIDEST = 128  # words of a tile with its windows, and false neighbours: their products lie in registers
WARPS = 8  # of a tile


def fits(wide: int, shared: int) -> bool:
    """Whether a tile of so many words, its windows included, fits with so many false neighbours."""
    return max(wide, shared) <= WIDEST


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
    """Move both tables by one block, none of its false neighbours by more than `farthest`."""
    (tiles, tile, wide), shared, width = in_window.shape, len(negative_ids), inputs.shape[1]
    own, others = (inputs, outputs) if kind == "skip-gram" else (outputs, inputs)
    of_own, of_others, of_false = (inputs.new_empty(tiles, rows, width) for rows in (tile, wide, shared))
    shape = {"width": width, "tile": tile, "wide": wide, "shared": shared}
    _tile_gradients[(tiles,)](
        own, others, outputs, words, in_window.view(torch.uint8), negative_ids, learning_rate,
        of_own, of_others, of_false,
        negatives=negatives, cbow=kind == "cbow", columns=_padded_size(wide), drawn=_padded_size(shared),
        piece=min(PIECES[kind], _padded_size(width)), num_warps=WARPS, num_stages=1, **shape,
    )  # fmt: skip
    _apply_gradients[(tiles * (tile + wide) + shared,)](
        own, others, outputs, words, negative_ids, of_own, of_others, of_false, tiles,
        farthest=max_step, numbers=_padded_size(width), num_warps=1, **shape,
    )  # fmt: skip


def _padded_size(size: int) -> int:
    """What a program can hold that many in: a power of two, and no product is of fewer than 16."""
    return max(16, 1 << (size - 1).bit_length())


# fmt: off
@triton.jit
@no_type_check
def _load_rows(table, rows, there, numbers, width: tl.constexpr):
    places = table + rows[:, None] * width + numbers[None, :]
    return tl.load(places, mask=there[:, None] & (numbers < width)[None, :], other=0.0)


@triton.jit
@no_type_check
def _store_rows(base, rows, there, numbers, width: tl.constexpr, found):
    places = base + rows[:, None] * width + numbers[None, :]
    tl.store(places, found, mask=there[:, None] & (numbers < width)[None, :])


@triton.jit
@no_type_check
def _product(one, other):
    """In full precision, of three products that the GPU is fast at."""
    return tl.dot(one, other, input_precision="tf32x3")


@triton.jit
@no_type_check
def _tile_gradients(
    own, others, outputs, words, near, false, rate, of_own, of_others, of_false, negatives: tl.constexpr,
    cbow: tl.constexpr, width: tl.constexpr, tile: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr,
    columns: tl.constexpr, drawn: tl.constexpr, piece: tl.constexpr
):
    """What a tile adds to the rows of its own words, of those round them and of the false neighbours."""
    number = tl.program_id(0)
    row, column, lot, first = tl.arange(0, tile), tl.arange(0, columns), tl.arange(0, drawn), tl.arange(0, piece)
    every, around, drew = row < tile, column < wide, lot < shared
    centres = tl.load(words + number * wide + (wide - tile) // 2 + row)
    company = tl.load(words + number * wide + column, mask=around, other=0)
    wrong = tl.load(false + lot, mask=drew, other=0)
    pairs = near + (number * tile + row[:, None]) * wide + column[None, :]
    pairs = tl.load(pairs, mask=around[None, :], other=0).to(tl.float32)
    count = tl.sum(pairs, 1)
    told = tl.where(count > 0, 1.0, 0.0) if cbow else count
    shares = pairs / tl.maximum(count, 1.0)[:, None]

    # How near the vectors are, over all their numbers.
    of_true = tl.zeros([tile, 1 if cbow else columns], tl.float32)
    of_wrong = tl.zeros([tile, drawn], tl.float32)
    for begin in range(0, width, piece):
        numbers = begin + first
        mine = _load_rows(own, centres, every, numbers, width)
        theirs = _load_rows(others, company, around, numbers, width)
        lies = _load_rows(outputs, wrong, drew, numbers, width)
        if cbow:
            read = _product(shares, theirs)
            of_true += tl.sum(read * mine, 1)[:, None]
        else:
            read = mine
            of_true += _product(read, tl.trans(theirs))
        of_wrong += _product(read, tl.trans(lies))

    # By how much each is missed, times the rate, and what follows for the vectors.
    scale = -tl.load(rate)
    missed = (tl.sigmoid(of_true) - 1) * scale * (told[:, None] if cbow else pairs)
    fooled = tl.sigmoid(of_wrong) * told[:, None] * (scale * negatives / shared)
    for begin in range(0, width, piece):
        numbers = begin + first
        mine = _load_rows(own, centres, every, numbers, width)
        theirs = _load_rows(others, company, around, numbers, width)
        lies = _load_rows(outputs, wrong, drew, numbers, width)
        if cbow:
            read = _product(shares, theirs)
            of_read = mine * missed + _product(fooled, lies)
            of_mine = read * missed
            of_theirs = _product(tl.trans(shares), of_read)
        else:
            read = mine
            of_mine = _product(missed, theirs) + _product(fooled, lies)
            of_theirs = _product(tl.trans(missed), read)
        _store_rows(of_own, number * tile + row, every, numbers, width, of_mine)
        _store_rows(of_others, number * wide + column, around, numbers, width, of_theirs)
        _store_rows(of_false, number * shared + lot, drew, numbers, width, _product(tl.trans(fooled), read))


@triton.jit
@no_type_check
def _apply_gradients(
    own, others, outputs, words, false, of_own, of_others, of_false, tiles, farthest: tl.constexpr,
    width: tl.constexpr, tile: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, numbers: tl.constexpr
):
    """One row added to its table: first those of the words, then of those round them, then of the false neighbours."""
    place = tl.program_id(0)
    number = tl.arange(0, numbers)
    there = number < width
    if place < tiles * tile:
        row = tl.load(words + place // tile * wide + (wide - tile) // 2 + place % tile)
        change = tl.load(of_own + place * width + number, mask=there, other=0.0)
        tl.atomic_add(own + row * width + number, change, mask=there, sem="relaxed")
    elif place < tiles * (tile + wide):
        place -= tiles * tile
        row = tl.load(words + place)
        change = tl.load(of_others + place * width + number, mask=there, other=0.0)
        tl.atomic_add(others + row * width + number, change, mask=there, sem="relaxed")
    else:
        place -= tiles * (tile + wide)
        row = tl.load(false + place)
        change = tl.zeros([numbers], tl.float32)
        for part in range(tiles):
            change += tl.load(of_false + (part * shared + place) * width + number, mask=there, other=0.0)
        length = tl.sqrt(tl.sum(change * change, 0))
        change *= farthest / tl.maximum(length, farthest)
        tl.atomic_add(outputs + row * width + number, change, mask=there, sem="relaxed")
# fmt: on
