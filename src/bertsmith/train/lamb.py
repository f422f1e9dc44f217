"""LAMB: AdamW with a trust ratio per matrix, by which very large batches can take very large steps.

You et al. 2019, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", algorithm 2. As in the
authors' code, biases and norms are updated as by AdamW; unlike there, moments are bias-corrected as in the paper. A
parameter is a layer here: a projection that computes query, key and value has one trust ratio.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


def initial_state(parameter: nn.Parameter) -> dict[str, Tensor]:
    """The state of a parameter in AdamW and LAMB before the first step, laid out as PyTorch does."""
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def trust_ratio(
    weights: Sequence[Float[Tensor, "..."]], updates: Sequence[Float[Tensor, "..."]]
) -> Float[Tensor, " n"]:
    """The norm of each weight over the norm of its update; 1 if either is zero."""
    weight_norm, update_norm = (torch.stack(torch._foreach_norm(list(tensors))) for tensors in (weights, updates))
    return (weight_norm / update_norm).masked_fill_((weight_norm == 0) | (update_norm == 0), 1.0)


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
    """Update weights and states in place, unless the gradient is not finite: then every bit stays as it is.

    Learning rate, flag and step counts are read on the device. One buffer holds the gradients, and then the update. If
    the gradient is not finite, it is filled with -0.0, which changes no number that it is added to, not even -0.0.
    """
    steps, means, squares = ([state[part] for state in states] for part in ("step", "exp_avg", "exp_avg_sq"))
    first, second = betas
    good = 1 - found_inf.to(weights[0].dtype)
    stack = torch.cat([gradient.flatten() for gradient in gradients]).masked_fill_(found_inf, -0.0)
    counts = [weight.numel() for weight in weights]
    pieces = [piece.view(weight.shape) for piece, weight in zip(torch.split(stack, counts), weights, strict=True)]
    torch._foreach_add_(steps, [good] * len(steps))  # a single tensor would be read by the host
    torch._foreach_mul_(means, good * first + (1 - good))
    torch._foreach_add_(means, pieces, alpha=1 - first)
    torch._foreach_mul_(squares, good * second + (1 - good))
    torch._foreach_addcmul_(squares, pieces, pieces, value=1 - second)
    # In double precision, since 1 - 0.999 ** step cancels in the first steps.
    counts_done = torch.stack(steps).double()
    torch._foreach_copy_(pieces, squares)
    torch._foreach_div_(pieces, (1 - second**counts_done).unbind())
    stack.sqrt_().add_(epsilon).reciprocal_()
    torch._foreach_mul_(pieces, means)
    torch._foreach_div_(pieces, (1 - first**counts_done).unbind())
    torch._foreach_add_(pieces, list(weights), alpha=weight_decay)
    if use_trust_ratio:
        torch._foreach_mul_(pieces, trust_ratio(weights, pieces).unbind())
    stack.mul_(-learning_rate).masked_fill_(found_inf, -0.0)
    torch._foreach_add_(list(weights), pieces)


class Lamb(torch.optim.Optimizer):
    """LAMB with the groups, the state and the `found_inf` flag of PyTorch's AdamW, so that it is a drop-in replacement.

    Groups with `is_matrix` use the trust ratio. State is on the device from the start, and learning rates may be, so
    that a CUDA graph can capture `step`.
    """

    found_inf: Float[Tensor, ""]  # PyTorch's flag for a gradient that is not finite: 1, else 0

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = initial_state(parameter)

    def step(self) -> None:  # type: ignore[override]
        """Update parameters that have a gradient, unless it is not finite."""
        bad = self.found_inf > 0
        for group in self.param_groups:
            updated = [parameter for parameter in group["params"] if parameter.grad is not None]
            if updated:
                step(
                    [parameter.detach() for parameter in updated],
                    [parameter.grad for parameter in updated],
                    [self.state[parameter] for parameter in updated],
                    group["lr"],
                    bad,
                    betas=group["betas"],
                    epsilon=group["eps"],
                    weight_decay=group["weight_decay"],
                    use_trust_ratio=group["is_matrix"],
                )
