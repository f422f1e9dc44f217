"""Variable-length attention for sequences of a few hundred tokens: one GPU program for each sequence and head.

General kernels walk through the keys in blocks and correct their softmax as they go. A short sequence fits into one
program as a whole: keys and values are read once, the softmax is the plain one, and the backward pass writes all three
gradients without a second pass over anything. What is left is mostly the time to read and write the numbers.

Imported only where it is wanted, since it needs Triton.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.library import triton_op, wrap_triton

from bertsmith.nn.kernels.shared import (
    COMPILED,
    WIDTHS,
    apply_window,
    check_dropout,
    contiguous_heads,
    grad_scale,
    hash_bits,
    keep_mask,
    kernel_arguments,
    load_rows,
    register_gradients,
    scaled_bias,
    store_rows,
)
from bertsmith.nn.window import FULL, Window

BLOCKS = (16, 32, 64, 128, 256)  # a program holds as many keys as the least of these that is enough
MAX_ELEMENTS = 256 * 64  # of one head's keys: the gradients of more do not fit into registers


@dataclass(frozen=True)
class LaunchConfig:
    """How a program is laid out. Only speed depends on it."""

    queries: int  # looked up at a time: 16 for each warp forwards; backwards the fewer the fewer registers
    warps: int  # backwards one for at least 16 keys, or they do the same work twice
    stages: int = 1  # with 2 the next queries are on their way while these are looked up
    halves: int = 0  # launches besides, for sequences of at most half the block, a quarter and so on: see `_sizes`
    branch: bool = False  # or half the block is chosen within the program, which takes the room of a whole one


# By block. Of 128 among the fastest tried on an H200, of others by what the compiler says of registers and shared
# memory there; bench/attention.py tries more. Backwards Triton 3.6 makes wrong gradients of Setting(32, 4, 1): 32
# queries at once want two stages, and the tests marked gpu tell.
FORWARD = {
    16: LaunchConfig(16, 1),
    32: LaunchConfig(32, 2, branch=True),
    64: LaunchConfig(64, 4, halves=1),
    128: LaunchConfig(64, 4, 2, halves=1),
    256: LaunchConfig(64, 4, 2, branch=True),
}
BACKWARD = {
    16: LaunchConfig(16, 1),
    32: LaunchConfig(32, 2, branch=True),
    64: LaunchConfig(32, 4, 2, branch=True),
    128: LaunchConfig(32, 4, 3, branch=True),
    256: LaunchConfig(32, 8, 2, branch=True),
}
FLOAT32 = LaunchConfig(16, 8)  # float32 on a GPU, without tensor cores: right, not fast


def fits(longest: int, head_width: int) -> bool:
    """Whether sequences of at most so many tokens fit, with heads this wide."""
    return longest <= BLOCKS[-1] and head_width in WIDTHS and _block(longest) * head_width <= MAX_ELEMENTS


def short_attention(
    query: Float[Tensor, "T H K"],
    key: Float[Tensor, "T H K"],
    value: Float[Tensor, "T H K"],
    bounds: Int[Tensor, "..."],
    longest: int,
    dropout: float = 0.0,
    seed: Int[Tensor, ""] | None = None,
    window: Window = FULL,
) -> Float[Tensor, "T H K"]:
    """What each token takes from its own sequence, none of which is longer than `longest`.

    With dropout, `seed` (int64, on the device) decides which weights are forgotten: by it, the first token's place, the
    head, and the two tokens. The three gradients are views of one tensor, `T 3 H K`.
    """
    block = checked_block(longest, query.shape[2], dropout, seed)
    attended: Tensor
    seed = bounds if seed is None else seed
    attended, _ = _separate(query, key, value, bounds, seed, block, dropout, *window.sizes)
    return attended


def qkv_attention(
    qkv: Float[Tensor, "T 3 H K"],
    bounds: Int[Tensor, "..."],
    longest: int,
    dropout: float = 0.0,
    seed: Int[Tensor, ""] | None = None,
    window: Window = FULL,
) -> Float[Tensor, "T H K"]:
    """As `short`, of query, key and value as one product made them: its gradient is one tensor, with nothing copied."""
    block = checked_block(longest, qkv.shape[3], dropout, seed)
    attended: Tensor
    seed = bounds if seed is None else seed
    attended, _ = _together(qkv, bounds, seed, block, dropout, *window.sizes)
    return attended


def _block(longest: int) -> int:
    return next(block for block in BLOCKS if longest <= block)


def checked_block(longest: int, width: int, dropout: float, seed: Tensor | None) -> int:
    """The block, if all is well."""
    if not fits(longest, width):
        raise ValueError(
            f"short attention: sequences of {longest} tokens with heads of {width} do not fit into one program. "
            f"At most {BLOCKS[-1]} tokens, heads of {', '.join(map(str, WIDTHS))}, and a product of both of "
            f"{MAX_ELEMENTS}."
        )
    check_dropout("short", dropout, seed)
    return _block(longest)


# fmt: off
@triton.jit
@no_type_check
def _forward_sequence(
    query, key, value, bias, attended, lse, query_step: tl.constexpr, key_step: tl.constexpr,
    value_step: tl.constexpr, bias_step: tl.constexpr, step: tl.constexpr, one, other, length, scale: tl.constexpr,
    grow: tl.constexpr, width: tl.constexpr, block: tl.constexpr, at_once: tl.constexpr, forgotten: tl.constexpr,
    before: tl.constexpr, behind: tl.constexpr
):
    """One sequence and head, forwards."""
    numbers, columns = tl.arange(0, width), tl.arange(0, block)
    keys = tl.trans(load_rows(key, key_step, columns, numbers, length))
    values = load_rows(value, value_step, columns, numbers, length)
    others = hash_bits(other, 0, block)
    for first in tl.range(0, length, at_once):
        rows = first + tl.arange(0, at_once)
        queries = load_rows(query, query_step, rows, numbers, length)
        scores = tl.dot(queries, keys, input_precision="ieee")
        if bias_step > 0:
            scores += scaled_bias(bias, bias_step, rows[:, None], columns[None, :], length, scale)
        scores = apply_window(scores, rows[:, None], columns[None, :], before, behind)
        scores = tl.where(columns[None, :] < length, scores, -float("inf"))
        highest = tl.max(scores, 1) * scale
        weights = tl.exp2(scores * scale - highest[:, None])
        total = tl.sum(weights, 1)
        if forgotten > 0:
            keep = keep_mask(hash_bits(one, first, at_once)[:, None], others[None, :], forgotten)
            weights = tl.where(keep, weights, 0.0)
        taken = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        store_rows(attended, step, rows, numbers, length, taken * (grow / total)[:, None])
        tl.store(lse + rows, highest + tl.log2(total), mask=rows < length)


@triton.jit
@no_type_check
def _backward_sequence(
    query, key, value, bias, grad_output, attended, lse, gradient, query_step: tl.constexpr, key_step: tl.constexpr,
    value_step: tl.constexpr, bias_step: tl.constexpr, step: tl.constexpr, one, other, length, scale: tl.constexpr,
    grow: tl.constexpr, shrink: tl.constexpr, width: tl.constexpr, block: tl.constexpr, at_once: tl.constexpr,
    forgotten: tl.constexpr, before: tl.constexpr, behind: tl.constexpr
):
    """One sequence and head, backwards.

    Scores lie on their side, keys by queries. So weights and slopes go into the products for keys and values as they
    stand in the registers, and all the warps find work however few the queries at once. The mean slope of a query, its
    weights times their slopes, is also what it has taken times what comes from above: no warp waits for another's keys.
    """
    numbers, columns = tl.arange(0, width), tl.arange(0, block)
    keys = load_rows(key, key_step, columns, numbers, length)
    values = load_rows(value, value_step, columns, numbers, length)
    of_keys = tl.zeros([block, width], tl.float32)
    of_values = tl.zeros([block, width], tl.float32)
    others = hash_bits(other, 0, block)
    for first in tl.range(0, length, at_once):
        rows = first + tl.arange(0, at_once)
        queries = load_rows(query, query_step, rows, numbers, length)
        here = load_rows(grad_output, step, rows, numbers, length)
        taken = load_rows(attended, step, rows, numbers, length)
        mean = tl.sum(here.to(tl.float32) * taken.to(tl.float32), 1) / grow
        log = tl.load(lse + rows, mask=rows < length, other=0.0)
        scores = tl.dot(keys, tl.trans(queries), input_precision="ieee")
        if bias_step > 0:
            scores += scaled_bias(bias, bias_step, rows[None, :], columns[:, None], length, scale)
        scores = apply_window(scores, rows[None, :], columns[:, None], before, behind)
        # Behind the sequence keys, values and what comes from above are nought. Whatever weight is found there will
        # do, if only it is finite; and no true weight is above one.
        weights = tl.exp2(tl.minimum(scores * scale - log[None, :], 0.0))
        slopes = tl.dot(values, tl.trans(here), input_precision="ieee")
        used = weights
        if forgotten > 0:
            stays = keep_mask(hash_bits(one, first, at_once)[None, :], others[:, None], forgotten)
            used, slopes = tl.where(stays, weights, 0.0), tl.where(stays, slopes, 0.0)
        of_values = tl.dot(used.to(keys.dtype), here, of_values, input_precision="ieee")
        slopes = (weights * (slopes - mean[None, :])).to(keys.dtype)
        of_keys = tl.dot(slopes, queries, of_keys, input_precision="ieee")
        of_queries = tl.dot(tl.trans(keys), slopes, input_precision="ieee")
        store_rows(gradient, 3 * step, rows, numbers, length, tl.trans(of_queries) * shrink)
    store_rows(gradient + step, 3 * step, columns, numbers, length, of_keys * shrink)
    store_rows(gradient + 2 * step, 3 * step, columns, numbers, length, of_values * grow)


@triton.jit
@no_type_check
def _forward(
    query, key, value, bias, attended, lse, bounds, seed, tokens, scale: tl.constexpr, grow: tl.constexpr,
    query_step: tl.constexpr, query_head: tl.constexpr, key_step: tl.constexpr, key_head: tl.constexpr,
    value_step: tl.constexpr, value_head: tl.constexpr, bias_step: tl.constexpr, heads: tl.constexpr,
    width: tl.constexpr, least: tl.constexpr, block: tl.constexpr, at_once: tl.constexpr, half: tl.constexpr,
    forgotten: tl.constexpr, before: tl.constexpr, behind: tl.constexpr
):
    # Heads of a token lie side by side in memory: programs that run at one time are neighbours there.
    head, place = tl.program_id(0) % heads, tl.program_id(0) // heads
    start = tl.load(bounds + place)
    length = tl.load(bounds + place + 1) - start
    if (length > least) & (length <= block):  # the others have a launch of their own
        one, other = start, start
        if forgotten > 0:
            one, other, _, _ = tl.philox(tl.load(seed), start, head, 0, 0, 7)
        token = start.to(tl.int64)
        query += token * query_step + head * query_head
        key += token * key_step + head * key_head
        value += token * value_step + head * value_head
        bias += head * bias_step * bias_step
        attended += (token * heads + head) * width
        lse += head.to(tl.int64) * tokens + token
        if length > half:
            _forward_sequence(
                query, key, value, bias, attended, lse, query_step, key_step, value_step, bias_step, heads * width,
                one, other, length, scale, grow, width, block, at_once, forgotten, before, behind
            )
        elif half > 0:
            _forward_sequence(
                query, key, value, bias, attended, lse, query_step, key_step, value_step, bias_step, heads * width,
                one, other, length, scale, grow, width, half, min(at_once, half), forgotten, before, behind
            )


@triton.jit
@no_type_check
def _backward(
    query, key, value, bias, grad_output, attended, lse, gradient, bounds, seed, tokens, scale: tl.constexpr,
    grow: tl.constexpr, shrink: tl.constexpr, query_step: tl.constexpr, query_head: tl.constexpr,
    key_step: tl.constexpr, key_head: tl.constexpr, value_step: tl.constexpr, value_head: tl.constexpr,
    bias_step: tl.constexpr, heads: tl.constexpr, width: tl.constexpr, least: tl.constexpr, block: tl.constexpr,
    at_once: tl.constexpr, half: tl.constexpr, forgotten: tl.constexpr, before: tl.constexpr, behind: tl.constexpr
):
    head, place = tl.program_id(0) % heads, tl.program_id(0) // heads
    start = tl.load(bounds + place)
    length = tl.load(bounds + place + 1) - start
    if (length > least) & (length <= block):  # the others have a launch of their own
        one, other = start, start
        if forgotten > 0:
            one, other, _, _ = tl.philox(tl.load(seed), start, head, 0, 0, 7)
        token = start.to(tl.int64)
        query += token * query_step + head * query_head
        key += token * key_step + head * key_head
        value += token * value_step + head * value_head
        bias += head * bias_step * bias_step
        grad_output += (token * heads + head) * width
        attended += (token * heads + head) * width
        gradient += (token * 3 * heads + head) * width
        lse += head.to(tl.int64) * tokens + token
        if length > half:
            _backward_sequence(
                query, key, value, bias, grad_output, attended, lse, gradient,
                query_step, key_step, value_step, bias_step,
                heads * width, one, other, length, scale, grow, shrink, width, block, at_once, forgotten, before,
                behind
            )
        elif half > 0:
            _backward_sequence(
                query, key, value, bias, grad_output, attended, lse, gradient,
                query_step, key_step, value_step, bias_step,
                heads * width, one, other, length, scale, grow, shrink, width, half, min(at_once, half), forgotten,
                before, behind
            )
# fmt: on


def _sizes(query: Tensor, table: dict[int, LaunchConfig], block: int, biased: bool = False) -> Iterator[dict[str, Any]]:
    """What a kernel is told of its size, by name, once for each that is launched, the largest first.

    A small program takes few registers, so that many find room. Each size passes over the sequences of the others; the
    last one takes all that are longer than `least`.
    """
    full = query.dtype == torch.float32 and COMPILED
    halves = 0 if full else table[block].halves
    for turn in range(halves + 1):
        setting = FLOAT32 if full else table[block]
        if table is BACKWARD and block == 128 and query.shape[2] == 128:
            setting = replace(setting, warps=8)
        if table is BACKWARD and biased:
            setting = replace(setting, queries=16)  # what is added takes registers, too
        yield {
            "least": block // 2 if turn < halves else 0,
            "block": block,
            "at_once": min(setting.queries, block),
            "half": block // 2 if setting.branch else -1,
            "num_warps": setting.warps,
            "num_stages": setting.stages,
        }
        block //= 2


def launch_forward(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, bounds: Tensor, seed: Tensor, block: int, *how: Any
) -> tuple[Tensor, Tensor]:
    """What is taken, and the logarithms of what weights are divided by."""
    query, key, value = contiguous_heads(query), contiguous_heads(key), contiguous_heads(value)
    tokens, heads, _ = query.shape
    attended = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    logs = torch.empty((heads, tokens), dtype=torch.float32, device=query.device)
    kernel = wrap_triton(_forward) if COMPILED else _forward
    given = (query, key, value, bounds if bias is None else bias, attended, logs, bounds, seed)
    rest = kernel_arguments(query, key, value, *how) | {"bias_step": 0 if bias is None else bias.shape[1]}
    for size in _sizes(query, FORWARD, block):
        kernel[((bounds.shape[0] - 1) * heads,)](*given, **size, **rest)
    return attended, logs


def launch_backward(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    attended: Tensor,
    lse: Tensor,
    bounds: Tensor,
    seed: Tensor,
    block: int,
    *how: Any,
) -> Tensor:
    """The gradient of query, key and value, side by side."""
    query, key, value, grad_output = (
        contiguous_heads(query),
        contiguous_heads(key),
        contiguous_heads(value),
        grad_output.contiguous(),
    )
    tokens, heads, width = query.shape
    gradient = torch.empty((tokens, 3, heads, width), dtype=query.dtype, device=query.device)
    kernel = wrap_triton(_backward) if COMPILED else _backward
    given = (query, key, value, bounds if bias is None else bias, grad_output, attended, lse, gradient, bounds, seed)
    rest = kernel_arguments(query, key, value, *how) | {"bias_step": 0 if bias is None else bias.shape[1]}
    for size in _sizes(query, BACKWARD, block, bias is not None):
        kernel[((bounds.shape[0] - 1) * heads,)](*given, shrink=grad_scale(width, how[0]), **size, **rest)
    return gradient


@triton_op("bertsmith::short_gradient", mutates_args={})
def _gradient(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attended: Tensor,
    lse: Tensor,
    bounds: Tensor,
    seed: Tensor,
    block: int,
    dropout: float,
    before: int = -1,
    behind: int = -1,
) -> Tensor:
    """The gradient of the product."""
    return launch_backward(
        grad_output, query, key, value, None, attended, lse, bounds, seed, block, dropout, before, behind
    )


@triton_op("bertsmith::short", mutates_args={})
def _separate(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    seed: Tensor,
    block: int,
    dropout: float,
    before: int = -1,
    behind: int = -1,
) -> tuple[Tensor, Tensor]:
    return launch_forward(query, key, value, None, bounds, seed, block, dropout, before, behind)


@triton_op("bertsmith::short_joined", mutates_args={})
def _together(
    product: Tensor,
    bounds: Tensor,
    seed: Tensor,
    block: int,
    dropout: float,
    before: int = -1,
    behind: int = -1,
) -> tuple[Tensor, Tensor]:
    return launch_forward(
        product[:, 0], product[:, 1], product[:, 2], None, bounds, seed, block, dropout, before, behind
    )


register_gradients(_separate, _together, _gradient)
