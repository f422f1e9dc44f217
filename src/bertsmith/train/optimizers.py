"""AdamW as BERT uses it: weight decay on matrices alone, gradient clipping, non-finite gradients skipped.

LAMB may take its place (`lamb.py`), as in ALBERT, and hidden matrices may move by Muon instead (`muon.py`); what either
is worth depends on the run, so BERT's own way stays.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bertsmith.errors import RecipeError
from bertsmith.train.lamb import Lamb, initial_state
from bertsmith.train.muon import Muon


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Devlin et al. 2018, appendix A.2; for LAMB, You et al. 2019; for Muon, Jordan et al. 2024.

    LAMB's rate is the share of its own length that a matrix moves by, and so wants to be higher: 0.00176 in ALBERT,
    with batches of 4096 sequences.

    Muon's update is scaled by max(1, rows / columns) ** 0.5, as Jordan et al. do, and not by Liu et al.'s
    0.2 * sqrt(max(rows, columns)), which makes it as long as AdamW's and so wants another rate for every width: how far
    a step moves a layer's output is then the rate itself, whatever the width, and one rate serves a tiny network and a
    large one. `decay` serves all, times each one's own rate.
    """

    kind: Literal["adamw", "lamb"] = "adamw"
    learning_rate: float = 1e-4  # the highest learning rate
    betas: tuple[float, ...] = (0.9, 0.999)
    epsilon: float = 1e-6
    weight_decay: float = 0.01  # of matrices and tables; biases and norms have none
    max_grad_norm: float = 1.0  # the longest gradient; 0 for no limit
    hidden_optimizer: Literal["adamw", "muon"] = "adamw"  # "muon": hidden matrices move by it, all else by `kind`
    muon_learning_rate: float = 0.02  # the highest learning rate of what moves by Muon
    momentum: float = 0.95  # of Muon: how much of the last steps' direction is kept

    def __post_init__(self) -> None:
        if not 0 < self.muon_learning_rate < math.inf:
            remedy = "Give more than 0, as in optimizer.muon_learning_rate=0.02"
            raise ValueError(f"muon_learning_rate is {self.muon_learning_rate}. {remedy}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum}. Give a share, at least 0 and below 1")


class Optimizer:
    """AdamW or LAMB, and Muon beside it: their state is a flat table of named tensors, their bad steps change nothing.

    Only parameters that ask for a gradient take part. `rates` gives some of them, by name, a share of the learning
    rate; what it does not name has all of it. A `capturable` optimizer keeps its rates and its state on the device
    from the beginning, so that a CUDA graph can record `move` and follow a schedule: call `set_rate` outside the
    graph, before each replay. Restore before recording, since a graph remembers where tensors were.

    `hidden` names the matrices that move by Muon where the config asks for it, and says how many lie in each, one below
    the other: 3 in a query, key and value projection, 2 in a gated feed-forward's first, else 1.
    """

    def __init__(
        self,
        module: nn.Module,
        config: OptimizerConfig,
        learning_rate_scales: Mapping[str, float] | None = None,
        *,
        capturable: bool = False,
        hidden_matrices: Mapping[str, int] | None = None,
    ) -> None:
        self.config = config
        self.parameters = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        self.muon = (
            self._make_muon(module, hidden_matrices or {}, learning_rate_scales or {})
            if config.hidden_optimizer == "muon"
            else None
        )
        taken = self.muon.parameters if self.muon else {}
        self._base_parameters = {name: parameter for name, parameter in self.parameters.items() if name not in taken}
        groups = self._groups(learning_rate_scales or {})
        self._learning_rates: Tensor | None = None  # of each group, where they live on the device
        if capturable:
            device = next(iter(self.parameters.values())).device
            self._scales = torch.tensor([group["share"] for group in groups], dtype=torch.float32, device=device)
            self._learning_rates = config.learning_rate * self._scales
            for group, rate in zip(groups, self._learning_rates.unbind(), strict=True):
                group["lr"] = rate
        self.base = self._make_base(groups, capturable)  # AdamW, or LAMB, of which all but its step is the same

    def step_at(self, factor: float) -> tuple[Float[Tensor, ""], Bool[Tensor, ""]]:
        """Clip, and move the weights at this share of the rate. Returns what `move` does."""
        self.set_learning_rate(factor)
        return self.step()

    def set_learning_rate(self, factor: float) -> None:
        """Have the next move go at this share of the highest rate."""
        if self.muon is not None:
            self.muon.set_learning_rate(factor)
        if self._learning_rates is not None:
            torch.mul(self._scales, self.config.learning_rate * factor, out=self._learning_rates)
            return
        for group in self.base.param_groups:
            group["lr"] = self.config.learning_rate * factor * group["share"]

    def step(self) -> tuple[Float[Tensor, ""], Bool[Tensor, ""]]:
        """Clip, and move the weights unless the gradient is not a number. Returns its length, and whether it was bad.

        The decision is taken on the device: AdamW and LAMB read the flag themselves, so nothing waits for the host.
        """
        limit = self.config.max_grad_norm or float("inf")
        norm = nn.utils.clip_grad_norm_(list(self.parameters.values()), limit)
        bad = ~torch.isfinite(norm)
        self.base.found_inf = bad.float()  # type: ignore[attr-defined]
        self.base.step()
        if self.muon is not None:
            self.muon.step(bad)
        self.zero_grad()
        return norm, bad

    def zero_grad(self) -> None:
        """Drop every gradient."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        """Every tensor the next step depends on, by name."""
        return {f"{part}.{name}": tensor for name, part, tensor in self._named_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, momentum in self._momenta().items():
            momentum.copy_(state[f"momentum.{name}"])
        for name, parameter in self._base_parameters.items():
            own = {part: state[f"{part}.{name}"] for part in ("step", "exp_avg", "exp_avg_sq")}
            self.base.state[parameter] = {part: tensor.to(parameter.device, copy=True) for part, tensor in own.items()}

    def _groups(self, rates: Mapping[str, float]) -> list[dict[str, Any]]:
        """The parameters that decay alike and share a rate, matrices first."""
        together: dict[tuple[bool, float], list[nn.Parameter]] = {}
        for matrices in (True, False):
            for name, parameter in self._base_parameters.items():
                if (parameter.ndim > 1) == matrices:
                    together.setdefault((matrices, rates.get(name, 1.0)), []).append(parameter)
        return [
            {
                "params": parameters,
                "matrices": matrices,
                "weight_decay": self.config.weight_decay if matrices else 0.0,
                "share": share,
            }
            for (matrices, share), parameters in together.items()
        ]

    def _make_base(self, groups: list[dict[str, Any]], capturable: bool) -> torch.optim.Optimizer:
        """What moves all that Muon does not."""
        config = self.config
        first, second = config.betas
        if config.kind == "lamb":
            return Lamb(groups, lr=config.learning_rate, betas=(first, second), eps=config.epsilon)
        adamw = torch.optim.AdamW(
            groups,
            lr=config.learning_rate,
            betas=(first, second),
            eps=config.epsilon,
            fused=True,
            capturable=capturable,
        )
        if capturable:
            # PyTorch would warn at a step outside a graph; the first one of every shape is.
            adamw._warned_capturable_if_run_uncaptured = True
            # Made within a graph, it would be nought again at every replay.
            for parameter in self._base_parameters.values():
                adamw.state[parameter] = initial_state(parameter)
        return adamw

    def _make_muon(self, module: nn.Module, hidden: Mapping[str, int], rates: Mapping[str, float]) -> Muon:
        """Muon for the hidden matrices that learn."""
        parameters = dict(module.named_parameters())
        for name, parts in hidden.items():
            if name not in parameters:
                raise ValueError(f"hidden: there is no parameter '{name}'")
            shape = tuple(parameters[name].shape)
            if len(shape) != 2 or parts < 1 or shape[0] % parts:
                raise ValueError(f"hidden: '{name}' of shape {shape} is not {parts} matrices one below the other")
        learning = {name: self.parameters[name] for name in hidden if name in self.parameters}
        if not learning:
            raise RecipeError(
                "optimizer.hidden_optimizer", "no hidden matrix learns here that Muon could move", "Use 'adamw'"
            )
        config = self.config
        return Muon(
            learning,
            hidden,
            rates,
            learning_rate=config.muon_learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )

    def _momenta(self) -> dict[str, Tensor]:
        return {} if self.muon is None else self.muon.momenta

    def _named_state(self) -> Iterator[tuple[str, str, Tensor]]:
        for name, parameter in self._base_parameters.items():
            for part, tensor in self.base.state[parameter].items():
                yield name, part, tensor
        for name, momentum in self._momenta().items():
            yield name, "momentum", momentum
