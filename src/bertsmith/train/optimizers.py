"""AdamW as BERT uses it: decay on matrices alone, clipping, and steps that are not numbers left out."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Devlin et al. 2018, appendix A.2."""

    rate: float = 1e-4  # the highest learning rate
    betas: tuple[float, ...] = (0.9, 0.999)
    epsilon: float = 1e-6
    decay: float = 0.01  # of matrices and tables; biases and norms have none
    clip: float = 1.0  # the longest gradient; 0 for no limit


class Optimizer:
    """AdamW whose state is a flat table of named tensors, and whose bad steps change nothing."""

    def __init__(self, module: nn.Module, config: OptimizerConfig) -> None:
        self.config = config
        self.named = dict(module.named_parameters())
        decayed = [parameter for parameter in self.named.values() if parameter.ndim > 1]
        others = [parameter for parameter in self.named.values() if parameter.ndim <= 1]
        first, second = config.betas
        self.adamw = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": config.decay}, {"params": others, "weight_decay": 0.0}],
            lr=config.rate,
            betas=(first, second),
            eps=config.epsilon,
            fused=True,
        )

    def step(self, factor: float) -> tuple[Float[Tensor, ""], Bool[Tensor, ""]]:
        """Clip, and move the weights unless the gradient is not a number. Returns its length, and whether it was bad.

        The decision is taken on the device: the fused kernel reads the flag itself, so nothing waits for the host.
        """
        parameters = list(self.named.values())
        limit = self.config.clip or float("inf")
        norm = nn.utils.clip_grad_norm_(parameters, limit)
        bad = ~torch.isfinite(norm)
        for group in self.adamw.param_groups:
            group["lr"] = self.config.rate * factor
        self.adamw.found_inf = bad.float()  # type: ignore[attr-defined]
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        return norm, bad

    def state(self) -> dict[str, Tensor]:
        """Every tensor the next step depends on, by name."""
        return {f"{part}.{name}": tensor for name, part, tensor in self._parts()}

    def restore(self, state: dict[str, Tensor]) -> None:
        for name, parameter in self.named.items():
            own = {part: state[f"{part}.{name}"] for part in ("step", "exp_avg", "exp_avg_sq")}
            self.adamw.state[parameter] = {part: tensor.to(parameter.device, copy=True) for part, tensor in own.items()}

    def _parts(self) -> Iterator[tuple[str, str, Tensor]]:
        for name, parameter in self.named.items():
            for part, tensor in self.adamw.state[parameter].items():
                yield name, part, tensor
