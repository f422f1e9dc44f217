"""The forward pass of a training step: mixed precision, and compiled where that is faster."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from bertsmith.data.batch import Batch
from bertsmith.errors import RecipeError
from bertsmith.objectives.base import Objective
from bertsmith.train.train_config import TrainConfig


class ForwardPass:
    """The loss terms of a batch that is on the device, by autocast, by weights cast to bfloat16, or in float32."""

    def __init__(self, objective: Objective, config: TrainConfig, precision: torch.dtype) -> None:
        self.objective, self.precision, self.device = objective, precision, next(objective.parameters()).device
        self.compiles = _compiles(objective, config, precision, self.device)
        half = self.compiles and precision != torch.float32
        self.casts_weights = config.precision == "pure" or (config.precision == "auto" and half)
        function: Callable[[Batch], Any] = self._cast if self.casts_weights else objective
        self._function = torch.compile(function, fullgraph=True, dynamic=False) if self.compiles else function

    def __call__(self, batch: Batch) -> dict[str, Any]:
        with nullcontext() if self.casts_weights else self.autocast():
            terms: dict[str, Any] = self._function(batch)
        return terms

    def _cast(self, batch: Batch) -> Any:
        return cast_weights(self.objective, self.precision, batch)

    def autocast(self) -> AbstractContextManager[Any]:
        """torch's automatic mixed precision; nothing in float32."""
        if self.precision == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)


def cast_weights(objective: Objective, precision: torch.dtype, batch: Batch) -> Any:
    """The objective with every weight cast once for the whole step; the float32 weights themselves do not change."""
    weights = {**dict(objective.named_parameters()), **dict(objective.named_buffers())}
    cast = {name: one.to(precision) if one.is_floating_point() else one for name, one in weights.items()}
    # A module that two networks share is replaced in both at once: replacing it under each of its names, as
    # `tie_weights` does, would leave the cast weight in the place of the float32 one.
    return functional_call(objective, cast, (batch,), tie_weights=False)


def should_compile(config: TrainConfig, precision: torch.dtype, device: torch.device) -> bool:
    """Whether steps are compiled, for networks that can be."""
    # In float32 attention reads the bounds on the host, which cannot be compiled into one graph.
    fits = device.type == "cuda" and precision != torch.float32
    return config.compile == "always" or (config.compile == "auto" and fits)


def should_capture(objective: Objective, config: TrainConfig, precision: torch.dtype, device: torch.device) -> bool:
    """Whether pretraining steps are captured as CUDA graphs, so that a GPU does not wait for kernel launches.

    Steps with several micro-batches, and steps that wait for the host, are not.
    """
    whole = is_recurrent(objective) or should_compile(config, precision, device)
    return device.type == "cuda" and config.gradient_accumulation == 1 and whole


def is_recurrent(objective: Objective) -> bool:
    """Whether it has recurrent layers: on a GPU such steps are not compiled, but captured."""
    return any(isinstance(part, nn.RNNBase) for part in objective.modules())


def _compiles(objective: Objective, config: TrainConfig, precision: torch.dtype, device: torch.device) -> bool:
    if not is_recurrent(objective):
        return should_compile(config, precision, device)
    if config.compile == "always":
        fact = "recurrent layers use cuDNN's kernels, which the compiler cannot see into"
        raise RecipeError("train.compile", fact, "Use auto or never")
    return False
