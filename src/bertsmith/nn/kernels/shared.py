"""Shared parts of our Triton kernels: which GPUs can run them, their common arguments, masked loads, attention windows
and the random bits of dropout.

Imported only where a kernel is used, since it needs Triton, which comes with torch for CUDA. With TRITON_INTERPRET=1 in
the environment before Triton is first imported the same kernels run on a CPU, slowly: so they are tested without a GPU.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDTHS = (16, 32, 64, 128)  # of a head
SHARED_MEMORY = 155_648  # bytes of shared memory of the largest program, one in float32
MASKED_SCORE = tl.constexpr(-1e30)  # of a key outside the window: with -inf the softmax would compute inf - inf
INITIAL_MAX = tl.constexpr(-1e25)  # row maximum before the first key: above MASKED_SCORE, below every real score
RESOLUTION = 1 << 32  # of the random bits: the dropout probability is met to within one part in 2**32
GOLDEN_RATIO = tl.constexpr(0x9E3779B1)  # multiplicative hashing: spreads consecutive positions over 32 bits


def available(device: torch.device) -> bool:
    """Whether this GPU can run the kernels: Ampere or later, with as much shared memory as an A100."""
    if device.type != "cuda":
        return False
    card = torch.cuda.get_device_properties(device)
    return bool(card.major >= 8 and getattr(card, "shared_memory_per_block_optin", 0) >= SHARED_MEMORY)


def check_dropout(name: str, dropout: float, seed: Tensor | None) -> None:
    """Refuse a dropout probability out of range, or dropout without a seed."""
    if not 0 <= dropout < 1:
        raise ValueError(f"{name} attention: dropout of {dropout}. It is a share, from 0 to below 1.")
    if dropout and seed is None:
        raise ValueError(f"{name} attention: dropout without a seed. Draw one by torch.randint on the device.")


def contiguous_heads(part: Tensor) -> Tensor:
    """Queries, keys or values whose last dimension is contiguous: the kernels take any other strides."""
    return part if part.stride(2) == 1 else part.contiguous()


def kernel_arguments(
    query: Tensor, key: Tensor, value: Tensor, dropout: float, window_left: int, window_right: int
) -> dict[str, Any]:
    """The keyword arguments common to all attention kernels."""
    width, threshold = query.shape[2], round(dropout * RESOLUTION)
    return {
        "tokens": query.shape[0],
        "query_stride": query.stride(0),
        "query_head_stride": query.stride(1),
        "key_stride": key.stride(0),
        "key_head_stride": key.stride(1),
        "value_stride": value.stride(0),
        "value_head_stride": value.stride(1),
        "scale": width**-0.5 * 1.4426950408889634,  # with log2(e): a GPU computes powers of two
        "keep_scale": RESOLUTION / (RESOLUTION - threshold),
        "heads": query.shape[1],
        "width": width,
        "dropout_threshold": threshold,
        "window_left": window_left,
        "window_right": window_right,
    }


def grad_scale(width: int, dropout: float) -> float:
    """The factor of the gradients of queries and keys: 1 / sqrt(K), over the share of weights that dropout keeps."""
    return float(width**-0.5 * RESOLUTION / (RESOLUTION - round(dropout * RESOLUTION)))


def register_gradients(separate: Any, joined: Any, gradient: Any) -> None:
    """Register the backward pass of two operations: of separate query, key and value, and of one tensor with all three.

    Both return the output and its log-sum-exp, and `gradient` takes both.
    """

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *parts, bounds, seed, ctx.size, ctx.dropout, ctx.window_left, ctx.window_right = inputs
        ctx.save_for_backward(*parts, *output, bounds, seed)
        ctx.set_materialize_grads(False)

    def separate_backward(ctx: Any, grad_output: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad_output is None:
            return (None,) * 9
        options = (ctx.size, ctx.dropout, ctx.window_left, ctx.window_right)
        grad_qkv = gradient(grad_output, *ctx.saved_tensors, *options)
        return (*grad_qkv.unbind(1), *(None,) * 6)

    def joined_backward(ctx: Any, grad_output: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad_output is None:
            return (None,) * 7
        qkv, *others = ctx.saved_tensors
        options = (ctx.size, ctx.dropout, ctx.window_left, ctx.window_right)
        grad_qkv = gradient(grad_output, *qkv.unbind(1), *others, *options)
        return (grad_qkv, *(None,) * 6)

    separate.register_autograd(separate_backward, setup_context=setup_context)
    joined.register_autograd(joined_backward, setup_context=setup_context)


@triton.jit
@no_type_check
def load_rows(base, stride: tl.constexpr, rows, dims, length):
    # Rows past the end of the sequence read as 0: an inf of the next sequence would be nan even with a weight of 0.
    return tl.load(base + rows[:, None] * stride + dims[None, :], mask=rows[:, None] < length, other=0.0)


@triton.jit
@no_type_check
def store_rows(base, stride: tl.constexpr, rows, dims, length, values):
    addresses = base + rows[:, None] * stride + dims[None, :]
    tl.store(addresses, values.to(base.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
@no_type_check
def apply_window(scores, rows, columns, window_left: tl.constexpr, window_right: tl.constexpr):
    """Mask the scores of keys (columns) outside the attention window of queries (rows); -1 means unbounded."""
    if window_right >= 0:
        scores = tl.where(columns - rows <= window_right, scores, MASKED_SCORE)
    if window_left >= 0:
        scores = tl.where(rows - columns <= window_left, scores, MASKED_SCORE)
    return scores


@triton.jit
@no_type_check
def scaled_bias(bias, stride: tl.constexpr, rows, columns, length, scale: tl.constexpr):
    """The relative position bias, divided by `scale`, since the scores that it is added to are multiplied by it."""
    inside = (rows < length) & (columns < length)
    loaded = tl.load(bias + rows * stride + columns, mask=inside, other=0.0)
    return loaded.to(tl.float32) * (1.4426950408889634 / scale)


@triton.jit
@no_type_check
def hash_bits(seed, first, block: tl.constexpr):
    """32 random bits for each position of a block, hashed from the position and the seed of its sequence and head."""
    bits = tl.arange(0, block).to(tl.uint32) * GOLDEN_RATIO + (tl.cast(first, tl.uint32) * GOLDEN_RATIO + seed)
    return (bits ^ (bits >> 15)) * 0x846CA68B


@triton.jit
@no_type_check
def keep_mask(query_bits, key_bits, dropout_threshold: tl.constexpr):
    """The attention weights that dropout keeps: the product of the query's and the key's bits decides, modulo 2**32.

    Philox for every weight would take longer than the attention itself, and hashing each weight longer than all the
    rest. Here a weight costs one multiplication, and the masks of two rows or columns agree as often as independent
    ones: otherwise their bits would have to be small multiples of each other.
    """
    return query_bits * key_bits >= dropout_threshold


COMPILED = isinstance(load_rows, triton.runtime.JITFunction)  # else Triton's interpreter runs them
