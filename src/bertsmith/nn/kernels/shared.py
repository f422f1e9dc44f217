"""Programs of a GPU, in Triton: what `short` and `long`, our own attention, have in common, and what `gelu` asks.

Imported only where it is wanted, since it needs Triton, which comes with torch for CUDA. With TRITON_INTERPRET=1 in the
environment before Triton is first imported the same kernels run on a CPU, slowly; so they are tested without a GPU.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDTHS = (16, 32, 64, 128)  # of a head
SHARED_MEMORY = 155_648  # bytes of shared memory that the largest program asks for, which is one in full precision
MASKED_SCORE = tl.constexpr(-1e30)  # the score of a key out of reach: infinity less infinity would be no number
INITIAL_MAX = tl.constexpr(-1e25)  # the highest score of a query that has seen no key yet, above those out of reach
RESOLUTION = 1 << 32  # of chance: the share forgotten is met to within one of them
GOLDEN_RATIO = tl.constexpr(0x9E3779B1)  # neighbours multiplied by it lie far apart


def available(device: torch.device) -> bool:
    """Whether a GPU can run them: Ampere or later, as much shared memory as an A100."""
    if device.type != "cuda":
        return False
    card = torch.cuda.get_device_properties(device)
    return bool(card.major >= 8 and getattr(card, "shared_memory_per_block_optin", 0) >= SHARED_MEMORY)


def check_dropout(name: str, dropout: float, seed: Tensor | None) -> None:
    """Refuse what no kernel can do."""
    if not 0 <= dropout < 1:
        raise ValueError(f"{name} attention: dropout of {dropout}. It is a share, from 0 to below 1.")
    if dropout and seed is None:
        raise ValueError(f"{name} attention: dropout without a seed. Draw one by torch.randint on the device.")


def contiguous_heads(part: Tensor) -> Tensor:
    """Any strides but one will do: the numbers of a head lie side by side."""
    return part if part.stride(2) == 1 else part.contiguous()


def kernel_arguments(
    query: Tensor, key: Tensor, value: Tensor, dropout: float, before: int, behind: int
) -> dict[str, Any]:
    """What every kernel is told, by name."""
    width, forgotten = query.shape[2], round(dropout * RESOLUTION)
    return {
        "tokens": query.shape[0],
        "query_step": query.stride(0),
        "query_head": query.stride(1),
        "key_step": key.stride(0),
        "key_head": key.stride(1),
        "value_step": value.stride(0),
        "value_head": value.stride(1),
        "scale": width**-0.5 * 1.4426950408889634,  # powers of two are what a GPU computes
        "grow": RESOLUTION / (RESOLUTION - forgotten),
        "heads": query.shape[1],
        "width": width,
        "forgotten": forgotten,
        "before": before,
        "behind": behind,
    }


def grad_scale(width: int, dropout: float) -> float:
    """What gradients of queries and keys are multiplied by, which backward kernels are told besides."""
    return float(width**-0.5 * RESOLUTION / (RESOLUTION - round(dropout * RESOLUTION)))


def register_gradients(separate: Any, together: Any, gradient: Any) -> None:
    """Teach two operations their gradient: of query, key and value, and of the product that holds all three.

    Both return what was taken and its logarithms, and `gradient` wants both again.
    """

    def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *parts, bounds, seed, ctx.size, ctx.dropout, ctx.before, ctx.behind = inputs
        ctx.save_for_backward(*parts, *output, bounds, seed)
        ctx.set_materialize_grads(False)

    def of_parts(ctx: Any, above: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if above is None:
            return (None,) * 9
        found = gradient(above, *ctx.saved_tensors, ctx.size, ctx.dropout, ctx.before, ctx.behind)
        return (*found.unbind(1), *(None,) * 6)

    def of_product(ctx: Any, above: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if above is None:
            return (None,) * 7
        product, *others = ctx.saved_tensors
        found = gradient(above, *product.unbind(1), *others, ctx.size, ctx.dropout, ctx.before, ctx.behind)
        return (found, *(None,) * 6)

    separate.register_autograd(of_parts, setup_context=remember)
    together.register_autograd(of_product, setup_context=remember)


@triton.jit
@no_type_check
def load_rows(base, step: tl.constexpr, rows, numbers, length):
    # What stands behind the sequence reads as nought: a neighbour's inf would be nan even with a weight of nought.
    return tl.load(base + rows[:, None] * step + numbers[None, :], mask=rows[:, None] < length, other=0.0)


@triton.jit
@no_type_check
def store_rows(base, step: tl.constexpr, rows, numbers, length, found):
    places = base + rows[:, None] * step + numbers[None, :]
    tl.store(places, found.to(base.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
@no_type_check
def apply_window(scores, rows, columns, before: tl.constexpr, behind: tl.constexpr):
    """Scores of keys (columns) that lie within the reach of queries (rows); -1 reaches all."""
    if behind >= 0:
        scores = tl.where(columns - rows <= behind, scores, MASKED_SCORE)
    if before >= 0:
        scores = tl.where(rows - columns <= before, scores, MASKED_SCORE)
    return scores


@triton.jit
@no_type_check
def scaled_bias(bias, step: tl.constexpr, rows, columns, length, scale: tl.constexpr):
    """What relative positions add to scores that are still to be multiplied by `scale`, for powers of two."""
    there = (rows < length) & (columns < length)
    numbers = tl.load(bias + rows * step + columns, mask=there, other=0.0)
    return numbers.to(tl.float32) * (1.4426950408889634 / scale)


@triton.jit
@no_type_check
def hash_bits(key, first, block: tl.constexpr):
    """A number for each query or key of a block: one key of its sequence and head and its place, well mixed."""
    bits = tl.arange(0, block).to(tl.uint32) * GOLDEN_RATIO + (tl.cast(first, tl.uint32) * GOLDEN_RATIO + key)
    return (bits ^ (bits >> 15)) * 0x846CA68B


@triton.jit
@no_type_check
def keep_mask(lots, others, forgotten: tl.constexpr):
    """Which weights are not forgotten: the upper bits of a product decide, of the query's number and the key's.

    Philox for every weight would take longer than the attention itself, and to mix the bits of each longer than all
    the rest. Here a weight costs one multiplication, and the masks of two rows or columns agree as often as chance has
    it: their numbers would have to be small multiples of each other.
    """
    return lots * others >= forgotten


COMPILED = isinstance(load_rows, triton.runtime.JITFunction)  # else Triton's interpreter runs them
