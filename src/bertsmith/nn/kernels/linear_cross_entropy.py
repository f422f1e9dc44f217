"""Linear layer and cross-entropy over a vocabulary in chunks, so that the logits of all positions never exist at once.

A step that predicts every token of a large batch would keep gigabytes of logits for the backward pass. Since the loss
is a sum, the gradient of each logit is known with the logits of its position: it is computed in the forward pass and
overwrites them.

It takes as long as what `torch.compile` makes of the formula for the masked words of a batch, 0.95 of it for all words,
and half of the time of plain calls, without their logits (`bench/beside_torch.py`, one H200).

Imported only where it is used, since it needs Triton.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 2**28  # logits: half a gibibyte in half precision; fewer would sum the gradient of the table more often
COLUMNS, WARPS = 4096, 8  # logits of a program at a time


def linear_cross_entropy(
    hidden: Float[Tensor, "N D"],
    table: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"],
    targets: Int[Tensor, "N"],
) -> Float[Tensor, ""]:
    """The summed loss, as `F.cross_entropy` of `F.linear`; targets of -100 are ignored."""
    total: Tensor
    total, *_ = _loss_and_gradients(hidden.contiguous(), table, bias, targets, bias.requires_grad)
    return total


@triton.jit
@no_type_check
def _logit_gradients(logits, targets, losses, vocabulary: tl.constexpr, columns: tl.constexpr):
    """The loss of one position; the gradient of each logit overwrites the logit."""
    row = tl.program_id(0).to(tl.int64)
    logits_row = logits + row * vocabulary
    target = tl.load(targets + row)
    valid = target >= 0
    # Loaded before any warp can have overwritten it: the sums below synchronise the warps.
    true = tl.load(logits_row + tl.where(valid, target, 0)).to(tl.float32) * 1.4426950408889634
    row_max, row_sum = -1e30, 0.0
    for first in tl.range(0, vocabulary, columns):
        column = first + tl.arange(0, columns)
        x = tl.load(logits_row + column, mask=column < vocabulary, other=-float("inf")).to(tl.float32)
        x = x * 1.4426950408889634  # log2(e): a GPU computes powers of two
        new_max = tl.maximum(row_max, tl.max(x, 0))
        row_sum = row_sum * tl.exp2(row_max - new_max) + tl.sum(tl.exp2(x - new_max), 0)
        row_max = new_max
    lse = row_max + tl.log2(row_sum)
    tl.store(losses + row, tl.where(valid, (lse - true) * 0.6931471805599453, 0.0))
    for first in tl.range(0, vocabulary, columns):
        column = first + tl.arange(0, columns)
        x = tl.load(logits_row + column, mask=column < vocabulary, other=-float("inf")).to(tl.float32)
        grad = tl.exp2(x * 1.4426950408889634 - lse) - tl.where(column == target, 1.0, 0.0)
        grad = tl.where(valid, grad, 0.0)
        tl.store(logits_row + column, grad.to(logits.dtype.element_ty), mask=column < vocabulary)


# Not a `triton_op`: a compiler that could look inside would compute all products first, and so keep all logits.
@torch.library.custom_op("bertsmith::linear_cross_entropy", mutates_args=())
def _loss_and_gradients(
    hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, biased: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The summed loss, and its gradients with respect to the vectors, the table and the bias."""
    (positions, _), vocabulary = hidden.shape, len(table)
    rows = -(-positions // max(1, -(-positions * vocabulary // CHUNK)))
    losses = hidden.new_empty(positions, dtype=torch.float32)
    grad_hidden, grad_bias = torch.empty_like(hidden), torch.zeros_like(bias, dtype=torch.float32)
    grad_table = torch.zeros_like(table, dtype=torch.float32)
    buffer = hidden.new_empty((rows, vocabulary))
    for first in range(0, positions, rows):
        chunk = slice(first, first + rows)
        logits = torch.addmm(bias, hidden[chunk], table.t(), out=buffer[: len(hidden[chunk])])
        _logit_gradients[(len(logits),)](logits, targets[chunk], losses[chunk], vocabulary, COLUMNS, num_warps=WARPS)
        torch.mm(logits, table, out=grad_hidden[chunk])
        grad_table += logits.t() @ hidden[chunk]
        if biased:
            grad_bias += logits.sum(0, dtype=torch.float32)
    return losses.sum(), grad_hidden, grad_table.to(table.dtype), grad_bias.to(bias.dtype)


@_loss_and_gradients.register_fake
def _(
    hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, biased: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = hidden.new_empty((), dtype=torch.float32)
    return total, torch.empty_like(hidden), torch.empty_like(table), torch.empty_like(bias)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.biased = inputs[-1]
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_output: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    hidden, table, bias = (part * grad_output.to(part.dtype) for part in ctx.saved_tensors)
    return hidden, table, bias if ctx.biased else None, None, None


_loss_and_gradients.register_autograd(_backward, setup_context=_setup_context)
