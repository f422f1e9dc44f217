"""Variable-length attention for sequences of any length, after FlashAttention (Dao et al. 2022): one GPU program for
each block of a sequence and head.

Forwards a program holds its queries and walks through the keys, rescaling its softmax on the way, so that the matrix of
scores is never stored. Backwards there are two kernels, one for the queries and one for the keys.

It takes 0.59 of the time of torch's `varlen_attn` on rows ragged up to 512, and 0.38 of FlexAttention's
(`bench/beside_torch.py`, one H200).

Imported only where it is used, since it needs Triton.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.library import triton_op, wrap_triton

from bertsmith.nn.kernels.attention_long_backward import long_backward_keys, long_backward_queries
from bertsmith.nn.kernels.attention_long_forward import long_forward
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

LENGTH_MULTIPLE = 128  # the longest length is rounded up: few lengths, and so few CUDA graphs


@dataclass(frozen=True)
class LaunchConfig:
    """How a kernel is launched. Only speed depends on it."""

    queries: int  # of a block. Of queries and keys one block stays in the program, which walks through the other's
    keys: int  # of a block
    warps: int  # one for at least 16 rows of the block that stays
    stages: int = 2  # the next block is loaded while this one is computed


# By width of a head. Of 64 the fastest of those that bench/attention.py tries on an H200, of others by what the
# compiler reports of registers and shared memory there. The larger the block that stays, the fewer times the others are
# read; the smaller the blocks, the more programs run at once.
FORWARD = {
    16: LaunchConfig(64, 64, 4),
    32: LaunchConfig(128, 64, 4),
    64: LaunchConfig(64, 64, 4, 3),
    128: LaunchConfig(64, 64, 4),
}
QUERIES = {
    16: LaunchConfig(64, 64, 4),
    32: LaunchConfig(64, 64, 4),
    64: LaunchConfig(64, 64, 4),
    128: LaunchConfig(64, 64, 4),
}
KEYS = {
    16: LaunchConfig(64, 64, 4),
    32: LaunchConfig(64, 64, 4),
    64: LaunchConfig(32, 64, 4, 3),
    128: LaunchConfig(32, 128, 8),
}
FLOAT32 = LaunchConfig(32, 32, 8)  # float32 on a GPU, without tensor cores: right, not fast


def fits(head_width: int) -> bool:
    """Whether there is a kernel for heads of this width; any length will do."""
    return head_width in WIDTHS


def long_attention(
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
    longest = _checked_length(longest, query.shape[2], dropout, seed)
    attended: Tensor
    seed = bounds if seed is None else seed
    attended, _ = _attention(query, key, value, bounds, seed, longest, dropout, *window.sizes)
    return attended


def qkv_attention(
    qkv: Float[Tensor, "T 3 H K"],
    bounds: Int[Tensor, "..."],
    longest: int,
    dropout: float = 0.0,
    seed: Int[Tensor, ""] | None = None,
    window: Window = FULL,
) -> Float[Tensor, "T H K"]:
    """`long_attention` of query, key and value in one tensor, as one product computes them: so is the gradient."""
    longest = _checked_length(longest, qkv.shape[3], dropout, seed)
    attended: Tensor
    seed = bounds if seed is None else seed
    attended, _ = _qkv_attention(qkv, bounds, seed, longest, dropout, *window.sizes)
    return attended


def _checked_length(longest: int, width: int, dropout: float, seed: Tensor | None) -> int:
    """The longest length, rounded up; widths and dropout that the kernels cannot do are refused."""
    if not fits(width):
        raise ValueError(f"long attention: heads of {width}. They can be {', '.join(map(str, WIDTHS))} wide.")
    check_dropout("long", dropout, seed)
    return max(1, -(-longest // LENGTH_MULTIPLE)) * LENGTH_MULTIPLE


def _launch_config(query: Tensor, table: dict[int, LaunchConfig]) -> LaunchConfig:
    return FLOAT32 if query.dtype == torch.float32 and COMPILED else table[query.shape[2]]


def _arguments(query: Tensor, key: Tensor, value: Tensor, launch: LaunchConfig, *options: Any) -> dict[str, Any]:
    """The keyword arguments common to the three kernels; `options` are dropout and the window."""
    return {
        **kernel_arguments(query, key, value, *options),
        "query_block": launch.queries,
        "key_block": launch.keys,
        "num_warps": launch.warps,
        "num_stages": launch.stages,
    }


def _launch_forward(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, seed: Tensor, longest: int, *options: Any
) -> tuple[Tensor, Tensor]:
    """The output, and the log-sum-exp of the scores of each query."""
    query, key, value = contiguous_heads(query), contiguous_heads(key), contiguous_heads(value)
    tokens, heads, _ = query.shape
    attended = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    lse = torch.empty((heads, tokens), dtype=torch.float32, device=query.device)
    launch = _launch_config(query, FORWARD)
    blocks = -(-longest // launch.queries)
    kernel = wrap_triton(long_forward) if COMPILED else long_forward
    kernel[((bounds.shape[0] - 1) * blocks * heads,)](
        *(query, key, value, attended, lse, bounds, seed),
        blocks=blocks,
        **_arguments(query, key, value, launch, *options),
    )
    return attended, lse


@triton_op("bertsmith::long_attention_gradient", mutates_args={})
def _gradient(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attended: Tensor,
    lse: Tensor,
    bounds: Tensor,
    seed: Tensor,
    longest: int,
    dropout: float,
    window_left: int = -1,
    window_right: int = -1,
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
    statistics = torch.empty((heads, tokens, 4), dtype=torch.float32, device=query.device)
    options = (dropout, window_left, window_right)
    launch = _launch_config(query, QUERIES)
    blocks = -(-longest // launch.queries)
    kernel = wrap_triton(long_backward_queries) if COMPILED else long_backward_queries
    kernel[((bounds.shape[0] - 1) * blocks * heads,)](
        *(query, key, value, grad_output, attended, lse, statistics, gradient, bounds, seed),
        blocks=blocks,
        grad_scale=grad_scale(width, dropout),
        **_arguments(query, key, value, launch, *options),
    )
    launch = _launch_config(query, KEYS)
    blocks = -(-longest // launch.keys)
    kernel = wrap_triton(long_backward_keys) if COMPILED else long_backward_keys
    kernel[((bounds.shape[0] - 1) * blocks * heads,)](
        *(query, key, value, grad_output, statistics, gradient, bounds, seed),
        blocks=blocks,
        grad_scale=grad_scale(width, dropout),
        **_arguments(query, key, value, launch, *options),
    )
    return gradient


@triton_op("bertsmith::long_attention", mutates_args={})
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    seed: Tensor,
    longest: int,
    dropout: float,
    window_left: int = -1,
    window_right: int = -1,
) -> tuple[Tensor, Tensor]:
    return _launch_forward(query, key, value, bounds, seed, longest, dropout, window_left, window_right)


@triton_op("bertsmith::long_attention_qkv", mutates_args={})
def _qkv_attention(
    qkv: Tensor,
    bounds: Tensor,
    seed: Tensor,
    longest: int,
    dropout: float,
    window_left: int = -1,
    window_right: int = -1,
) -> tuple[Tensor, Tensor]:
    options = (dropout, window_left, window_right)
    return _launch_forward(qkv[:, 0], qkv[:, 1], qkv[:, 2], bounds, seed, longest, *options)


register_gradients(_attention, _qkv_attention, _gradient)
