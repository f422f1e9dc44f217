"""What a layer adds to what came in, and the norm behind it, in one pass over memory.

The bias of the product before, dropout, the sum and the norm are one kernel, and backwards with the gradients of bias
and norm another: a compiler reads the widest gradients once more for each of these sums. And a compiler keeps the sum
for the way back; here it is found again from what came out, (y - shift) / weight, which the next product keeps anyhow.
So a layer keeps an eighth less. Half precision rounds either to eight bits; only where a weight is far smaller than its
shift is less left of what came out, which is why that weight is taken as at least `LEAST`.

Imported only where it is wanted, since it needs Triton.
"""

from typing import Any, NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.library import triton_op, wrap_triton

from bertsmith.nn.kernels.shared import COMPILED, RESOLUTION, hash_bits

MIN_WEIGHT = tl.constexpr(1e-3)


class LaunchConfig(NamedTuple):
    """How a kernel is cut: rows at a time, warps for a thousand columns, and how many programs share the rows."""

    rows: int
    warps: int
    programs: int = 0


FORWARD, BACKWARD = LaunchConfig(1, 1), LaunchConfig(4, 4, 1056)


def residual_layer_norm(
    product: Float[Tensor, "T D"],
    bias: Float[Tensor, "D"],
    residual: Float[Tensor, "T D"],
    norm_weight: Float[Tensor, "D"],
    norm_bias: Float[Tensor, "D"],
    eps: float,
    dropout: float,
    keys: Int[Tensor, "2"],
) -> Float[Tensor, "T D"]:
    """The norm of `beside` plus what dropout leaves of product and bias: what `dropout.forgetful` says by the keys."""
    normed: Tensor
    normed, _ = _residual_layer_norm(
        product.contiguous(), bias, residual.contiguous(), norm_weight, norm_bias, keys, eps, dropout
    )
    return normed


# fmt: off
@triton.jit
@no_type_check
def _keep_mask(keys, first, rows: tl.constexpr, columns: tl.constexpr, forgotten: tl.constexpr):
    """Which numbers are not forgotten, as `dropout.forgetful` has it."""
    lots = hash_bits(tl.load(keys).to(tl.uint32, bitcast=True), first, rows)[:, None]
    others = hash_bits(tl.load(keys + 1).to(tl.uint32, bitcast=True), 0, columns)[None, :]
    return (lots * others).to(tl.int32, bitcast=True) >= forgotten - 2147483648


@triton.jit
@no_type_check
def _norm_forward(
    product, bias, residual, weight, shift, keys, normed, roots, tokens, eps: tl.constexpr, grow: tl.constexpr,
    width: tl.constexpr, columns: tl.constexpr, rows: tl.constexpr, forgotten: tl.constexpr
):
    first = tl.program_id(0) * rows
    row, column = first + tl.arange(0, rows), tl.arange(0, columns)
    inside = column < width
    there = (row < tokens)[:, None] & inside[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    numbers = tl.load(product + place, mask=there, other=0.0).to(tl.float32)
    numbers += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if forgotten:
        numbers = tl.where(_keep_mask(keys, first, rows, columns, forgotten), numbers * grow, 0.0)
    numbers += tl.load(residual + place, mask=there, other=0.0).to(tl.float32)
    numbers = tl.where(inside[None, :], numbers, 0.0)
    numbers = tl.where(inside[None, :], numbers - (tl.sum(numbers, 1) / width)[:, None], 0.0)
    root = tl.rsqrt(tl.sum(numbers * numbers, 1) / width + eps)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    found = numbers * root[:, None] * scale + tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(normed + place, found.to(normed.dtype.element_ty), mask=there)
    tl.store(roots + row, root, mask=row < tokens)


@triton.jit
@no_type_check
def _norm_backward(
    grad_output, normed, weight, shift, keys, roots, by_product, by_beside, sums, tokens, each, grow: tl.constexpr,
    width: tl.constexpr, columns: tl.constexpr, rows: tl.constexpr, forgotten: tl.constexpr
):
    column = tl.arange(0, columns)
    inside = column < width
    scale = tl.load(weight + column, mask=inside, other=1.0).to(tl.float32)
    moved = tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)
    over = 1 / tl.where(tl.abs(scale) < MIN_WEIGHT, tl.where(scale < 0, -MIN_WEIGHT, MIN_WEIGHT), scale)
    of_weight = tl.zeros([columns], tl.float32)
    of_shift = tl.zeros([columns], tl.float32)
    of_bias = tl.zeros([columns], tl.float32)
    begin = tl.program_id(0) * each
    for first in tl.range(begin, tl.minimum(begin + each, tokens), rows):
        row = first + tl.arange(0, rows)
        there = (row < tokens)[:, None] & inside[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        slopes = tl.load(grad_output + place, mask=there, other=0.0).to(tl.float32)
        numbers = tl.load(normed + place, mask=there, other=0.0).to(tl.float32)
        numbers = tl.where(there, (numbers - moved[None, :]) * over[None, :], 0.0)
        root = tl.load(roots + row, mask=row < tokens, other=0.0)[:, None]
        of_weight += tl.sum(slopes * numbers, 0)
        of_shift += tl.sum(slopes, 0)
        slopes = slopes * scale[None, :]
        mean, along = tl.sum(slopes, 1) / width, tl.sum(slopes * numbers, 1) / width
        slopes = tl.where(inside[None, :], (slopes - mean[:, None] - numbers * along[:, None]) * root, 0.0)
        tl.store(by_beside + place, slopes.to(by_beside.dtype.element_ty), mask=there)
        if forgotten:
            slopes = tl.where(_keep_mask(keys, first, rows, columns, forgotten), slopes * grow, 0.0)
            tl.store(by_product + place, slopes.to(by_product.dtype.element_ty), mask=there)
        of_bias += tl.sum(slopes, 0)
    sums += tl.program_id(0) * 3 * width + column
    tl.store(sums, of_weight, mask=inside)
    tl.store(sums + width, of_shift, mask=inside)
    tl.store(sums + 2 * width, of_bias, mask=inside)
# fmt: on


def _arguments(tokens: Tensor, share: float, setting: LaunchConfig) -> dict[str, Any]:
    """What both kernels are told, by name."""
    forgotten, columns = round(share * RESOLUTION), triton.next_power_of_2(tokens.shape[1])
    return {
        "tokens": tokens.shape[0],
        "grow": RESOLUTION
        / (RESOLUTION - forgotten),  # known to the kernel: inductor hands floats over in double precision
        "width": tokens.shape[1],
        "columns": columns,
        "rows": setting.rows,
        "forgotten": forgotten,
        "num_warps": min(16, setting.warps * max(1, columns // 1024)),
    }


@triton_op("bertsmith::norm", mutates_args={})
def _residual_layer_norm(
    product: Tensor,
    bias: Tensor,
    residual: Tensor,
    weight: Tensor,
    shift: Tensor,
    keys: Tensor,
    eps: float,
    share: float,
) -> tuple[Tensor, Tensor]:
    """What is normed, and one over the deviation of each row."""
    normed = torch.empty_like(product)
    roots = torch.empty(len(product), dtype=torch.float32, device=product.device)
    kernel = wrap_triton(_norm_forward) if COMPILED else _norm_forward
    given = (product, bias, residual, weight, shift, keys, normed, roots)
    kernel[(-(-len(product) // FORWARD.rows),)](*given, eps=eps, **_arguments(product, share, FORWARD))
    return normed, roots


@triton_op("bertsmith::norm_gradient", mutates_args={})
def _gradient(
    grad_output: Tensor, normed: Tensor, weight: Tensor, shift: Tensor, keys: Tensor, roots: Tensor, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By what was beside; by the product, which is nothing where nothing was forgotten; by weight, shift and bias."""
    grad_output, (tokens, width) = grad_output.contiguous(), normed.shape
    by_beside, by_product = torch.empty_like(normed), torch.empty_like(normed if share else normed[:0])
    each = max(1, -(-tokens // (BACKWARD.programs * BACKWARD.rows))) * BACKWARD.rows
    programs = max(1, -(-tokens // each))
    sums = torch.empty((programs, 3, width), dtype=torch.float32, device=normed.device)
    kernel = wrap_triton(_norm_backward) if COMPILED else _norm_backward
    given = (grad_output, normed, weight, shift, keys, roots, by_product, by_beside, sums)
    kernel[(programs,)](*given, each=each, **_arguments(normed, share, BACKWARD))
    return by_beside, by_product, sums.sum(0)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, bias, _, weight, shift, keys, _, ctx.share = inputs
    normed, roots = output
    ctx.bias = bias.dtype
    ctx.save_for_backward(normed, weight, shift, keys, roots)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_output: Tensor, _: None) -> tuple[Tensor | None, ...]:
    _, weight, shift, *_ = ctx.saved_tensors
    by_beside, by_product, sums = _gradient(grad_output, *ctx.saved_tensors, ctx.share)
    by_weight, by_shift, by_bias = sums.unbind()
    parts = by_weight.to(weight.dtype), by_shift.to(shift.dtype), by_bias.to(ctx.bias)
    return by_product if ctx.share else by_beside, parts[2], by_beside, parts[0], parts[1], None, None, None


_residual_layer_norm.register_autograd(_backward, setup_context=_setup_context)
