"""Forward kernel of variable-length attention for short sequences: one program for each sequence and head."""

from typing import no_type_check

import triton
import triton.language as tl

from bertsmith.nn.kernels.shared import apply_window, hash_bits, keep_mask, load_rows, scaled_bias, store_rows


# fmt: off
@triton.jit
@no_type_check
def _forward_sequence(
    query, key, value, bias, attended, lse, query_stride: tl.constexpr, key_stride: tl.constexpr,
    value_stride: tl.constexpr, bias_stride: tl.constexpr, stride: tl.constexpr, query_seed, key_seed, length,
    scale: tl.constexpr, keep_scale: tl.constexpr, width: tl.constexpr, block: tl.constexpr, query_block: tl.constexpr,
    dropout_threshold: tl.constexpr, window_left: tl.constexpr, window_right: tl.constexpr
):
    """One sequence and head: all keys and values stay in the program, the queries come block by block."""
    dims, columns = tl.arange(0, width), tl.arange(0, block)
    keys = tl.trans(load_rows(key, key_stride, columns, dims, length))
    values = load_rows(value, value_stride, columns, dims, length)
    key_bits = hash_bits(key_seed, 0, block)
    for first in tl.range(0, length, query_block):
        rows = first + tl.arange(0, query_block)
        queries = load_rows(query, query_stride, rows, dims, length)
        scores = tl.dot(queries, keys, input_precision="ieee")
        if bias_stride > 0:
            scores += scaled_bias(bias, bias_stride, rows[:, None], columns[None, :], length, scale)
        scores = apply_window(scores, rows[:, None], columns[None, :], window_left, window_right)
        scores = tl.where(columns[None, :] < length, scores, -float("inf"))
        row_max = tl.max(scores, 1) * scale
        weights = tl.exp2(scores * scale - row_max[:, None])
        row_sum = tl.sum(weights, 1)
        if dropout_threshold > 0:
            query_bits = hash_bits(query_seed, first, query_block)
            weights = tl.where(keep_mask(query_bits[:, None], key_bits[None, :], dropout_threshold), weights, 0.0)
        acc = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        store_rows(attended, stride, rows, dims, length, acc * (keep_scale / row_sum)[:, None])
        tl.store(lse + rows, row_max + tl.log2(row_sum), mask=rows < length)


@triton.jit
@no_type_check
def short_forward(
    query, key, value, bias, attended, lse, bounds, seed, tokens, scale: tl.constexpr, keep_scale: tl.constexpr,
    query_stride: tl.constexpr, query_head_stride: tl.constexpr, key_stride: tl.constexpr,
    key_head_stride: tl.constexpr, value_stride: tl.constexpr, value_head_stride: tl.constexpr,
    bias_stride: tl.constexpr, heads: tl.constexpr, width: tl.constexpr, min_length: tl.constexpr, block: tl.constexpr,
    query_block: tl.constexpr, half_block: tl.constexpr, dropout_threshold: tl.constexpr, window_left: tl.constexpr,
    window_right: tl.constexpr
):
    """The output and the log-sum-exp (base 2) of the sequences longer than `min_length` that fit into `block`."""
    # Heads of a token are adjacent in memory, and so are programs that run at the same time.
    head, sequence = tl.program_id(0) % heads, tl.program_id(0) // heads
    start = tl.load(bounds + sequence)
    length = tl.load(bounds + sequence + 1) - start
    if (length > min_length) & (length <= block):  # the others have a launch of their own
        query_seed, key_seed = start, start
        if dropout_threshold > 0:
            query_seed, key_seed, _, _ = tl.philox(tl.load(seed), start, head, 0, 0, 7)
        token = start.to(tl.int64)
        query += token * query_stride + head * query_head_stride
        key += token * key_stride + head * key_head_stride
        value += token * value_stride + head * value_head_stride
        bias += head * bias_stride * bias_stride
        attended += (token * heads + head) * width
        lse += head.to(tl.int64) * tokens + token
        if length > half_block:
            _forward_sequence(
                query, key, value, bias, attended, lse, query_stride, key_stride, value_stride, bias_stride,
                heads * width, query_seed, key_seed, length, scale, keep_scale, width, block, query_block,
                dropout_threshold, window_left, window_right
            )
        elif half_block > 0:
            _forward_sequence(
                query, key, value, bias, attended, lse, query_stride, key_stride, value_stride, bias_stride,
                heads * width, query_seed, key_seed, length, scale, keep_scale, width, half_block,
                min(query_block, half_block), dropout_threshold, window_left, window_right
            )
# fmt: on
