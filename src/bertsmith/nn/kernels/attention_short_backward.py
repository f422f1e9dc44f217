"""Backward kernel of variable-length attention for short sequences: one program for each sequence and head."""

from typing import no_type_check

import triton
import triton.language as tl

from bertsmith.nn.kernels.shared import apply_window, hash_bits, keep_mask, load_rows, scaled_bias, store_rows


# fmt: off
@triton.jit
@no_type_check
def _backward_sequence(
    query, key, value, bias, grad_output, attended, lse, gradient, query_stride: tl.constexpr,
    key_stride: tl.constexpr, value_stride: tl.constexpr, bias_stride: tl.constexpr, stride: tl.constexpr, query_seed,
    key_seed, length, scale: tl.constexpr, keep_scale: tl.constexpr, grad_scale: tl.constexpr, width: tl.constexpr,
    block: tl.constexpr, query_block: tl.constexpr, dropout_threshold: tl.constexpr, window_left: tl.constexpr,
    window_right: tl.constexpr
):
    """One sequence and head, backwards.

    Scores are transposed, keys by queries. So weights and their gradients enter the products for keys and values in the
    layout they have in registers, and all warps have work even for few queries. FlashAttention's delta of a query, the
    sum of its weights times their gradients, is the dot product of output and output gradient: no warp waits for
    another's keys.
    """
    dims, columns = tl.arange(0, width), tl.arange(0, block)
    keys = load_rows(key, key_stride, columns, dims, length)
    values = load_rows(value, value_stride, columns, dims, length)
    grad_keys = tl.zeros([block, width], tl.float32)
    grad_values = tl.zeros([block, width], tl.float32)
    key_bits = hash_bits(key_seed, 0, block)
    for first in tl.range(0, length, query_block):
        rows = first + tl.arange(0, query_block)
        queries = load_rows(query, query_stride, rows, dims, length)
        grad = load_rows(grad_output, stride, rows, dims, length)
        output = load_rows(attended, stride, rows, dims, length)
        delta = tl.sum(grad.to(tl.float32) * output.to(tl.float32), 1) / keep_scale
        row_lse = tl.load(lse + rows, mask=rows < length, other=0.0)
        scores = tl.dot(keys, tl.trans(queries), input_precision="ieee")
        if bias_stride > 0:
            scores += scaled_bias(bias, bias_stride, rows[None, :], columns[:, None], length, scale)
        scores = apply_window(scores, rows[None, :], columns[:, None], window_left, window_right)
        # Past the end of the sequence keys, values and output gradients are 0, so any finite weight there is harmless.
        # No true weight is above 1, hence the minimum.
        weights = tl.exp2(tl.minimum(scores * scale - row_lse[None, :], 0.0))
        grad_weights = tl.dot(values, tl.trans(grad), input_precision="ieee")
        kept_weights = weights
        if dropout_threshold > 0:
            query_bits = hash_bits(query_seed, first, query_block)
            keep = keep_mask(query_bits[None, :], key_bits[:, None], dropout_threshold)
            kept_weights, grad_weights = tl.where(keep, weights, 0.0), tl.where(keep, grad_weights, 0.0)
        grad_values = tl.dot(kept_weights.to(keys.dtype), grad, grad_values, input_precision="ieee")
        grad_scores = (weights * (grad_weights - delta[None, :])).to(keys.dtype)
        grad_keys = tl.dot(grad_scores, queries, grad_keys, input_precision="ieee")
        grad_queries = tl.dot(tl.trans(keys), grad_scores, input_precision="ieee")
        store_rows(gradient, 3 * stride, rows, dims, length, tl.trans(grad_queries) * grad_scale)
    store_rows(gradient + stride, 3 * stride, columns, dims, length, grad_keys * grad_scale)
    store_rows(gradient + 2 * stride, 3 * stride, columns, dims, length, grad_values * keep_scale)


@triton.jit
@no_type_check
def short_backward(
    query, key, value, bias, grad_output, attended, lse, gradient, bounds, seed, tokens, scale: tl.constexpr,
    keep_scale: tl.constexpr, grad_scale: tl.constexpr, query_stride: tl.constexpr, query_head_stride: tl.constexpr,
    key_stride: tl.constexpr, key_head_stride: tl.constexpr, value_stride: tl.constexpr,
    value_head_stride: tl.constexpr, bias_stride: tl.constexpr, heads: tl.constexpr, width: tl.constexpr,
    min_length: tl.constexpr, block: tl.constexpr, query_block: tl.constexpr, half_block: tl.constexpr,
    dropout_threshold: tl.constexpr, window_left: tl.constexpr, window_right: tl.constexpr
):
    """The gradients of query, key and value, `T 3 H K`, of the sequences longer than `min_length` up to `block`."""
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
        grad_output += (token * heads + head) * width
        attended += (token * heads + head) * width
        gradient += (token * 3 * heads + head) * width
        lse += head.to(tl.int64) * tokens + token
        if length > half_block:
            _backward_sequence(
                query, key, value, bias, grad_output, attended, lse, gradient, query_stride, key_stride, value_stride,
                bias_stride, heads * width, query_seed, key_seed, length, scale, keep_scale, grad_scale, width, block,
                query_block, dropout_threshold, window_left, window_right
            )
        elif half_block > 0:
            _backward_sequence(
                query, key, value, bias, grad_output, attended, lse, gradient, query_stride, key_stride, value_stride,
                bias_stride, heads * width, query_seed, key_seed, length, scale, keep_scale, grad_scale, width,
                half_block, min(query_block, half_block), dropout_threshold, window_left, window_right
            )
# fmt: on
