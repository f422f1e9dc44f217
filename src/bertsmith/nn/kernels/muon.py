"""Muon's passes over memory, before and after the orthogonalisation, as one kernel each.

torch takes eleven passes over the hidden matrices for what these two do in one each: a third of Muon's time, of which
only the matrix products are needed. Everything is read on the device, so that a CUDA graph can capture them.

Imported only where it is used, since it needs Triton.
"""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

BLOCK, WARPS = 2048, 4  # elements and warps of a program


def nesterov_momentum(
    gradient: Float[Tensor, "..."],
    average: Float[Tensor, "..."],
    direction: Float[Tensor, "..."],
    good: Float[Tensor, ""],
    momentum: float,
) -> None:
    """Update the running average of the gradients in place, and write Nesterov's direction.

    If `good` is 0, the average stays as it is and the direction is zero, whatever the gradient.
    """
    size = gradient.numel()
    _nesterov_momentum[(triton.cdiv(size, BLOCK),)](
        gradient, average, direction, good, size, momentum=momentum, block=BLOCK, num_warps=WARPS
    )


def apply_update(
    weight: Float[Tensor, "n rows columns"],
    update: Float[Tensor, "n rows columns"],
    factors: Float[Tensor, "n _ _"],
    decay: Float[Tensor, ""],
) -> None:
    """Multiply the weights by `decay` and add the update times its factors: one for each row, or for each column."""
    rows, columns = weight.shape[1:]
    size, by_row = weight.numel(), factors.shape[2] == 1
    _apply_update[(triton.cdiv(size, BLOCK),)](
        weight, update, factors, decay, size, rows=rows, columns=columns, by_row=by_row, block=BLOCK, num_warps=WARPS
    )


# fmt: off
@triton.jit
@no_type_check
def _nesterov_momentum(gradient, average, direction, good, size, momentum: tl.constexpr, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < size
    new = tl.load(gradient + place, mask=inside, other=0.0)
    before = tl.load(average + place, mask=inside, other=0.0)
    after = momentum * before + (1 - momentum) * new
    ahead = momentum * after + (1 - momentum) * new  # the average as it would be after this gradient again
    if tl.load(good) == 0:
        after, ahead = before, tl.zeros_like(ahead)
    tl.store(average + place, after, mask=inside)
    tl.store(direction + place, ahead.to(direction.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def _apply_update(
    weight, update, factors, decay, size, rows: tl.constexpr, columns: tl.constexpr, by_row: tl.constexpr,
    block: tl.constexpr
):
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < size
    row = place // columns
    index = row if by_row else row // rows * columns + place % columns
    factor = tl.load(factors + index, mask=inside, other=0.0)
    change = tl.load(update + place, mask=inside, other=0.0).to(tl.float32) * factor
    before = tl.load(weight + place, mask=inside, other=0.0)
    tl.store(weight + place, before * tl.load(decay) + change, mask=inside)
# fmt: on
