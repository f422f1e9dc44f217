"""Blocks of a long sequence, as its attention kernels divide it: which one a program has, which ones its window
reaches, and how one is loaded."""

from typing import no_type_check

import triton
import triton.language as tl


# fmt: off
@triton.jit
@no_type_check
def locate(bounds, seed, blocks, block: tl.constexpr, heads: tl.constexpr, dropout_threshold: tl.constexpr):
    """The head of a program, its sequence's first token and length, its block's start, and the two dropout seeds."""
    # Heads of a token are adjacent in memory, and so are programs that run at the same time.
    head, rest = tl.program_id(0) % heads, tl.program_id(0) // heads
    begin, sequence = rest % blocks * block, rest // blocks
    start = tl.load(bounds + sequence)
    length = tl.load(bounds + sequence + 1) - start
    query_seed, key_seed = start, start
    if dropout_threshold > 0:
        query_seed, key_seed, _, _ = tl.philox(tl.load(seed), start, head, 0, 0, 7)
    return head, start.to(tl.int64), length, begin, query_seed, key_seed


@triton.jit
@no_type_check
def window_range(
    begin, length, block: tl.constexpr, other_block: tl.constexpr, window_left: tl.constexpr, window_right: tl.constexpr
):
    """Where the blocks of `other_block` tokens begin and end that the attention window of a block overlaps."""
    low, high = 0, length
    if window_left >= 0:
        low = tl.maximum(begin - window_left, 0) // other_block * other_block
    if window_right >= 0:
        high = tl.minimum(begin + block + window_right, length)
    return low, high


@triton.jit
@no_type_check
def load_block(base, stride: tl.constexpr, rows, dims, length, last: tl.constexpr):
    """A block of keys or values; only the last one can extend past the end of the sequence and needs a mask."""
    addresses = base + rows[:, None] * stride + dims[None, :]
    return tl.load(addresses, mask=rows[:, None] < length, other=0.0) if last else tl.load(addresses)
# fmt: on
