"""Attention for short sequences with relative positions: a number for each head, query and key is added to the scores.

As `short`, whose kernels these are. What is added is the same for all sequences, and so its gradient is a sum over all
of them: a kernel of its own walks through the sequences once more and keeps the sum for some queries and all keys in
registers, where numbers added up in memory would wait for each other.

Imported only where it is wanted, since it needs Triton.
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

SPLITS = 16  # of the sequences, each with sums of its own


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
    """What each token takes from its own sequence; `bias` has a row for each query of the longest, a column a key."""
    block = checked_block(longest, query.shape[2], dropout, seed)
    seed, bias = bounds if seed is None else seed, bias.contiguous()
    attended: Tensor
    attended, _ = _biased(query, key, value, bias, bounds, seed, block, dropout, *window.sizes)
    return attended


# fmt: off
@triton.jit
@no_type_check
def _backward_bias(
    query, key, value, bias, grad_output, attended, lse, found, bounds, seed, tokens, sequences, each,
    scale: tl.constexpr,
    grow: tl.constexpr, query_step: tl.constexpr, query_head: tl.constexpr, key_step: tl.constexpr,
    key_head: tl.constexpr, value_step: tl.constexpr, value_head: tl.constexpr, bias_step: tl.constexpr,
    heads: tl.constexpr, width: tl.constexpr, block: tl.constexpr, at_once: tl.constexpr, forgotten: tl.constexpr,
    before: tl.constexpr, behind: tl.constexpr
):
    """Some queries of one head, in a share of the sequences. Scores and slopes are those of `short`, backwards."""
    head, first, share = tl.program_id(0) % heads, tl.program_id(0) // heads * at_once, tl.program_id(1)
    rows, columns, numbers = first + tl.arange(0, at_once), tl.arange(0, block), tl.arange(0, width)
    bias += head * bias_step * bias_step
    sums = tl.zeros([block, at_once], tl.float32)
    for place in tl.range(share * each, tl.minimum((share + 1) * each, sequences)):
        start = tl.load(bounds + place)
        length = tl.load(bounds + place + 1) - start
        if length > first:
            one, other = start, start
            if forgotten > 0:
                one, other, _, _ = tl.philox(tl.load(seed), start, head, 0, 0, 7)
            token = start.to(tl.int64)
            out = (token * heads + head) * width
            keys = load_rows(key + token * key_step + head * key_head, key_step, columns, numbers, length)
            values = load_rows(value + token * value_step + head * value_head, value_step, columns, numbers, length)
            queries = load_rows(query + token * query_step + head * query_head, query_step, rows, numbers, length)
            here = load_rows(grad_output + out, heads * width, rows, numbers, length)
            taken = load_rows(attended + out, heads * width, rows, numbers, length)
            mean = tl.sum(here.to(tl.float32) * taken.to(tl.float32), 1) / grow
            log = tl.load(lse + head.to(tl.int64) * tokens + token + rows, mask=rows < length, other=0.0)
            scores = tl.dot(keys, tl.trans(queries), input_precision="ieee")
            scores += scaled_bias(bias, bias_step, rows[None, :], columns[:, None], length, scale)
            scores = apply_window(scores, rows[None, :], columns[:, None], before, behind)
            weights = tl.exp2(tl.minimum(scores * scale - log[None, :], 0.0))
            slopes = tl.dot(values, tl.trans(here), input_precision="ieee")
            if forgotten > 0:
                lots, others = hash_bits(one, first, at_once), hash_bits(other, 0, block)
                slopes = tl.where(keep_mask(lots[None, :], others[:, None], forgotten), slopes, 0.0)
            # A key that is not there has a weight, too.
            sums += tl.where(columns[:, None] < length, weights * (slopes - mean[None, :]), 0.0)
    found += (share * heads + head).to(tl.int64) * bias_step * bias_step
    there = (rows[None, :] < bias_step) & (columns[:, None] < bias_step)
    tl.store(found + rows[None, :] * bias_step + columns[:, None], sums * grow, mask=there)
# fmt: on


@triton_op("bertsmith::short_biased", mutates_args={})
def _biased(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    bounds: Tensor,
    seed: Tensor,
    block: int,
    dropout: float,
    before: int,
    behind: int,
) -> tuple[Tensor, Tensor]:
    return launch_forward(query, key, value, bias, bounds, seed, block, dropout, before, behind)


@triton_op("bertsmith::short_biased_gradient", mutates_args={})
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
    before: int,
    behind: int,
) -> tuple[Tensor, Tensor]:
    """Of query, key and value, side by side; and of what is added."""
    query, key, value, grad_output = (
        contiguous_heads(query),
        contiguous_heads(key),
        contiguous_heads(value),
        grad_output.contiguous(),
    )
    how = (dropout, before, behind)
    gradient = launch_backward(grad_output, query, key, value, bias, attended, lse, bounds, seed, block, *how)
    heads, longest, _ = bias.shape
    sequences = bounds.shape[0] - 1
    shares = max(1, min(SPLITS, sequences))
    sums = torch.empty((shares, heads, longest, longest), dtype=torch.float32, device=bias.device)
    full = query.dtype == torch.float32 and COMPILED  # without tensor cores: right, not fast
    at_once = 16 if full or block > 128 else min(32, block)  # more do not fit into registers
    kernel = wrap_triton(_backward_bias) if COMPILED else _backward_bias
    kernel[(-(-longest // at_once) * heads, shares)](
        *(query, key, value, bias, grad_output, attended, lse, sums, bounds, seed),
        sequences=sequences,
        each=-(-sequences // shares),
        bias_step=longest,
        block=block,
        at_once=at_once,
        num_warps=min(8, block // 16),
        **kernel_arguments(query, key, value, *how),
    )
    return gradient, sums.sum(0).to(bias.dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *parts, bounds, seed, ctx.block, ctx.dropout, ctx.before, ctx.behind = inputs
    ctx.save_for_backward(*parts, *output, bounds, seed)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_output: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if grad_output is None:
        return (None,) * 10
    found, of_bias = _gradient(grad_output, *ctx.saved_tensors, ctx.block, ctx.dropout, ctx.before, ctx.behind)
    return (*found.unbind(1), of_bias, *(None,) * 6)


_biased.register_autograd(_backward, setup_context=_setup_context)
