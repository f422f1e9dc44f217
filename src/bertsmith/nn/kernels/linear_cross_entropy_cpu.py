"""Cross-entropy over a vocabulary on a CPU, with the slopes of scores taken in the place of the scores.

Scores of thousands of words fit into no cache. Torch goes over them a dozen times, and keeps as many again for the way
back, which takes longer than the products do. Here a few places are finished at a time, while a cache holds them: since
the loss is a sum, its slopes are known as soon as the scores are. `entropy.py` does the same on a GPU.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.nn.activations import X86

Callback = Callable[[slice, Tensor], None]  # is told the chances of all words at some places, before they are gone

CHUNK = 2**24  # scores: 64 MiB in full precision
IN_CACHE = 2**20  # scores that are finished together: 4 MiB, shared by the cores
# Numbers between rows: if these were a power of two apart, a column would fall into one corner of a cache. Not so on
# ARM, where torch makes a copy of what it writes into such rows.
ROW_PADDING = 16 if X86 else 0


def available(hidden: Float[Tensor, "N D"], table: Float[Tensor, "V E"]) -> bool:
    """Whether slopes can be taken so: by whoever learns on a CPU, but for what is compiled."""
    same = hidden.dtype == table.dtype or torch.is_autocast_enabled("cpu")
    return same and hidden.device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling()


def linear_cross_entropy(
    hidden: Float[Tensor, "N D"],
    table: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"] | None,
    targets: Int[Tensor, "N"],
    on_probabilities: Callback | None = None,
) -> Float[Tensor, ""]:
    """The sum of what the true words cost, those of -100 left out: as `F.cross_entropy` of `F.linear` has it."""
    if torch.is_autocast_enabled("cpu"):  # which knows nothing of what is inside
        half = torch.get_autocast_dtype("cpu")
        hidden, table = hidden.to(half), table.to(half)
    total: Tensor = _LinearCrossEntropy.apply(hidden, table, bias, targets, on_probabilities)  # type: ignore[no-untyped-call]
    return total


class _LinearCrossEntropy(torch.autograd.Function):
    """The sum, with all its slopes taken before anybody asks for them."""

    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        on_probabilities: Callback | None,
    ) -> Tensor:
        (places, _), words = hidden.shape, len(table)
        rows, few = max(1, CHUNK // words), max(1, IN_CACHE // words)
        full = torch.promote_types(hidden.dtype, torch.float32)
        costs, by_hidden = hidden.new_empty(places, dtype=full), torch.empty_like(hidden)
        by_table = None if places else torch.zeros_like(table)
        by_bias = None if bias is None else torch.zeros_like(bias, dtype=full)
        room = hidden.new_empty((min(rows, places), words + ROW_PADDING))[:, :words]
        for first in range(0, places, rows):
            vectors = hidden[first : first + rows]
            scores = torch.mm(vectors, table.t(), out=room[: len(vectors)])
            for begin in range(0, len(vectors), few):
                here = slice(first + begin, first + min(begin + few, len(vectors)))
                kept = scores[begin : begin + few]
                chances, costs[here] = _probabilities(kept.to(full), bias, targets[here])
                if on_probabilities is not None:
                    on_probabilities(here, chances)
                slopes = _logit_gradients(chances, targets[here])
                if by_bias is not None:
                    by_bias += slopes.sum(0)
                if full != hidden.dtype:
                    kept.copy_(slopes)
            torch.mm(scores, table, out=by_hidden[first : first + rows])
            part = (scores.t() @ vectors).to(full)
            by_table = part if by_table is None else by_table.add_(part)
        context.save_for_backward(by_hidden, by_table, by_bias)
        context.dtypes = hidden.dtype, table.dtype, None if bias is None else bias.dtype
        return costs.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        parts = zip(context.saved_tensors, context.dtypes, strict=True)
        return *(None if part is None else (part * grad_output).to(dtype) for part, dtype in parts), None, None


def _probabilities(
    scores: Float[Tensor, "N V"], bias: Float[Tensor, "V"] | None, targets: Int[Tensor, "N"]
) -> tuple[Float[Tensor, "N V"], Float[Tensor, "N"]]:
    """The chance of every word, in the place of its score, and what the true words cost."""
    if bias is not None:
        scores += bias
    most = scores.amax(1, keepdim=True)
    true = scores.gather(1, targets.clamp(min=0)[:, None])
    summed = scores.sub_(most).exp_().sum(1, keepdim=True)
    return scores.div_(summed), torch.where(targets < 0, 0.0, (summed.log_() + most - true)[:, 0])


def _logit_gradients(probabilities: Float[Tensor, "N V"], targets: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
    """How the cost of each place rises with each score, in the place of the chance: by it, and by one less if true."""
    asked = targets >= 0
    probabilities.scatter_add_(1, targets.clamp(min=0)[:, None], torch.full_like(probabilities[:, :1], -1))
    return probabilities if asked.all() else probabilities.masked_fill_(~asked[:, None], 0.0)
