"""Attention for short sequences with a relative position bias, which is added to the scores of each head.

The kernels are those of `attention_short`. The bias is the same for all sequences, so its gradient is a sum over all of
them: a further kernel walks through the sequences once more and keeps the sums for a block of queries and all keys in
registers, where atomic additions in memory would wait for each other.

It takes 0.39 to 0.69 of the time of torch's fastest, and a sixth of FlexAttention's (`bench/beside_torch.py`, one
H200).

Imported only where it is used, since it needs Triton.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.library import triton_op, wrap_triton

from bertsmith.nn.kernels.attention_short import checked_block, launch_backward, launch_forward
from bertsmith.nn.kernels.shared import (
    COMPILED,
    apply_window,
    contiguous_heads,
    hash_bits,
    keep_mask,
    kernel_arguments,
    load_rows,
    scaled_bias,
)
from bertsmith.nn.window import FULL, Window

SPLITS = 16  # of the sequences, each with its own sums


def biased_attention(
    query: Float[Tensor, "T H K"],
    key: Float[Tensor, "T H K"],
    value: Float[Tensor, "T H K"],
    bias: Float[Tensor, "H L L"],
    bounds: Int[Tensor, "..."],
    longest: int,
    dropout: float = 0.0,
    seed: Int[Tensor, ""] | None = None,
    window: Window = FULL,
) -> Float[Tensor, "T H K"]:
    """`short_attention` with `bias` added to the scores: a row for each query, a column for each key."""
    block = checked_block(longest, query.shape[2], dropout, seed)
    seed, bias = bounds if seed is None else seed, bias.contiguous()
    attended: Tensor
    attended, _ = _biased_attention(query, key, value, bias, bounds, seed, block, dropout, *window.sizes)
    return attended


# fmt: off
@triton.jit
@no_type_check
def _bias_backward(
    query, key, value, bias, grad_output, attended, lse, grad_bias, bounds, seed, tokens, sequences,
    sequences_per_split, scale: tl.constexpr, keep_scale: tl.constexpr, query_stride: tl.constexpr,
    query_head_stride: tl.constexpr, key_stride: tl.constexpr, key_head_stride: tl.constexpr,
    value_stride: tl.constexpr, value_head_stride: tl.constexpr, bias_stride: tl.constexpr, heads: tl.constexpr,
    width: tl.constexpr, block: tl.constexpr, query_block: tl.constexpr, dropout_threshold: tl.constexpr,
    window_left: tl.constexpr, window_right: tl.constexpr
):
    """The gradient of the bias for a block of queries of one head, summed over one split of the sequences.

    Scores and their gradients are computed as in `short_backward`.
    """
    head, first, split = tl.program_id(0) % heads, tl.program_id(0) // heads * query_block, tl.program_id(1)
    rows, columns, dims = first + tl.arange(0, query_block), tl.arange(0, block), tl.arange(0, width)
    bias += head * bias_stride * bias_stride
    sums = tl.zeros([block, query_block], tl.float32)
    for sequence in tl.range(split * sequences_per_split, tl.minimum((split + 1) * sequences_per_split, sequences)):
        start = tl.load(bounds + sequence)
        length = tl.load(bounds + sequence + 1) - start
        if length > first:
            query_seed, key_seed = start, start
            if dropout_threshold > 0:
                query_seed, key_seed, _, _ = tl.philox(tl.load(seed), start, head, 0, 0, 7)
            token = start.to(tl.int64)
            offset = (token * heads + head) * width
            keys = load_rows(key + token * key_stride + head * key_head_stride, key_stride, columns, dims, length)
            values = load_rows(
                value + token * value_stride + head * value_head_stride, value_stride, columns, dims, length
            )
            queries = load_rows(
                query + token * query_stride + head * query_head_stride, query_stride, rows, dims, length
            )
            grad = load_rows(grad_output + offset, heads * width, rows, dims, length)
            output = load_rows(attended + offset, heads * width, rows, dims, length)
            delta = tl.sum(grad.to(tl.float32) * output.to(tl.float32), 1) / keep_scale
            row_lse = tl.load(lse + head.to(tl.int64) * tokens + token + rows, mask=rows < length, other=0.0)
            scores = tl.dot(keys, tl.trans(queries), input_precision="ieee")
            scores += scaled_bias(bias, bias_stride, rows[None, :], columns[:, None], length, scale)
            scores = apply_window(scores, rows[None, :], columns[:, None], window_left, window_right)
            weights = tl.exp2(tl.minimum(scores * scale - row_lse[None, :], 0.0))
            grad_weights = tl.dot(values, tl.trans(grad), input_precision="ieee")
            if dropout_threshold > 0:
                query_bits, key_bits = hash_bits(query_seed, first, query_block), hash_bits(key_seed, 0, block)
                keep = keep_mask(query_bits[None, :], key_bits[:, None], dropout_threshold)
                grad_weights = tl.where(keep, grad_weights, 0.0)
            # Keys past the end of the sequence have a weight, too.
            sums += tl.where(columns[:, None] < length, weights * (grad_weights - delta[None, :]), 0.0)
    grad_bias += (split * heads + head).to(tl.int64) * bias_stride * bias_stride
    inside = (rows[None, :] < bias_stride) & (columns[:, None] < bias_stride)
    tl.store(grad_bias + rows[None, :] * bias_stride + columns[:, None], sums * keep_scale, mask=inside)
# fmt: on


@triton_op("bertsmith::biased_attention", mutates_args={})
def _biased_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    bounds: Tensor,
    seed: Tensor,
    block: int,
    dropout: float,
    window_left: int,
    window_right: int,
) -> tuple[Tensor, Tensor]:
    return launch_forward(query, key, value, bias, bounds, seed, block, dropout, window_left, window_right)


@triton_op("bertsmith::biased_attention_gradient", mutates_args={})
def _gradient(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    attended: Tensor,
    lse: Tensor,
    bounds: Tensor,
    seed: Tensor,
    block: int,
    dropout: float,
    window_left: int,
    window_right: int,
) -> tuple[Tensor, Tensor]:
    """The gradients of query, key and value in one tensor, `T 3 H K`, and the gradient of the bias."""
    query, key, value, grad_output = (
        contiguous_heads(query),
        contiguous_heads(key),
        contiguous_heads(value),
        grad_output.contiguous(),
    )
    options = (dropout, window_left, window_right)
    gradient = launch_backward(grad_output, query, key, value, bias, attended, lse, bounds, seed, block, *options)
    heads, longest, _ = bias.shape
    sequences = bounds.shape[0] - 1
    splits = max(1, min(SPLITS, sequences))
    sums = torch.empty((splits, heads, longest, longest), dtype=torch.float32, device=bias.device)
    float32 = query.dtype == torch.float32 and COMPILED  # without tensor cores: right, not fast
    query_block = 16 if float32 or block > 128 else min(32, block)  # more do not fit into registers
    kernel = wrap_triton(_bias_backward) if COMPILED else _bias_backward
    kernel[(-(-longest // query_block) * heads, splits)](
        *(query, key, value, bias, grad_output, attended, lse, sums, bounds, seed),
        sequences=sequences,
        sequences_per_split=-(-sequences // splits),
        bias_stride=longest,
        block=block,
        query_block=query_block,
        num_warps=min(8, block // 16),
        **kernel_arguments(query, key, value, *options),
    )
    return gradient, sums.sum(0).to(bias.dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *parts, bounds, seed, ctx.block, ctx.dropout, ctx.window_left, ctx.window_right = inputs
    ctx.save_for_backward(*parts, *output, bounds, seed)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_output: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if grad_output is None:
        return (None,) * 10
    options = (ctx.block, ctx.dropout, ctx.window_left, ctx.window_right)
    gradient, grad_bias = _gradient(grad_output, *ctx.saved_tensors, *options)
    return (*gradient.unbind(1), grad_bias, *(None,) * 6)


_biased_attention.register_autograd(_backward, setup_context=_setup_context)
