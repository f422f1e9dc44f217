"""LAMB: AdamW whose matrices move by a share of their own length, so that very large batches can take very large steps.

You et al. 2019, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", algorithm 2. As in the
authors' own code, biases and norms move as AdamW moves them; unlike there, moments are corrected as the paper says. A
parameter is a layer here: the query, key and value of a projection that computes all three are measured together.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


def initial_state(parameter: nn.Parameter) -> dict[str, Tensor]:
    """What AdamW and LAMB know of a parameter before the first step, where and as PyTorch would keep it."""
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def trust_ratio(
    weights: Sequence[Float[Tensor, "..."]], updates: Sequence[Float[Tensor, "..."]]
) -> Float[Tensor, " n"]:
    """How many times as long as its update each weight is; one where either is nought."""
    lengths, moved = (torch.stack(torch._foreach_norm(list(tensors))) for tensors in (weights, updates))
    return (lengths / moved).masked_fill_((lengths == 0) | (moved == 0), 1.0)


@torch.no_grad()
def step(
    weights: Sequence[Float[Tensor, "..."]],
    gradients: Sequence[Float[Tensor, "..."]],
    states: Sequence[dict[str, Tensor]],
    learning_rate: float | Float[Tensor, ""],
    found_inf: Bool[Tensor, ""],
    *,
    betas: Sequence[float],
    epsilon: float,
    weight_decay: float,
    use_trust_ratio: bool,
) -> None:
    """Move weights and states in place, unless the gradient is bad: then everything stays as it is to the bit.

    Rate, flag and counts of steps are read where they are. One stack is made for the gradients, and then holds the
    movement. Where it is bad it is filled with -0.0, which changes no number it is added to, be it -0.0 itself.
    """
    steps, means, squares = ([state[part] for state in states] for part in ("step", "exp_avg", "exp_avg_sq"))
    first, second = betas
    good = 1 - found_inf.to(weights[0].dtype)
    stack = torch.cat([gradient.flatten() for gradient in gradients]).masked_fill_(found_inf, -0.0)
    counts = [weight.numel() for weight in weights]
    pieces = [piece.view(weight.shape) for piece, weight in zip(torch.split(stack, counts), weights, strict=True)]
    torch._foreach_add_(steps, [good] * len(steps))  # one tensor for all would be read by the host
    torch._foreach_mul_(means, good * first + (1 - good))
    torch._foreach_add_(means, pieces, alpha=1 - first)
    torch._foreach_mul_(squares, good * second + (1 - good))
    torch._foreach_addcmul_(squares, pieces, pieces, value=1 - second)
    # In double precision, since after few steps next to nothing is left of 1 - 0.999.
    taken = torch.stack(steps).double()
    torch._foreach_copy_(pieces, squares)
    torch._foreach_div_(pieces, (1 - second**taken).unbind())
    stack.sqrt_().add_(epsilon).reciprocal_()
    torch._foreach_mul_(pieces, means)
    torch._foreach_div_(pieces, (1 - first**taken).unbind())
    torch._foreach_add_(pieces, list(weights), alpha=weight_decay)
    if use_trust_ratio:
        torch._foreach_mul_(pieces, trust_ratio(weights, pieces).unbind())
    stack.mul_(-learning_rate).masked_fill_(found_inf, -0.0)
    torch._foreach_add_(list(weights), pieces)


class Lamb(torch.optim.Optimizer):
    """LAMB with the groups, the state and the flag for bad steps of PyTorch's AdamW, so that either can take its place.

    A group of `matrices` moves by a share of their length. State is on the device from the beginning, and rates may be,
    so that a CUDA graph can record `step`.
    """

    found_inf: Float[Tensor, ""]  # PyTorch's word for a gradient that is not a number: 1, else 0

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = initial_state(parameter)

    def step(self) -> None:  # type: ignore[override]
        """Move what has a gradient, unless it is bad."""
        bad = self.found_inf > 0
        for group in self.param_groups:
            moving = [parameter for parameter in group["params"] if parameter.grad is not None]
            if moving:
                step(
                    [parameter.detach() for parameter in moving],
                    [parameter.grad for parameter in moving],
                    [self.state[parameter] for parameter in moving],
                    group["lr"],
                    bad,
                    betas=group["betas"],
                    epsilon=group["eps"],
                    weight_decay=group["weight_decay"],
                    use_trust_ratio=group["matrices"],
                )
