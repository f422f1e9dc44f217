"""Activations: the curves by which a network bends what it has computed."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Activation = Literal["gelu", "gelu_tanh"]


def gelu(numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """x P(X <= x), X normal. Hendrycks and Gimpel 2016. Compiled for a GPU, by the formula that it computes fastest."""
    if numbers.is_cuda and torch.compiler.is_compiling():
        bent: Tensor = Gelu.apply(numbers)  # type: ignore[no-untyped-call]
        return bent
    return F.gelu(numbers)


class Gelu(torch.autograd.Function):
    """GELU by one exponential and one division, forwards and backwards.

    A GPU takes longer to compute the error function as libraries do, by cases, than to read and write the numbers.
    """

    @staticmethod
    def forward(numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        x = numbers.float()
        below, _ = _normal(x)
        return (x * below).to(numbers.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, above: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        [numbers] = ctx.saved_tensors
        x: Tensor = numbers.float()
        below, density = _normal(x)
        return (above.float() * (below + x * density)).to(above.dtype)


def _normal(x: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """How probable a number below x is, within 1e-7, and the density there.

    Abramowitz and Stegun 1964, formula 7.1.26; both need the same exponential.
    """
    bell = torch.exp(-0.5 * x * x)
    t = 1 / (1 + 0.231641888 * x.abs())  # 0.3275911 of their formula, over the root of two
    series = 1.061405429
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + factor  # type: ignore[assignment]
    tail = 0.5 * t * series * bell
    return torch.where(x < 0, tail, 1 - tail), 0.3989422804 * bell


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}
