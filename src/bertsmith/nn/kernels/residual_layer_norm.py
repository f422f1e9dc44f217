"""Fused residual connection and layer normalisation: bias, dropout, residual sum and norm in one pass over memory.

The backward pass, with the gradients of the biases and of the norm's weight, is one kernel, too: a compiler reads the
gradients once more for each of these sums. A compiler also keeps the normalised sum for the backward pass; here it is
recomputed from the output y as (y - norm bias) / norm weight, and the next product keeps y anyway. So a layer keeps an
eighth less memory. Half precision rounds both to eight bits; y keeps fewer bits of the sum only where the weight is far
smaller than the bias, which is why the weight counts as at least `MIN_WEIGHT` there.

It takes 0.94 of the time of what `torch.compile` makes of the formula, with dropout 0.90 (`bench/beside_torch.py`, one
H200).

Imported only where it is used, since it needs Triton.
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
    """How a kernel is launched: rows at a time, warps for a thousand columns, and programs that share the rows."""

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
    """LayerNorm(residual + dropout(product + bias)), with the dropout mask of `dropout_by_keys`."""
    normed: Tensor
    normed, _ = _residual_layer_norm(
        product.contiguous(), bias, residual.contiguous(), norm_weight, norm_bias, keys, eps, dropout
    )
    return normed


# fmt: off
@triton.jit
@no_type_check
def _keep_mask(keys, first, rows: tl.constexpr, columns: tl.constexpr, dropout_threshold: tl.constexpr):
    """The elements that dropout keeps, as in `dropout_by_keys`."""
    row_bits = hash_bits(tl.load(keys).to(tl.uint32, bitcast=True), first, rows)[:, None]
    column_bits = hash_bits(tl.load(keys + 1).to(tl.uint32, bitcast=True), 0, columns)[None, :]
    return (row_bits * column_bits).to(tl.int32, bitcast=True) >= dropout_threshold - 2147483648


@triton.jit
@no_type_check
def _norm_forward(
    product, bias, residual, weight, norm_bias, keys, normed, inverse_stds, tokens, eps: tl.constexpr,
    keep_scale: tl.constexpr, width: tl.constexpr, columns: tl.constexpr, rows: tl.constexpr,
    dropout_threshold: tl.constexpr
):
    first = tl.program_id(0) * rows
    row, column = first + tl.arange(0, rows), tl.arange(0, columns)
    inside = column < width
    valid = (row < tokens)[:, None] & inside[None, :]
    address = row.to(tl.int64)[:, None] * width + column[None, :]
    x = tl.load(product + address, mask=valid, other=0.0).to(tl.float32)
    x += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if dropout_threshold:
        x = tl.where(_keep_mask(keys, first, rows, columns, dropout_threshold), x * keep_scale, 0.0)
    x += tl.load(residual + address, mask=valid, other=0.0).to(tl.float32)
    x = tl.where(inside[None, :], x, 0.0)
    x = tl.where(inside[None, :], x - (tl.sum(x, 1) / width)[:, None], 0.0)
    inverse_std = tl.rsqrt(tl.sum(x * x, 1) / width + eps)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    output = x * inverse_std[:, None] * scale
    output += tl.load(norm_bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(normed + address, output.to(normed.dtype.element_ty), mask=valid)
    tl.store(inverse_stds + row, inverse_std, mask=row < tokens)


@triton.jit
@no_type_check
def _norm_backward(
    grad_output, normed, weight, norm_bias, keys, inverse_stds, grad_product, grad_residual, sums, tokens,
    rows_per_program, keep_scale: tl.constexpr, width: tl.constexpr, columns: tl.constexpr, rows: tl.constexpr,
    dropout_threshold: tl.constexpr
):
    column = tl.arange(0, columns)
    inside = column < width
    scale = tl.load(weight + column, mask=inside, other=1.0).to(tl.float32)
    offset = tl.load(norm_bias + column, mask=inside, other=0.0).to(tl.float32)
    inverse_weight = 1 / tl.where(tl.abs(scale) < MIN_WEIGHT, tl.where(scale < 0, -MIN_WEIGHT, MIN_WEIGHT), scale)
    sum_weight = tl.zeros([columns], tl.float32)
    sum_norm_bias = tl.zeros([columns], tl.float32)
    sum_bias = tl.zeros([columns], tl.float32)
    begin = tl.program_id(0) * rows_per_program
    for first in tl.range(begin, tl.minimum(begin + rows_per_program, tokens), rows):
        row = first + tl.arange(0, rows)
        valid = (row < tokens)[:, None] & inside[None, :]
        address = row.to(tl.int64)[:, None] * width + column[None, :]
        grad = tl.load(grad_output + address, mask=valid, other=0.0).to(tl.float32)
        x = tl.load(normed + address, mask=valid, other=0.0).to(tl.float32)
        x = tl.where(valid, (x - offset[None, :]) * inverse_weight[None, :], 0.0)
        inverse_std = tl.load(inverse_stds + row, mask=row < tokens, other=0.0)[:, None]
        sum_weight += tl.sum(grad * x, 0)
        sum_norm_bias += tl.sum(grad, 0)
        grad = grad * scale[None, :]
        mean, projection = tl.sum(grad, 1) / width, tl.sum(grad * x, 1) / width
        grad = tl.where(inside[None, :], (grad - mean[:, None] - x * projection[:, None]) * inverse_std, 0.0)
        tl.store(grad_residual + address, grad.to(grad_residual.dtype.element_ty), mask=valid)
        if dropout_threshold:
            grad = tl.where(_keep_mask(keys, first, rows, columns, dropout_threshold), grad * keep_scale, 0.0)
            tl.store(grad_product + address, grad.to(grad_product.dtype.element_ty), mask=valid)
        sum_bias += tl.sum(grad, 0)
    sums += tl.program_id(0) * 3 * width + column
    tl.store(sums, sum_weight, mask=inside)
    tl.store(sums + width, sum_norm_bias, mask=inside)
    tl.store(sums + 2 * width, sum_bias, mask=inside)
# fmt: on


def _arguments(tokens: Tensor, dropout: float, launch: LaunchConfig) -> dict[str, Any]:
    """The keyword arguments common to both kernels."""
    threshold, columns = round(dropout * RESOLUTION), triton.next_power_of_2(tokens.shape[1])
    return {
        "tokens": tokens.shape[0],
        # A constant of the kernel: as an argument inductor would pass it in double precision.
        "keep_scale": RESOLUTION / (RESOLUTION - threshold),
        "width": tokens.shape[1],
        "columns": columns,
        "rows": launch.rows,
        "dropout_threshold": threshold,
        "num_warps": min(16, launch.warps * max(1, columns // 1024)),
    }


@triton_op("bertsmith::residual_layer_norm", mutates_args={})
def _residual_layer_norm(
    product: Tensor,
    bias: Tensor,
    residual: Tensor,
    weight: Tensor,
    norm_bias: Tensor,
    keys: Tensor,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """The output, and one over the standard deviation of each row."""
    normed = torch.empty_like(product)
    inverse_stds = torch.empty(len(product), dtype=torch.float32, device=product.device)
    kernel = wrap_triton(_norm_forward) if COMPILED else _norm_forward
    pointers = (product, bias, residual, weight, norm_bias, keys, normed, inverse_stds)
    kernel[(-(-len(product) // FORWARD.rows),)](*pointers, eps=eps, **_arguments(product, dropout, FORWARD))
    return normed, inverse_stds


@triton_op("bertsmith::residual_layer_norm_gradient", mutates_args={})
def _gradient(
    grad_output: Tensor,
    normed: Tensor,
    weight: Tensor,
    norm_bias: Tensor,
    keys: Tensor,
    inverse_stds: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the residual; of the product, empty without dropout; of norm weight, norm bias and bias."""
    grad_output, (tokens, width) = grad_output.contiguous(), normed.shape
    grad_residual, grad_product = torch.empty_like(normed), torch.empty_like(normed if dropout else normed[:0])
    rows_per_program = max(1, -(-tokens // (BACKWARD.programs * BACKWARD.rows))) * BACKWARD.rows
    programs = max(1, -(-tokens // rows_per_program))
    sums = torch.empty((programs, 3, width), dtype=torch.float32, device=normed.device)
    kernel = wrap_triton(_norm_backward) if COMPILED else _norm_backward
    pointers = (grad_output, normed, weight, norm_bias, keys, inverse_stds, grad_product, grad_residual, sums)
    kernel[(programs,)](*pointers, rows_per_program=rows_per_program, **_arguments(normed, dropout, BACKWARD))
    return grad_residual, grad_product, sums.sum(0)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, bias, _, weight, norm_bias, keys, _, ctx.dropout = inputs
    normed, inverse_stds = output
    ctx.bias_dtype = bias.dtype
    ctx.save_for_backward(normed, weight, norm_bias, keys, inverse_stds)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_output: Tensor, _: None) -> tuple[Tensor | None, ...]:
    _, weight, norm_bias, *_ = ctx.saved_tensors
    grad_residual, grad_product, sums = _gradient(grad_output, *ctx.saved_tensors, ctx.dropout)
    grad_weight, grad_norm_bias, grad_bias = sums.unbind()
    parts = grad_weight.to(weight.dtype), grad_norm_bias.to(norm_bias.dtype), grad_bias.to(ctx.bias_dtype)
    return grad_product if ctx.dropout else grad_residual, parts[2], grad_residual, parts[0], parts[1], None, None, None


_residual_layer_norm.register_autograd(_backward, setup_context=_setup_context)
