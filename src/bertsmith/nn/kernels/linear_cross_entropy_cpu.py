"""Linear layer and cross-entropy over a vocabulary on a CPU, where gradients overwrite the logits in the forward pass.

The logits of thousands of words fit into no cache. Torch reads them a dozen times and keeps as many again for the
backward pass, which takes longer than the products. Here a few positions are finished at a time while they are in the
cache: since the loss is a sum, gradients are known with the logits. `linear_cross_entropy.py` does the same on a GPU.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.nn.activations import X86

Callback = Callable[[slice, Tensor], None]  # gets the probabilities at some positions, before they are overwritten

CHUNK = 2**24  # logits: 64 MiB in float32
IN_CACHE = 2**20  # logits that are finished together: 4 MiB, shared by the cores
# Unused numbers between rows: rows a power of two apart would map to the same cache lines. Not on ARM, where torch
# copies what it writes into such rows.
ROW_PADDING = 16 if X86 else 0


def available(hidden: Float[Tensor, "N D"], table: Float[Tensor, "V E"]) -> bool:
    """Whether this loss can be used: in training on a CPU, without torch.compile."""
    same = hidden.dtype == table.dtype or torch.is_autocast_enabled("cpu")
    return same and hidden.device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling()


def linear_cross_entropy(
    hidden: Float[Tensor, "N D"],
    table: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"] | None,
    targets: Int[Tensor, "N"],
    on_probabilities: Callback | None = None,
) -> Float[Tensor, ""]:
    """The summed loss, as `F.cross_entropy` of `F.linear`; targets of -100 are ignored."""
    if torch.is_autocast_enabled("cpu"):  # which does not reach into an autograd function
        half = torch.get_autocast_dtype("cpu")
        hidden, table = hidden.to(half), table.to(half)
    total: Tensor = _LinearCrossEntropy.apply(hidden, table, bias, targets, on_probabilities)  # type: ignore[no-untyped-call]
    return total


class _LinearCrossEntropy(torch.autograd.Function):
    """The summed loss; all gradients are computed in the forward pass."""

    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        on_probabilities: Callback | None,
    ) -> Tensor:
        (positions, _), vocabulary = hidden.shape, len(table)
        rows, rows_in_cache = max(1, CHUNK // vocabulary), max(1, IN_CACHE // vocabulary)
        full = torch.promote_types(hidden.dtype, torch.float32)
        losses, grad_hidden = hidden.new_empty(positions, dtype=full), torch.empty_like(hidden)
        grad_table = None if positions else torch.zeros_like(table)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=full)
        buffer = hidden.new_empty((min(rows, positions), vocabulary + ROW_PADDING))[:, :vocabulary]
        for first in range(0, positions, rows):
            vectors = hidden[first : first + rows]
            logits = torch.mm(vectors, table.t(), out=buffer[: len(vectors)])
            for begin in range(0, len(vectors), rows_in_cache):
                chunk = slice(first + begin, first + min(begin + rows_in_cache, len(vectors)))
                some = logits[begin : begin + rows_in_cache]
                probabilities, losses[chunk] = _probabilities(some.to(full), bias, targets[chunk])
                if on_probabilities is not None:
                    on_probabilities(chunk, probabilities)
                grad = _logit_gradients(probabilities, targets[chunk])
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
                if full != hidden.dtype:
                    some.copy_(grad)
            torch.mm(logits, table, out=grad_hidden[first : first + rows])
            part = (logits.t() @ vectors).to(full)
            grad_table = part if grad_table is None else grad_table.add_(part)
        context.save_for_backward(grad_hidden, grad_table, grad_bias)
        context.dtypes = hidden.dtype, table.dtype, None if bias is None else bias.dtype
        return losses.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        parts = zip(context.saved_tensors, context.dtypes, strict=True)
        return *(None if part is None else (part * grad_output).to(dtype) for part, dtype in parts), None, None


def _probabilities(
    logits: Float[Tensor, "N V"], bias: Float[Tensor, "V"] | None, targets: Int[Tensor, "N"]
) -> tuple[Float[Tensor, "N V"], Float[Tensor, "N"]]:
    """The probabilities of all words, which overwrite the logits, and the loss of each position."""
    if bias is not None:
        logits += bias
    row_max = logits.amax(1, keepdim=True)
    true = logits.gather(1, targets.clamp(min=0)[:, None])
    row_sum = logits.sub_(row_max).exp_().sum(1, keepdim=True)
    return logits.div_(row_sum), torch.where(targets < 0, 0.0, (row_sum.log_() + row_max - true)[:, 0])


def _logit_gradients(probabilities: Float[Tensor, "N V"], targets: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
    """The gradient of each logit, its probability, less 1 for the target; it overwrites the probability."""
    valid = targets >= 0
    probabilities.scatter_add_(1, targets.clamp(min=0)[:, None], torch.full_like(probabilities[:, :1], -1))
    return probabilities if valid.all() else probabilities.masked_fill_(~valid[:, None], 0.0)
