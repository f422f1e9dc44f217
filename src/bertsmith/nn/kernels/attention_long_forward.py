"""Forward kernel of attention for long sequences: a program holds a block of queries and walks through the keys."""

from typing import no_type_check

import triton
import triton.language as tl

from bertsmith.nn.kernels.attention_long_blocks import load_block, locate, window_range
from bertsmith.nn.kernels.shared import INITIAL_MAX, apply_window, hash_bits, keep_mask, load_rows, store_rows


# fmt: off
@triton.jit
@no_type_check
def _forward_block(
    queries, key, value, key_stride: tl.constexpr, value_stride: tl.constexpr, row_max, row_sum, acc, first, query_bits,
    key_seed, length, scale, begin, width: tl.constexpr, block: tl.constexpr, last: tl.constexpr,
    dropout_threshold: tl.constexpr, window_left: tl.constexpr, window_right: tl.constexpr
):
    """One block of keys: the online softmax rescales its sums to the new row maximum, then adds the block."""
    dims, columns = tl.arange(0, width), first + tl.arange(0, block)
    keys = load_block(key, key_stride, columns, dims, length, last)
    values = load_block(value, value_stride, columns, dims, length, last)
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
    rows = begin + tl.arange(0, queries.shape[0])
    scores = apply_window(scores, rows[:, None], columns[None, :], window_left, window_right)
    if last:
        scores = tl.where(columns[None, :] < length, scores, -float("inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - new_max[:, None])
    rescale = tl.exp2(row_max - new_max)
    row_sum = row_sum * rescale + tl.sum(weights, 1)
    if dropout_threshold > 0:
        # A zero that is not a constant: with a constant the compiler would round first and then select, half a
        # register at a time.
        zero = scale * 0.0
        key_bits = hash_bits(key_seed, first, block)
        weights = tl.where(keep_mask(query_bits[:, None], key_bits[None, :], dropout_threshold), weights, zero)
    acc = tl.dot(weights.to(values.dtype), values, acc * rescale[:, None], input_precision="ieee")
    return new_max, row_sum, acc


@triton.jit
@no_type_check
def long_forward(
    query, key, value, attended, lse, bounds, seed, tokens, blocks, scale, keep_scale, query_stride: tl.constexpr,
    query_head_stride: tl.constexpr, key_stride: tl.constexpr, key_head_stride: tl.constexpr,
    value_stride: tl.constexpr, value_head_stride: tl.constexpr, heads: tl.constexpr, width: tl.constexpr,
    query_block: tl.constexpr, key_block: tl.constexpr, dropout_threshold: tl.constexpr, window_left: tl.constexpr,
    window_right: tl.constexpr
):
    """The output and the log-sum-exp (base 2) of a block of queries."""
    head, token, length, begin, query_seed, key_seed = locate(
        bounds, seed, blocks, query_block, heads, dropout_threshold
    )
    # Inductor passes floats in double precision.
    scale, keep_scale = tl.cast(scale, tl.float32), tl.cast(keep_scale, tl.float32)
    if begin < length:
        query += token * query_stride + head * query_head_stride
        key += token * key_stride + head * key_head_stride
        value += token * value_stride + head * value_head_stride
        dims, rows = tl.arange(0, width), begin + tl.arange(0, query_block)
        queries = load_rows(query, query_stride, rows, dims, length)
        query_bits = hash_bits(query_seed, begin, query_block)
        row_max = tl.full([query_block], INITIAL_MAX, tl.float32)
        row_sum = tl.zeros([query_block], tl.float32)
        acc = tl.zeros([query_block, width], tl.float32)
        low, high = window_range(begin, length, query_block, key_block, window_left, window_right)
        whole = high // key_block * key_block  # only the last block can extend past the end of the sequence
        for first in tl.range(low, whole, key_block):
            row_max, row_sum, acc = _forward_block(
                queries, key, value, key_stride, value_stride, row_max, row_sum, acc, first, query_bits, key_seed,
                length, scale, begin, width, key_block, False, dropout_threshold, window_left, window_right
            )
        if whole < high:
            row_max, row_sum, acc = _forward_block(
                queries, key, value, key_stride, value_stride, row_max, row_sum, acc, whole, query_bits, key_seed,
                length, scale, begin, width, key_block, True, dropout_threshold, window_left, window_right
            )
        row_sum = tl.where(rows < length, row_sum, 1.0)  # rows past the end may have seen no key
        attended += (token * heads + head) * width
        lse += head.to(tl.int64) * tokens + token
        store_rows(attended, heads * width, rows, dims, length, acc * (keep_scale / row_sum)[:, None])
        tl.store(lse + rows, row_max + tl.log2(row_sum), mask=rows < length)
# fmt: on
