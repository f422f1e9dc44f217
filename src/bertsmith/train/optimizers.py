"""AdamW as BERT uses it: weight decay on matrices only, gradient clipping, updates with non-finite gradients skipped.

LAMB can replace it (`lamb.py`), as in ALBERT, and Muon can update the hidden matrices (`muon.py`). Which is best
depends on the run, so BERT's optimizer is the default.
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
from bertsmith.train.muon import JORDAN, NEWTON_SCHULZ_STEPS, Muon
from bertsmith.train.optimizer_shards import OptimizerShards
from bertsmith.train.polar_express import polar_express
from bertsmith.train.processes import ALONE, Processes

MUON_COST = 5  # of a weight, where AdamW's is 1: 5.7 ms instead of 1.3 for smith-base (bench/results/muon-h200.json)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Devlin et al. 2018, appendix A.2; for LAMB, You et al. 2019; for Muon, Jordan et al. 2024.

    LAMB's learning rate is relative to the norm of a matrix, and therefore higher: 0.00176 in ALBERT, with batches of
    4096 sequences.

    Muon's update is scaled by max(1, rows / columns) ** 0.5, as by Jordan et al., and not by Liu et al.'s
    0.2 * sqrt(max(rows, columns)), which matches AdamW's and needs another learning rate for every width. So the change
    of a layer's output is the learning rate itself, and one value serves a tiny network and a large one.
    `weight_decay` holds for all, times the learning rate of each.
    """

    kind: Literal["adamw", "lamb"] = "adamw"  # the optimizer; LAMB is for very large batches
    learning_rate: float = 1e-4  # peak learning rate, which the schedule multiplies
    betas: tuple[float, ...] = (0.9, 0.999)  # decay of the first and the second moment
    epsilon: float = 1e-6  # added to the root of the second moment
    weight_decay: float = 0.01  # decoupled, of matrices and embeddings; biases and norms have none
    max_grad_norm: float = 1.0  # gradient clipping: the largest norm; 0: no limit
    hidden_optimizer: Literal["adamw", "muon"] = "adamw"  # muon: for the matrices in the layers, `kind` for the rest
    muon_learning_rate: float = 0.02  # the peak learning rate of Muon
    momentum: float = 0.95  # momentum of Muon
    # Muon's orthogonalisation: Newton-Schulz iterations with the coefficients of Jordan et al., or with those of Polar
    # Express (Amsel et al. 2025), which are nearer to orthogonal after as many
    newton_schulz: Literal["jordan", "polar_express"] = "jordan"
    normuon_beta: float = 0.0  # NorMuon: decay of the second moment of a matrix's rows, as in 0.95; 0: plain Muon

    def __post_init__(self) -> None:
        if not 0 <= self.learning_rate < math.inf:
            raise ValueError(f"learning_rate is {self.learning_rate}. Give at least 0, usually 1e-5 to 1e-3")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            remedy = "Give two shares, at least 0 and below 1, as in optimizer.betas=[0.9,0.999]"
            raise ValueError(f"betas is {list(self.betas)}. {remedy}")
        if not 0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon is {self.epsilon}. Give more than 0, usually 1e-6")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay is {self.weight_decay}. Give at least 0, usually 0.01")
        if not self.max_grad_norm >= 0:
            raise ValueError(f"max_grad_norm is {self.max_grad_norm}. Give more than 0, usually 1; or 0 for no limit")
        if not 0 < self.muon_learning_rate < math.inf:
            remedy = "Give more than 0, as in optimizer.muon_learning_rate=0.02"
            raise ValueError(f"muon_learning_rate is {self.muon_learning_rate}. {remedy}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum}. Give a share, at least 0 and below 1")
        if not 0 <= self.normuon_beta < 1:
            raise ValueError(f"normuon_beta is {self.normuon_beta}. Give a share, at least 0 and below 1")


class Optimizer:
    """AdamW or LAMB, with Muon if configured: state as a flat table of named tensors; non-finite gradients are skipped.

    Only parameters with `requires_grad` take part. `learning_rate_scales` multiply the learning rate of some, by
    name. A `capturable` optimizer keeps its learning rates and its state on the device from the start, so that a CUDA
    graph can capture `step` and follow a schedule: call `set_learning_rate` outside the graph, before each replay, and
    load a state before capturing, since a graph holds addresses of tensors.

    Of several `processes`, each updates its own parameters only, and sends the new weights to the others.

    `hidden_matrices` names the matrices for Muon, with the number stacked by rows in each: 3 in a query, key and value
    projection, 2 in the first of a gated feed-forward network, else 1.
    """

    def __init__(
        self,
        module: nn.Module,
        config: OptimizerConfig,
        learning_rate_scales: Mapping[str, float] | None = None,
        *,
        capturable: bool = False,
        hidden_matrices: Mapping[str, int] | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.config, self.capturable = config, capturable
        self.parameters = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        by_muon = self._hidden(module, hidden_matrices or {}) if config.hidden_optimizer == "muon" else {}
        costs = {name: one.numel() * (MUON_COST if name in by_muon else 1) for name, one in self.parameters.items()}
        self.shards = OptimizerShards(self.parameters, costs, processes)
        self.muon = self._make_muon(by_muon, hidden_matrices or {}, learning_rate_scales or {})
        self._base_parameters = {name: one for name, one in self.shards.own.items() if name not in by_muon}
        groups = self._groups(learning_rate_scales or {})
        self._learning_rates: Tensor | None = None  # of each group, if they are on the device
        if capturable:
            device = next(iter(self.parameters.values())).device
            self._scales = torch.tensor(
                [group["learning_rate_scale"] for group in groups], dtype=torch.float32, device=device
            )
            self._learning_rates = config.learning_rate * self._scales
            for group, learning_rate in zip(groups, self._learning_rates.unbind(), strict=True):
                group["lr"] = learning_rate
        self.base = self._make_base(groups, capturable)  # AdamW or LAMB

    def step_at(self, factor: float) -> tuple[Float[Tensor, ""], Bool[Tensor, ""]]:
        """Clip and update at this factor of the learning rate. Returns the same as `step`."""
        self.set_learning_rate(factor)
        return self.step()

    def set_learning_rate(self, factor: float) -> None:
        """Set the learning rate of the next step, as a factor of the peak."""
        if self.muon is not None:
            self.muon.set_learning_rate(factor)
        if self._learning_rates is not None:
            torch.mul(self._scales, self.config.learning_rate * factor, out=self._learning_rates)
            return
        for group in self.base.param_groups:
            group["lr"] = self.config.learning_rate * factor * group["learning_rate_scale"]

    def step(self) -> tuple[Float[Tensor, ""], Bool[Tensor, ""]]:
        """Clip, and update unless the gradient is not finite. Returns its norm, and whether it was not finite.

        The decision is taken on the device, by the `found_inf` flag, so that nothing waits for the host.
        """
        norm = self.shards.clip_gradients(self.config.max_grad_norm or float("inf"))
        bad = ~torch.isfinite(norm)
        self.base.found_inf = bad.float()  # type: ignore[attr-defined]
        self.base.step()
        if self.muon is not None:
            self.muon.step(bad)
        self.shards.send_weights()
        self.zero_grad()
        return norm, bad

    def zero_grad(self) -> None:
        """Set every gradient to None."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        """The state tensors of this process by name."""
        return {f"{part}.{name}": tensor for name, part, tensor in self._named_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take the state of this process from that of all."""
        for name, part, tensor in self.muon.state() if self.muon is not None else ():
            tensor.copy_(state[f"{part}.{name}"])
        for name, parameter in self._base_parameters.items():
            own = {part: state[f"{part}.{name}"] for part in ("step", "exp_avg", "exp_avg_sq")}
            self.base.state[parameter] = {part: tensor.to(parameter.device, copy=True) for part, tensor in own.items()}

    def _groups(self, scales: Mapping[str, float]) -> list[dict[str, Any]]:
        """Parameter groups by weight decay and learning rate, matrices first."""
        together: dict[tuple[bool, float], list[nn.Parameter]] = {}
        for is_matrix in (True, False):
            for name, parameter in self._base_parameters.items():
                if (parameter.ndim > 1) == is_matrix:
                    together.setdefault((is_matrix, scales.get(name, 1.0)), []).append(parameter)
        if not together:  # another process owns them all, and PyTorch wants a group
            together[True, 1.0] = []
        return [
            {
                "params": parameters,
                "is_matrix": is_matrix,
                "weight_decay": self.config.weight_decay if is_matrix else 0.0,
                "learning_rate_scale": scale,
            }
            for (is_matrix, scale), parameters in together.items()
        ]

    def _make_base(self, groups: list[dict[str, Any]], capturable: bool) -> torch.optim.Optimizer:
        """The optimizer of all parameters that Muon does not update."""
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
            # PyTorch would warn of a step outside a graph, as the first one of every shape is.
            adamw._warned_capturable_if_run_uncaptured = True
            # State created during capture would be zeroed again at every replay.
            for parameter in self._base_parameters.values():
                adamw.state[parameter] = initial_state(parameter)
        return adamw

    def _hidden(self, module: nn.Module, hidden: Mapping[str, int]) -> dict[str, nn.Parameter]:
        """The hidden matrices that are trained."""
        parameters = dict(module.named_parameters())
        for name, count in hidden.items():
            if name not in parameters:
                raise ValueError(f"hidden: there is no parameter '{name}'")
            shape = tuple(parameters[name].shape)
            if len(shape) < 2 or count < 1 or shape[0] % count:
                raise ValueError(f"hidden: '{name}' of shape {shape} is not {count} matrices stacked by rows")
        trained = {name: self.parameters[name] for name in hidden if name in self.parameters}
        if not trained:
            fact = "no hidden matrix is trained here that Muon could update"
            raise RecipeError("optimizer.hidden_optimizer", fact, "Use 'adamw'")
        return trained

    def _make_muon(
        self, hidden: Mapping[str, nn.Parameter], counts: Mapping[str, int], scales: Mapping[str, float]
    ) -> Muon | None:
        """Muon for those of the hidden matrices that this process owns, if there are any."""
        own = {name: parameter for name, parameter in hidden.items() if name in self.shards.own}
        config = self.config
        if not own:
            return None
        return Muon(
            own,
            counts,
            scales,
            learning_rate=config.muon_learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            iterations=JORDAN if config.newton_schulz == "jordan" else polar_express(NEWTON_SCHULZ_STEPS),
            beta=config.normuon_beta,
        )

    def _named_state(self) -> Iterator[tuple[str, str, Tensor]]:
        for name, parameter in self._base_parameters.items():
            for part, tensor in self.base.state[parameter].items():
                yield name, part, tensor
        if self.muon is not None:
            yield from self.muon.state()
