"""Activation functions: GELU (Hendrycks and Gimpel 2016), its tanh approximation, and ReLU."""

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
NORMAL_DENSITY_AT_ZERO = 1 / math.sqrt(2 * math.pi)


def gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """GELU: x times the standard normal distribution's cumulative probability at x."""
    # On ARM torch's gradient takes three times as long as vectorised operations: a tenth of a small training step.
    slow = not X86 and x.device.type == "cpu" and x.dtype == torch.float32
    if slow and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        activated: Tensor = _Gelu.apply(x)  # type: ignore[no-untyped-call]
        return activated
    return F.gelu(x)


class _Gelu(torch.autograd.Function):
    """torch's GELU, with its gradient in a few vectorised passes."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, grad_output: Tensor) -> Tensor:
        [x] = context.saved_tensors
        density = x.square().mul_(-0.5).exp_()
        cdf: Tensor = torch.special.ndtr(x)
        return cdf.addcmul_(x, density, value=NORMAL_DENSITY_AT_ZERO).mul_(grad_output)


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
