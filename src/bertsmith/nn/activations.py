"""Activations: what bends numbers between two products. GELU is Hendrycks and Gimpel's of 2016, in both its shapes."""

import math
import platform
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Activation = Literal["gelu", "gelu_tanh", "relu"]

X86 = platform.machine() in ("x86_64", "AMD64")
NORMAL_DENSITY_AT_ZERO = 1 / math.sqrt(2 * math.pi)  # of the bell at nought


def gelu(numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Each number times the share of a normal distribution that lies below it."""
    # On ARM torch takes three times as long for the gradient as the same does in vectors: a tenth of a small step.
    slow = not X86 and numbers.device.type == "cpu" and numbers.dtype == torch.float32
    if slow and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        bent: Tensor = _Gelu.apply(numbers)  # type: ignore[no-untyped-call]
        return bent
    return F.gelu(numbers)


class _Gelu(torch.autograd.Function):
    """GELU as torch has it, and its gradient in a few passes over vectors."""

    @staticmethod
    def forward(context: Any, numbers: Tensor) -> Tensor:
        context.save_for_backward(numbers)
        return F.gelu(numbers)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, grad_output: Tensor) -> Tensor:
        [numbers] = context.saved_tensors
        bell = numbers.square().mul_(-0.5).exp_()
        share: Tensor = torch.special.ndtr(numbers)
        return share.addcmul_(numbers, bell, value=NORMAL_DENSITY_AT_ZERO).mul_(grad_output)


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
