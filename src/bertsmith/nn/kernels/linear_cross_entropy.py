"""Cross-entropy over a vocabulary, some places at a time: never are all scores of all words there at once.

A step that guesses every token of a large batch would keep gigabytes of scores for the way back. Since the loss is a
sum, its slopes are known as soon as some scores are: they are taken at once, in the place of the scores.

Imported only where it is wanted, since it needs Triton.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 2**28  # scores: half a gibibyte in half precision; fewer would add up the slopes of the table more often
COLUMNS, WARPS = 4096, 8  # of scores in a program at a time


def linear_cross_entropy(
    hidden: Float[Tensor, "N D"],
    table: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"],
    targets: Int[Tensor, "N"],
) -> Float[Tensor, ""]:
    """The sum of what the true words cost, those of -100 left out: as `F.cross_entropy` of `F.linear` has it."""
    total: Tensor
    total, *_ = _loss_and_gradients(hidden.contiguous(), table, bias, targets, bias.requires_grad)
    return total


@triton.jit
@no_type_check
def _logit_gradients(scores, targets, costs, words: tl.constexpr, columns: tl.constexpr):
    """Of one place: what the true word costs, and in the place of each score its slope."""
    row = tl.program_id(0).to(tl.int64)
    place = scores + row * words
    target = tl.load(targets + row)
    asked = target >= 0
    # Read before any warp can have written there: the sums below make all of them wait for each other.
    true = tl.load(place + tl.where(asked, target, 0)).to(tl.float32) * 1.4426950408889634
    most, summed = -1e30, 0.0
    for first in tl.range(0, words, columns):
        column = first + tl.arange(0, columns)
        numbers = tl.load(place + column, mask=column < words, other=-float("inf")).to(tl.float32)
        numbers = numbers * 1.4426950408889634  # powers of two are what a GPU computes
        higher = tl.maximum(most, tl.max(numbers, 0))
        summed = summed * tl.exp2(most - higher) + tl.sum(tl.exp2(numbers - higher), 0)
        most = higher
    whole = most + tl.log2(summed)
    tl.store(costs + row, tl.where(asked, (whole - true) * 0.6931471805599453, 0.0))
    for first in tl.range(0, words, columns):
        column = first + tl.arange(0, columns)
        numbers = tl.load(place + column, mask=column < words, other=-float("inf")).to(tl.float32)
        slopes = tl.exp2(numbers * 1.4426950408889634 - whole) - tl.where(column == target, 1.0, 0.0)
        slopes = tl.where(asked, slopes, 0.0)
        tl.store(place + column, slopes.to(scores.dtype.element_ty), mask=column < words)


# Not a `triton_op`: a compiler that could look inside would begin with all products, and so have all scores at once.
@torch.library.custom_op("bertsmith::entropy", mutates_args=())
def _loss_and_gradients(
    hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, biased: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum, and its slopes by the vectors, by the table and by the bias."""
    (places, _), words = hidden.shape, len(table)
    rows = -(-places // max(1, -(-places * words // CHUNK)))
    costs = hidden.new_empty(places, dtype=torch.float32)
    by_hidden, by_bias = torch.empty_like(hidden), torch.zeros_like(bias, dtype=torch.float32)
    by_table = torch.zeros_like(table, dtype=torch.float32)
    room = hidden.new_empty((rows, words))
    for first in range(0, places, rows):
        some = slice(first, first + rows)
        scores = torch.addmm(bias, hidden[some], table.t(), out=room[: len(hidden[some])])
        _logit_gradients[(len(scores),)](scores, targets[some], costs[some], words, COLUMNS, num_warps=WARPS)
        torch.mm(scores, table, out=by_hidden[some])
        by_table += scores.t() @ hidden[some]
        if biased:
            by_bias += scores.sum(0, dtype=torch.float32)
    return costs.sum(), by_hidden, by_table.to(table.dtype), by_bias.to(bias.dtype)


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
