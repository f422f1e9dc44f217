"""Variable-length attention for sequences of a few hundred tokens: one GPU program for each sequence and head.

FlashAttention walks through the keys in blocks and rescales its softmax on the way. A short sequence fits into one
program: keys and values are read once, the softmax is the plain one, and the backward pass writes all three gradients
without a second pass over anything. What is left is mostly the time to read and write memory.

It takes 0.48 of the time of torch's `varlen_attn` on rows ragged up to 128, 0.62 up to 256, and a third of
FlexAttention's (`bench/beside_torch.py`, one H200).

Imported only where it is used, since it needs Triton.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.library import triton_op, wrap_triton

from bertsmith.nn.kernels.attention_short_backward import short_backward
from bertsmith.nn.kernels.attention_short_forward import short_forward
from bertsmith.nn.kernels.shared import (
    COMPILED,
    WIDTHS,
    check_dropout,
    contiguous_heads,
    grad_scale,
    kernel_arguments,
    register_gradients,
)
from bertsmith.nn.window import FULL, Window

BLOCKS = (16, 32, 64, 128, 256)  # keys of a program: the smallest of these that holds the longest sequence
MAX_ELEMENTS = 256 * 64  # of one head's keys: the gradients of more do not fit into registers


@dataclass(frozen=True)
class LaunchConfig:
    """How a kernel is launched. Only speed depends on it."""

    queries: int  # of a block: forwards 16 for each warp; backwards fewer queries take fewer registers
    warps: int  # backwards one for at least 16 keys, or they do the same work twice
    stages: int = 1  # with 2 the next queries are loaded while these are computed
    halves: int = 0  # further launches, for sequences of at most half the block, a quarter and so on: see `_sizes`
    branch: bool = False  # or the program itself chooses half the block, with the registers of a whole one


# By block. Of 128 among the fastest tried on an H200, of others by what the compiler reports of registers and shared
# memory there; bench/attention.py tries more. Backwards Triton 3.6 computes wrong gradients of LaunchConfig(32, 4, 1):
# 32 queries at once need two stages, which the tests marked gpu check.
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
    """Whether sequences of at most `longest` tokens fit into one program, with heads of this width."""
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
    """Self-attention within each sequence, none of which is longer than `longest`.

    The dropout mask is a function of `seed` (int64, on the device), the position of the sequence's first token in the
    batch, the head, and the two tokens. The three gradients are views of one tensor, `T 3 H K`.
    """
    block = checked_block(longest, query.shape[2], dropout, seed)
    attended: Tensor
    seed = bounds if seed is None else seed
    attended, _ = _attention(query, key, value, bounds, seed, block, dropout, *window.sizes)
    return attended


def qkv_attention(
    qkv: Float[Tensor, "T 3 H K"],
    bounds: Int[Tensor, "..."],
    longest: int,
    dropout: float = 0.0,
    seed: Int[Tensor, ""] | None = None,
    window: Window = FULL,
) -> Float[Tensor, "T H K"]:
    """`short_attention` of query, key and value in one tensor, as one product computes them: so is the gradient."""
    block = checked_block(longest, qkv.shape[3], dropout, seed)
    attended: Tensor
    seed = bounds if seed is None else seed
    attended, _ = _qkv_attention(qkv, bounds, seed, block, dropout, *window.sizes)
    return attended


def _block(longest: int) -> int:
    return next(block for block in BLOCKS if longest <= block)


def checked_block(longest: int, width: int, dropout: float, seed: Tensor | None) -> int:
    """The block size; lengths, widths and dropout that the kernels cannot do are refused."""
    if not fits(longest, width):
        raise ValueError(
            f"short attention: sequences of {longest} tokens with heads of {width} do not fit into one program. "
            f"At most {BLOCKS[-1]} tokens, heads of {', '.join(map(str, WIDTHS))}, and a product of both of "
            f"{MAX_ELEMENTS}."
        )
    check_dropout("short", dropout, seed)
    return _block(longest)


def _sizes(query: Tensor, table: dict[int, LaunchConfig], block: int, biased: bool = False) -> Iterator[dict[str, Any]]:
    """The arguments of size of each launch, the largest block first.

    A small program takes few registers, so that many run at once. Each launch skips the sequences of the others; the
    last one takes all sequences longer than `min_length`.
    """
    float32 = query.dtype == torch.float32 and COMPILED
    halves = 0 if float32 else table[block].halves
    for turn in range(halves + 1):
        launch = FLOAT32 if float32 else table[block]
        if table is BACKWARD and block == 128 and query.shape[2] == 128:
            launch = replace(launch, warps=8)
        if table is BACKWARD and biased:
            launch = replace(launch, queries=16)  # the bias takes registers, too
        yield {
            "min_length": block // 2 if turn < halves else 0,
            "block": block,
            "query_block": min(launch.queries, block),
            "half_block": block // 2 if launch.branch else -1,
            "num_warps": launch.warps,
            "num_stages": launch.stages,
        }
        block //= 2


def launch_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    bounds: Tensor,
    seed: Tensor,
    block: int,
    *options: Any,
) -> tuple[Tensor, Tensor]:
    """The output, and the log-sum-exp of the scores of each query; `options` are dropout and the window."""
    query, key, value = contiguous_heads(query), contiguous_heads(key), contiguous_heads(value)
    tokens, heads, _ = query.shape
    attended = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    lse = torch.empty((heads, tokens), dtype=torch.float32, device=query.device)
    kernel = wrap_triton(short_forward) if COMPILED else short_forward
    pointers = (query, key, value, bounds if bias is None else bias, attended, lse, bounds, seed)
    arguments = kernel_arguments(query, key, value, *options) | {"bias_stride": 0 if bias is None else bias.shape[1]}
    for size in _sizes(query, FORWARD, block):
        kernel[((bounds.shape[0] - 1) * heads,)](*pointers, **size, **arguments)
    return attended, lse


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
    *options: Any,
) -> Tensor:
    """The gradients of query, key and value in one tensor, `T 3 H K`."""
    query, key, value, grad_output = (
        contiguous_heads(query),
        contiguous_heads(key),
        contiguous_heads(value),
        grad_output.contiguous(),
    )
    tokens, heads, width = query.shape
    gradient = torch.empty((tokens, 3, heads, width), dtype=query.dtype, device=query.device)
    kernel = wrap_triton(short_backward) if COMPILED else short_backward
    pointers = (query, key, value, bounds if bias is None else bias, grad_output, attended, lse, gradient, bounds, seed)
    arguments = kernel_arguments(query, key, value, *options) | {"bias_stride": 0 if bias is None else bias.shape[1]}
    for size in _sizes(query, BACKWARD, block, bias is not None):
        kernel[((bounds.shape[0] - 1) * heads,)](
            *pointers, grad_scale=grad_scale(width, options[0]), **size, **arguments
        )
    return gradient


@triton_op("bertsmith::short_attention_gradient", mutates_args={})
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
    window_left: int = -1,
    window_right: int = -1,
) -> Tensor:
    options = (block, dropout, window_left, window_right)
    return launch_backward(grad_output, query, key, value, None, attended, lse, bounds, seed, *options)


@triton_op("bertsmith::short_attention", mutates_args={})
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    seed: Tensor,
    block: int,
    dropout: float,
    window_left: int = -1,
    window_right: int = -1,
) -> tuple[Tensor, Tensor]:
    return launch_forward(query, key, value, None, bounds, seed, block, dropout, window_left, window_right)


@triton_op("bertsmith::short_attention_qkv", mutates_args={})
def _qkv_attention(
    qkv: Tensor,
    bounds: Tensor,
    seed: Tensor,
    block: int,
    dropout: float,
    window_left: int = -1,
    window_right: int = -1,
) -> tuple[Tensor, Tensor]:
    options = (block, dropout, window_left, window_right)
    return launch_forward(qkv[:, 0], qkv[:, 1], qkv[:, 2], None, bounds, seed, *options)


register_gradients(_attention, _qkv_attention, _gradient)
