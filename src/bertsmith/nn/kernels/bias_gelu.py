"""Bias and GELU, or GeGLU with its gate, in one pass over memory; and backwards with the gradient of the bias.

To bend the widest vectors of a network and to add up their slopes takes a tenth of a training step. A compiler does
each in a kernel of its own, and by an error function that takes longer than to read and write the numbers. Here
forwards and backwards are one kernel each, and the error function is Abramowitz and Stegun's 7.1.26, whose error of
1.5e-7 is a thousandth of what half precision rounds off.

Imported only where it is wanted, since it needs Triton.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.library import triton_op, wrap_triton

from bertsmith.nn.kernels.shared import COMPILED

ROWS, COLUMNS, WARPS = 8, 256, 4  # of numbers in a program: a warp reads a row of 512 bytes, which is one piece
HARDWARE = tl.constexpr(COMPILED)  # else Triton's interpreter, which knows no instructions
STRIPS = 512  # rows are dealt to so many programs backwards, each of which adds up the slopes of its own


def bias_gelu(
    wide: Float[Tensor, "T W"], bias: Float[Tensor, "W"] | None, *, gated: bool = False, tanh: bool = False
) -> Float[Tensor, "T F"]:
    """GELU of what was widened plus its bias, which is left out of the product before; `tanh` is its older shape.

    Of a gated one the first half is bent, and says how much of the second half passes. Gradients are the same every
    time: what is added up is added up in one order.
    """
    bent: Tensor = _bias_gelu(wide.contiguous(), bias, gated, tanh)
    return bent


# fmt: off
@triton.jit
@no_type_check
def _exp2(numbers):
    """Two to the power of each, by the GPU's own instruction; the usual call also looks after numbers below 1e-38."""
    if HARDWARE:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=r,r", [numbers], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.exp2(numbers)


@triton.jit
@no_type_check
def _reciprocal(numbers):
    """One over each, in the same way."""
    if HARDWARE:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [numbers], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1 / numbers


@triton.jit
@no_type_check
def _cdf_and_density(numbers, tanh: tl.constexpr):
    """The share of each number that passes, and how fast it grows."""
    if tanh:
        # (1 + tanh u) / 2 is the logistic function of 2u.
        bent = numbers * (1.5957691216 + 0.0713548162726 * numbers * numbers)
        share = _reciprocal(1 + _exp2(bent * -1.4426950408889634))
        growth = share * (1 - share) * (1.5957691216 + 0.2140644488178 * numbers * numbers)
        return share, growth
    bell = _exp2(numbers * numbers * -0.7213475204444817)
    near = _reciprocal(1 + 0.2316418882663604 * tl.abs(numbers))
    tail = 0.7107068705 + near * (-0.7265760135 + near * 0.5307027145)
    tail = near * (0.127414796 + near * (-0.142248368 + near * tail)) * bell  # beyond the number, away from nought
    return tl.where(numbers < 0, tail, 1 - tail), bell * 0.3989422804014327


@triton.jit
@no_type_check
def _gelu_forward(
    wide, bias, bent, tokens, width: tl.constexpr, gated: tl.constexpr, biased: tl.constexpr, tanh: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr
):
    strips: tl.constexpr = (width + columns - 1) // columns
    row = tl.program_id(0) // strips * rows + tl.arange(0, rows)[:, None]
    column = tl.program_id(0) % strips * columns + tl.arange(0, columns)[None, :]
    step: tl.constexpr = 2 * width if gated else width
    there = (row < tokens) & (column < width)
    place = row.to(tl.int64)
    numbers = tl.load(wide + place * step + column, mask=there, other=0.0).to(tl.float32)
    # Each row reads the bias for itself: to share it they would have to pass it round.
    beside = bias + column + row * 0
    if biased:
        numbers += tl.load(beside, mask=there, other=0.0).to(tl.float32)
    share, _ = _cdf_and_density(numbers, tanh)
    numbers = numbers * share
    if gated:
        passed = tl.load(wide + place * step + width + column, mask=there, other=0.0).to(tl.float32)
        if biased:
            passed += tl.load(beside + width, mask=there, other=0.0).to(tl.float32)
        numbers = numbers * passed
    tl.store(bent + place * width + column, numbers.to(bent.dtype.element_ty), mask=there)


@triton.jit
@no_type_check
def _gelu_backward(
    grad_output, wide, bias, gradient, sums, tokens, each,
    width: tl.constexpr, gated: tl.constexpr, biased: tl.constexpr,
    tanh: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr
):
    strips: tl.constexpr = (width + columns - 1) // columns
    step: tl.constexpr = 2 * width if gated else width
    part = tl.program_id(0) // strips
    column = tl.program_id(0) % strips * columns + tl.arange(0, columns)[None, :]
    inside = column < width
    first = part * each
    summed = tl.zeros([rows, columns], tl.float32)
    summed_passed = tl.zeros([rows, columns], tl.float32)
    for begin in tl.range(first, tl.minimum(first + each, tokens), rows):
        row = begin + tl.arange(0, rows)[:, None]
        there = (row < tokens) & inside
        place = row.to(tl.int64)
        slopes = tl.load(grad_output + place * width + column, mask=there, other=0.0).to(tl.float32)
        numbers = tl.load(wide + place * step + column, mask=there, other=0.0).to(tl.float32)
        beside = bias + column + row * 0
        if biased:
            numbers += tl.load(beside, mask=there, other=0.0).to(tl.float32)
        share, growth = _cdf_and_density(numbers, tanh)
        if gated:
            passed = tl.load(wide + place * step + width + column, mask=there, other=0.0).to(tl.float32)
            if biased:
                passed += tl.load(beside + width, mask=there, other=0.0).to(tl.float32)
            slopes_passed = slopes * numbers * share
            tl.store(
                gradient + place * step + width + column, slopes_passed.to(gradient.dtype.element_ty), mask=there
            )
            slopes = slopes * passed
            summed_passed += slopes_passed
        slopes = slopes * (share + numbers * growth)
        tl.store(gradient + place * step + column, slopes.to(gradient.dtype.element_ty), mask=there)
        summed += slopes
    if biased:
        tl.store(sums + part * step + column, tl.sum(summed, 0)[None, :], mask=inside)
        if gated:
            tl.store(sums + part * step + width + column, tl.sum(summed_passed, 0)[None, :], mask=inside)
# fmt: on


def _arguments(wide: Tensor, bias: Tensor | None, gated: bool, tanh: bool) -> dict[str, Any]:
    """What both kernels are told, by name."""
    return {
        "tokens": wide.shape[0],
        "width": wide.shape[1] // 2 if gated else wide.shape[1],
        "gated": gated,
        "biased": bias is not None,
        "tanh": tanh,
        "rows": ROWS,
        "columns": COLUMNS,
        "num_warps": WARPS,
    }


@triton_op("bertsmith::gelu", mutates_args={})
def _bias_gelu(wide: Tensor, bias: Tensor | None, gated: bool, tanh: bool) -> Tensor:
    tokens, width = wide.shape[0], wide.shape[1] // (2 if gated else 1)
    bent = torch.empty((tokens, width), dtype=wide.dtype, device=wide.device)
    kernel = wrap_triton(_gelu_forward) if COMPILED else _gelu_forward
    programs = -(-tokens // ROWS) * -(-width // COLUMNS)
    kernel[(programs,)](wide, wide if bias is None else bias, bent, **_arguments(wide, bias, gated, tanh))
    return bent


@triton_op("bertsmith::gelu_gradient", mutates_args={})
def _gradient(grad_output: Tensor, wide: Tensor, bias: Tensor | None, gated: bool, tanh: bool) -> tuple[Tensor, Tensor]:
    """The gradient of what was widened, and that of the bias, which is nothing where there is none."""
    grad_output, (tokens, step) = grad_output.contiguous(), wide.shape
    gradient = torch.empty_like(wide)
    each = max(1, -(-tokens // (STRIPS * ROWS))) * ROWS
    sums = torch.empty((STRIPS, step if bias is not None else 0), dtype=torch.float32, device=wide.device)
    kernel = wrap_triton(_gelu_backward) if COMPILED else _gelu_backward
    programs = STRIPS * -(-(step // 2 if gated else step) // COLUMNS)
    given = (grad_output, wide, wide if bias is None else bias, gradient, sums)
    kernel[(programs,)](*given, each=each, **_arguments(wide, bias, gated, tanh))
    return gradient, sums.sum(0).to(wide.dtype if bias is None else bias.dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    wide, bias, ctx.gated, ctx.tanh = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(wide, *([bias] if ctx.biased else []))


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
    wide, *bias = ctx.saved_tensors
    gradient, of_bias = _gradient(grad_output, wide, bias[0] if ctx.biased else None, ctx.gated, ctx.tanh)
    return gradient, of_bias if ctx.biased else None, None, None


_bias_gelu.register_autograd(_backward, setup_context=_setup_context)
