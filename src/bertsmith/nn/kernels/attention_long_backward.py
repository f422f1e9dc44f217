"""Backward kernels of attention for long sequences: queries that meet all keys, then keys that meet all queries.

The attention weights are computed twice, but every program owns the gradients that it writes: nothing is added up in
memory, and gradients are the same every time.
"""

from typing import no_type_check

import triton
import triton.language as tl

from bertsmith.nn.kernels.attention_long_blocks import load_block, locate, window_range
from bertsmith.nn.kernels.shared import apply_window, hash_bits, keep_mask, load_rows, store_rows


# fmt: off
@triton.jit
@no_type_check
def _store_statistics(statistics, rows, length, lse, delta, query_bits, block: tl.constexpr):
    """Log-sum-exp, random bits and delta of each query side by side: 16 bytes, which are loaded in one piece."""
    joined = tl.join(tl.join(lse, query_bits.to(tl.float32, bitcast=True)), tl.join(delta, delta))
    store_rows(statistics, 4, rows, tl.arange(0, 4), length, tl.reshape(joined, [block, 4]))


@triton.jit
@no_type_check
def _load_statistics(statistics, rows, length, block: tl.constexpr):
    joined = tl.reshape(load_rows(statistics, 4, rows, tl.arange(0, 4), length), [block, 2, 2])
    lse_and_bits, deltas = tl.split(joined)
    lse, query_bits = tl.split(lse_and_bits)
    delta, _ = tl.split(deltas)
    return lse, delta, query_bits.to(tl.uint32, bitcast=True)


@triton.jit
@no_type_check
def _query_gradient_block(
    queries, grad, lse, delta, key, value, key_stride: tl.constexpr, value_stride: tl.constexpr, acc, first, query_bits,
    key_seed, length, scale, begin, width: tl.constexpr, block: tl.constexpr, last: tl.constexpr,
    dropout_threshold: tl.constexpr, window_left: tl.constexpr, window_right: tl.constexpr
):
    """What one block of keys adds to the gradient of the queries."""
    dims, columns = tl.arange(0, width), first + tl.arange(0, block)
    keys = load_block(key, key_stride, columns, dims, length, last)
    values = load_block(value, value_stride, columns, dims, length, last)
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale - lse[:, None]
    rows = begin + tl.arange(0, queries.shape[0])
    scores = apply_window(scores, rows[:, None], columns[None, :], window_left, window_right)
    if last:
        # Keys past the end of the sequence are 0, so any finite weight there is harmless. No true weight is above 1,
        # hence the minimum.
        scores = tl.minimum(scores, 0.0)
    weights = tl.exp2(scores)
    grad_weights = tl.dot(grad, tl.trans(values), input_precision="ieee")
    if dropout_threshold > 0:
        key_bits = hash_bits(key_seed, first, block)
        grad_weights = tl.where(keep_mask(query_bits[:, None], key_bits[None, :], dropout_threshold), grad_weights, 0.0)
    grad_scores = (weights * (grad_weights - delta[:, None])).to(keys.dtype)
    return tl.dot(grad_scores, keys, acc, input_precision="ieee")


@triton.jit
@no_type_check
def long_backward_queries(
    query, key, value, grad_output, attended, lse, statistics, gradient, bounds, seed, tokens, blocks, scale,
    keep_scale, grad_scale, query_stride: tl.constexpr, query_head_stride: tl.constexpr, key_stride: tl.constexpr,
    key_head_stride: tl.constexpr, value_stride: tl.constexpr, value_head_stride: tl.constexpr, heads: tl.constexpr,
    width: tl.constexpr, query_block: tl.constexpr, key_block: tl.constexpr, dropout_threshold: tl.constexpr,
    window_left: tl.constexpr, window_right: tl.constexpr
):
    """The gradient of the queries, and the delta of each: the sum of its weights times their gradients.

    Delta is also the dot product of output and output gradient, and so is known before any key is read.
    """
    head, token, length, begin, query_seed, key_seed = locate(
        bounds, seed, blocks, query_block, heads, dropout_threshold
    )
    scale, keep_scale = tl.cast(scale, tl.float32), tl.cast(keep_scale, tl.float32)
    grad_scale = tl.cast(grad_scale, tl.float32)
    if begin < length:
        stride: tl.constexpr = heads * width
        query += token * query_stride + head * query_head_stride
        key += token * key_stride + head * key_head_stride
        value += token * value_stride + head * value_head_stride
        grad_output += token * stride + head * width
        attended += token * stride + head * width
        lse += head.to(tl.int64) * tokens + token
        statistics += (head.to(tl.int64) * tokens + token) * 4
        dims, rows = tl.arange(0, width), begin + tl.arange(0, query_block)
        queries = load_rows(query, query_stride, rows, dims, length)
        grad = load_rows(grad_output, stride, rows, dims, length)
        output = load_rows(attended, stride, rows, dims, length)
        row_lse = tl.load(lse + rows, mask=rows < length, other=0.0)
        delta = tl.sum(grad.to(tl.float32) * output.to(tl.float32), 1) / keep_scale
        query_bits = hash_bits(query_seed, begin, query_block)
        _store_statistics(statistics, rows, length, row_lse, delta, query_bits, query_block)
        acc = tl.zeros([query_block, width], tl.float32)
        low, high = window_range(begin, length, query_block, key_block, window_left, window_right)
        whole = high // key_block * key_block
        for first in tl.range(low, whole, key_block):
            acc = _query_gradient_block(
                queries, grad, row_lse, delta, key, value, key_stride, value_stride, acc, first, query_bits, key_seed,
                length, scale, begin, width, key_block, False, dropout_threshold, window_left, window_right
            )
        if whole < high:
            acc = _query_gradient_block(
                queries, grad, row_lse, delta, key, value, key_stride, value_stride, acc, whole, query_bits, key_seed,
                length, scale, begin, width, key_block, True, dropout_threshold, window_left, window_right
            )
        gradient += token * 3 * stride + head * width
        store_rows(gradient, 3 * stride, rows, dims, length, acc * grad_scale)


@triton.jit
@no_type_check
def long_backward_keys(
    query, key, value, grad_output, statistics, gradient, bounds, seed, tokens, blocks, scale, keep_scale, grad_scale,
    query_stride: tl.constexpr, query_head_stride: tl.constexpr, key_stride: tl.constexpr,
    key_head_stride: tl.constexpr, value_stride: tl.constexpr, value_head_stride: tl.constexpr, heads: tl.constexpr,
    width: tl.constexpr, query_block: tl.constexpr, key_block: tl.constexpr, dropout_threshold: tl.constexpr,
    window_left: tl.constexpr, window_right: tl.constexpr
):
    """The gradients of keys and values. Scores are transposed, keys by queries, as in the short kernel."""
    head, token, length, begin, _, key_seed = locate(bounds, seed, blocks, key_block, heads, dropout_threshold)
    scale, keep_scale = tl.cast(scale, tl.float32), tl.cast(keep_scale, tl.float32)
    grad_scale = tl.cast(grad_scale, tl.float32)
    if begin < length:
        stride: tl.constexpr = heads * width
        query += token * query_stride + head * query_head_stride
        key += token * key_stride + head * key_head_stride
        value += token * value_stride + head * value_head_stride
        grad_output += token * stride + head * width
        statistics += (head.to(tl.int64) * tokens + token) * 4
        dims, columns = tl.arange(0, width), begin + tl.arange(0, key_block)
        keys = load_rows(key, key_stride, columns, dims, length)
        values = load_rows(value, value_stride, columns, dims, length)
        key_bits = hash_bits(key_seed, begin, key_block)
        grad_keys = tl.zeros([key_block, width], tl.float32)
        grad_values = tl.zeros([key_block, width], tl.float32)
        # Past the end of the sequence output gradients and delta are 0: such queries add nothing. Such keys may have
        # weights that are not finite, but those stay in their own rows, which are not stored.
        low, high = window_range(begin, length, key_block, query_block, window_right, window_left)  # mirrored
        for first in tl.range(low, high, query_block):
            rows = first + tl.arange(0, query_block)
            queries = load_rows(query, query_stride, rows, dims, length)
            grad = load_rows(grad_output, stride, rows, dims, length)
            row_lse, delta, query_bits = _load_statistics(statistics, rows, length, query_block)
            scores = tl.dot(keys, tl.trans(queries), input_precision="ieee")
            scores = apply_window(scores, rows[None, :], columns[:, None], window_left, window_right)
            weights = tl.exp2(scores * scale - row_lse[None, :])
            grad_weights = tl.dot(values, tl.trans(grad), input_precision="ieee")
            kept_weights = weights
            if dropout_threshold > 0:
                keep = keep_mask(key_bits[:, None], query_bits[None, :], dropout_threshold)
                kept_weights = tl.where(keep, weights, scale * 0.0)  # not a constant, as in the forward kernel
                grad_weights = tl.where(keep, grad_weights, 0.0)
            grad_values = tl.dot(kept_weights.to(keys.dtype), grad, grad_values, input_precision="ieee")
            grad_scores = (weights * (grad_weights - delta[None, :])).to(keys.dtype)
            grad_keys = tl.dot(grad_scores, queries, grad_keys, input_precision="ieee")
        gradient += token * 3 * stride + head * width
        store_rows(gradient + stride, 3 * stride, columns, dims, length, grad_keys * grad_scale)
        store_rows(gradient + 2 * stride, 3 * stride, columns, dims, length, grad_values * keep_scale)
# fmt: on
