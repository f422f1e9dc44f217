"""Muon: a hidden matrix moves by its momentum made orthogonal, so that every direction in it moves alike.

Jordan et al. 2024 (momentum after Nesterov, a quintic Newton-Schulz iteration); Liu et al. 2025, "Muon is Scalable for
LLM Training" (weights decay beside it). Matrices of one shape are stacked and made orthogonal together, in a few
batched products on which the host never waits.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

# One round takes every singular value s to 3.4445 s - 4.7750 s^3 + 2.0315 s^5. Jordan et al. chose the steepest start
# for which values still end near one: five rounds make a value of 1/500 of the matrix's length or more one between
# 0.68 and 1.21, and smaller ones up to 485 times as large. More rounds would not bring them nearer to one.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
EPSILON = 1e-7  # a matrix shorter than this is next to nothing, and is not blown up


def orthogonalise(matrices: Float[Tensor, "n rows columns"]) -> Float[Tensor, "n rows columns"]:
    """Each matrix with its singular vectors kept and its singular values brought near to one; nought stays nought.

    In half precision on a GPU, where that is far cheaper and the values need not be exact; as given elsewhere.
    """
    first, third, fifth = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    wide = matrices.mT if tall else matrices  # the product of a matrix with itself is the smaller one
    # No singular value is larger than the root of the sum of all their squares.
    wide = wide / torch.linalg.vector_norm(wide, dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    if wide.is_cuda:
        wide = wide.bfloat16()
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = torch.bmm(wide, wide.mT)
        change = torch.baddbmm(square, square, square, beta=third, alpha=fifth)
        wide = torch.baddbmm(wide, change, wide, beta=first)
    return wide.mT if tall else wide


def update_scale(rows: int, columns: int) -> float:
    """What the rate of a matrix is multiplied by: more for one that widens, so that its output moves as much."""
    return float(max(1.0, rows / columns) ** 0.5)


@torch.no_grad()
def step(
    weights: Sequence[Float[Tensor, "_ rows columns"]],
    gradients: Sequence[Float[Tensor, "_ rows columns"]],
    momenta: Sequence[Float[Tensor, "_ rows columns"]],
    learning_rate: Float[Tensor, ""],
    found_inf: Bool[Tensor, ""],
    *,
    momentum: float,
    weight_decay: float,
) -> None:
    """Move weights and momenta in place, unless the gradient is bad: then everything stays as it is to the bit.

    Rate and flag are read where they are. Nothing is left over: the one stack is made for the gradients, and then holds
    first the direction and last the movement.
    """
    counts = [len(weight) for weight in weights]
    _, rows, columns = weights[0].shape
    good = 1 - found_inf.to(weights[0].dtype)  # multiplied by it, a number stays or is nought
    stack = torch.cat(list(gradients)).masked_fill_(found_inf, 0.0)  # what is no number times nought is none
    pieces = list(torch.split(stack, counts))
    torch._foreach_mul_(list(momenta), good * momentum + (1 - good))
    torch._foreach_add_(list(momenta), pieces, alpha=1 - momentum)
    # After Nesterov: where the momentum will be once this gradient has been seen again.
    stack.mul_(1 - momentum)
    torch._foreach_add_(pieces, list(momenta), alpha=momentum)
    stack.copy_(orthogonalise(stack))
    stack.mul_(good * learning_rate * -update_scale(rows, columns))
    torch._foreach_mul_(list(weights), 1 - good * learning_rate * weight_decay)
    torch._foreach_add_(list(weights), pieces)


class Muon:
    """The hidden matrices of a network, their momenta, and the rates they move at.

    `parts` says how many matrices lie in each parameter, one below the other; each is made orthogonal on its own.
    `shares` are shares of the rate. What has the same shape and the same share moves together. Rates and momenta are on
    the device from the beginning, so that a CUDA graph can record `move`.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        matrix_counts: Mapping[str, int],
        learning_rate_scales: Mapping[str, float],
        *,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        self.parameters, self._matrix_counts = dict(parameters), dict(matrix_counts)
        self._learning_rate, self._momentum, self._weight_decay = learning_rate, momentum, weight_decay
        self.momenta = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        together: dict[tuple[float, torch.Size], list[str]] = {}
        for name, parameter in parameters.items():
            shape = self._matrices(name, parameter.detach()).shape[1:]
            together.setdefault((learning_rate_scales.get(name, 1.0), shape), []).append(name)
        self._stacks = list(together.values())
        device = next(iter(parameters.values())).device
        self._scales = torch.tensor([share for share, _ in together], dtype=torch.float32, device=device)
        self._learning_rates = learning_rate * self._scales

    def set_learning_rate(self, factor: float) -> None:
        """Have the next move go at this share of the highest rate."""
        torch.mul(self._scales, self._learning_rate * factor, out=self._learning_rates)

    def step(self, found_inf: Bool[Tensor, ""]) -> None:
        """Move what has a gradient, unless it is bad."""
        for names, rate in zip(self._stacks, self._learning_rates.unbind(), strict=True):
            gradients = {name: gradient for name in names if (gradient := self.parameters[name].grad) is not None}
            if gradients:
                step(
                    [self._matrices(name, self.parameters[name].detach()) for name in gradients],
                    [self._matrices(name, gradient) for name, gradient in gradients.items()],
                    [self._matrices(name, self.momenta[name]) for name in gradients],
                    rate,
                    found_inf,
                    momentum=self._momentum,
                    weight_decay=self._weight_decay,
                )

    def _matrices(self, name: str, tensor: Float[Tensor, "all columns"]) -> Float[Tensor, "parts rows columns"]:
        return torch.unflatten(tensor, 0, (self._matrix_counts[name], -1))
