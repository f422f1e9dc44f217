"""Fused bias and GELU, or GeGLU with its gate, in one pass over memory; backwards with the gradient of the bias.

The activation of the feed-forward network and its gradients take a tenth of a training step. A compiler makes several
kernels of them, with an error function that takes longer than the memory traffic. Here forward and backward are one
kernel each, and the error function is Abramowitz and Stegun's 7.1.26, whose error of 1.5e-7 is a thousandth of the
rounding of half precision.

It takes 0.90 of the time of what `torch.compile` makes of the formula, with a gate 0.72 (`bench/beside_torch.py`, one
H200).

Imported only where it is used, since it needs Triton.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.library import triton_op, wrap_triton

from bertsmith.nn.kernels.shared import COMPILED

ROWS, COLUMNS, WARPS = 8, 256, 4  # of a program's tile: a warp reads a row of 512 bytes in one piece
HARDWARE = tl.constexpr(COMPILED)  # else Triton's interpreter, which has no inline assembly
SPLITS = 512  # programs that share the rows of a column tile backwards, each with its own bias gradient


def bias_gelu(
    wide: Float[Tensor, "T W"], bias: Float[Tensor, "W"] | None, *, gated: bool = False, tanh: bool = False
) -> Float[Tensor, "T F"]:
    """GELU of the up projection plus its bias, which the product before leaves out; `tanh` is its approximation.

    With a gate (GeGLU), GELU of the first half is multiplied by the second half. Gradients are deterministic: sums have
    a fixed order.
    """
    activated: Tensor = _bias_gelu(wide.contiguous(), bias, gated, tanh)
    return activated


# fmt: off
@triton.jit
@no_type_check
def _exp2(x):
    """2**x by the GPU's own instruction; the usual call also handles numbers below 1e-38."""
    if HARDWARE:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.exp2(x)


@triton.jit
@no_type_check
def _reciprocal(x):
    """1 / x, likewise."""
    if HARDWARE:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1 / x


@triton.jit
@no_type_check
def _cdf_and_density(x, tanh: tl.constexpr):
    """The normal distribution's cumulative probability at each number, and its derivative."""
    if tanh:
        # (1 + tanh u) / 2 is the logistic function of 2u.
        double_u = x * (1.5957691216 + 0.0713548162726 * x * x)
        cdf = _reciprocal(1 + _exp2(double_u * -1.4426950408889634))
        density = cdf * (1 - cdf) * (1.5957691216 + 0.2140644488178 * x * x)
        return cdf, density
    bell_curve = _exp2(x * x * -0.7213475204444817)
    inverse = _reciprocal(1 + 0.2316418882663604 * tl.abs(x))
    tail = 0.7107068705 + inverse * (-0.7265760135 + inverse * 0.5307027145)
    tail = inverse * (0.127414796 + inverse * (-0.142248368 + inverse * tail)) * bell_curve  # probability beyond |x|
    return tl.where(x < 0, tail, 1 - tail), bell_curve * 0.3989422804014327


@triton.jit
@no_type_check
def _gelu_forward(
    wide, bias, activated, tokens, width: tl.constexpr, gated: tl.constexpr, biased: tl.constexpr, tanh: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr
):
    column_tiles: tl.constexpr = (width + columns - 1) // columns
    row = tl.program_id(0) // column_tiles * rows + tl.arange(0, rows)[:, None]
    column = tl.program_id(0) % column_tiles * columns + tl.arange(0, columns)[None, :]
    stride: tl.constexpr = 2 * width if gated else width
    inside = (row < tokens) & (column < width)
    token = row.to(tl.int64)
    x = tl.load(wide + token * stride + column, mask=inside, other=0.0).to(tl.float32)
    # Each row loads the bias itself: sharing it would take an exchange between warps.
    bias_address = bias + column + row * 0
    if biased:
        x += tl.load(bias_address, mask=inside, other=0.0).to(tl.float32)
    cdf, _ = _cdf_and_density(x, tanh)
    x = x * cdf
    if gated:
        value = tl.load(wide + token * stride + width + column, mask=inside, other=0.0).to(tl.float32)
        if biased:
            value += tl.load(bias_address + width, mask=inside, other=0.0).to(tl.float32)
        x = x * value
    tl.store(activated + token * width + column, x.to(activated.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def _gelu_backward(
    grad_output, wide, bias, gradient, sums, tokens, rows_per_program,
    width: tl.constexpr, gated: tl.constexpr, biased: tl.constexpr,
    tanh: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr
):
    column_tiles: tl.constexpr = (width + columns - 1) // columns
    stride: tl.constexpr = 2 * width if gated else width
    split = tl.program_id(0) // column_tiles
    column = tl.program_id(0) % column_tiles * columns + tl.arange(0, columns)[None, :]
    valid_column = column < width
    first = split * rows_per_program
    sum_gate = tl.zeros([rows, columns], tl.float32)
    sum_value = tl.zeros([rows, columns], tl.float32)
    for begin in tl.range(first, tl.minimum(first + rows_per_program, tokens), rows):
        row = begin + tl.arange(0, rows)[:, None]
        inside = (row < tokens) & valid_column
        token = row.to(tl.int64)
        grad = tl.load(grad_output + token * width + column, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(wide + token * stride + column, mask=inside, other=0.0).to(tl.float32)
        bias_address = bias + column + row * 0
        if biased:
            x += tl.load(bias_address, mask=inside, other=0.0).to(tl.float32)
        cdf, density = _cdf_and_density(x, tanh)
        if gated:
            value = tl.load(wide + token * stride + width + column, mask=inside, other=0.0).to(tl.float32)
            if biased:
                value += tl.load(bias_address + width, mask=inside, other=0.0).to(tl.float32)
            grad_value = grad * x * cdf
            tl.store(
                gradient + token * stride + width + column, grad_value.to(gradient.dtype.element_ty), mask=inside
            )
            grad = grad * value
            sum_value += grad_value
        grad = grad * (cdf + x * density)
        tl.store(gradient + token * stride + column, grad.to(gradient.dtype.element_ty), mask=inside)
        sum_gate += grad
    if biased:
        tl.store(sums + split * stride + column, tl.sum(sum_gate, 0)[None, :], mask=valid_column)
        if gated:
            tl.store(sums + split * stride + width + column, tl.sum(sum_value, 0)[None, :], mask=valid_column)
# fmt: on


def _arguments(wide: Tensor, bias: Tensor | None, gated: bool, tanh: bool) -> dict[str, Any]:
    """The keyword arguments common to both kernels."""
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


@triton_op("bertsmith::bias_gelu", mutates_args={})
def _bias_gelu(wide: Tensor, bias: Tensor | None, gated: bool, tanh: bool) -> Tensor:
    tokens, width = wide.shape[0], wide.shape[1] // (2 if gated else 1)
    activated = torch.empty((tokens, width), dtype=wide.dtype, device=wide.device)
    kernel = wrap_triton(_gelu_forward) if COMPILED else _gelu_forward
    programs = -(-tokens // ROWS) * -(-width // COLUMNS)
    kernel[(programs,)](wide, wide if bias is None else bias, activated, **_arguments(wide, bias, gated, tanh))
    return activated


@triton_op("bertsmith::bias_gelu_gradient", mutates_args={})
def _gradient(grad_output: Tensor, wide: Tensor, bias: Tensor | None, gated: bool, tanh: bool) -> tuple[Tensor, Tensor]:
    """The gradients of the up projection and of the bias, which is empty without a bias."""
    grad_output, (tokens, stride) = grad_output.contiguous(), wide.shape
    gradient = torch.empty_like(wide)
    rows_per_program = max(1, -(-tokens // (SPLITS * ROWS))) * ROWS
    sums = torch.empty((SPLITS, stride if bias is not None else 0), dtype=torch.float32, device=wide.device)
    kernel = wrap_triton(_gelu_backward) if COMPILED else _gelu_backward
    programs = SPLITS * -(-(stride // 2 if gated else stride) // COLUMNS)
    pointers = (grad_output, wide, wide if bias is None else bias, gradient, sums)
    kernel[(programs,)](*pointers, rows_per_program=rows_per_program, **_arguments(wide, bias, gated, tanh))
    return gradient, sums.sum(0).to(wide.dtype if bias is None else bias.dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    wide, bias, ctx.gated, ctx.tanh = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(wide, *([bias] if ctx.biased else []))


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
    wide, *bias = ctx.saved_tensors
    gradient, grad_bias = _gradient(grad_output, wide, bias[0] if ctx.biased else None, ctx.gated, ctx.tanh)
    return gradient, grad_bias if ctx.biased else None, None, None


_bias_gelu.register_autograd(_backward, setup_context=_setup_context)
