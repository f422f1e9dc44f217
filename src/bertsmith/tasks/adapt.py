"""Which weights fine-tuning changes: all of them, only the heads on a frozen trunk, or the heads and LoRA."""

import math
import re
from dataclasses import dataclass
from types import MethodType
from typing import Literal

from bertsmith.errors import RecipeError, suggest
from bertsmith.models.transformer import Transformer
from bertsmith.nn import lora
from bertsmith.tasks import peft
from bertsmith.tasks.base import Task

Kind = Literal["full", "frozen", "lora"]
DEFAULT_TARGETS = ("query", "value", "qkv")  # Hu et al. 2021, section 7.1; qkv if the three are one weight


@dataclass(frozen=True, kw_only=True)
class AdaptConfig:
    """Which weights are trained: all (full), only heads (frozen), or heads and low-rank updates (lora)."""

    kind: Kind = "full"  # full fine-tuning, a frozen trunk, or LoRA
    rank: int = 8  # rank of LoRA's updates
    alpha: float = 16.0  # LoRA's updates are multiplied by alpha / rank
    dropout: float = 0.0  # on the input of LoRA's updates
    # matrices with LoRA: query, key, value (or qkv, where they are one weight), output, up, down; none: query and value
    targets: tuple[str, ...] = ()
    layer_decay: float = 1.0  # factor of the learning rate from each layer to the one below it
    freeze: int = 0  # frozen layers, with `full`: 1 the embeddings, 2 also the first layer, and so on

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}. Give at least 1")
        if not 0 < self.alpha < math.inf:
            raise ValueError(f"alpha is {self.alpha}. Give more than 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}. Give a share, at least 0 and below 1")
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(f"targets are {list(self.targets)}. Name none twice")
        for target in self.targets:
            if target not in lora.TARGETS:
                raise ValueError(f"unknown target '{target}'. {suggest(target, lora.TARGETS)}")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay is {self.layer_decay}. Give more than 0 and at most 1")
        if self.layer_decay < 1 and self.kind == "frozen":
            raise ValueError("layer_decay is for layers that learn. Leave it out, or use kind 'full' or 'lora'")
        if self.freeze < 0 or (self.freeze and self.kind != "full"):
            raise ValueError(f"freeze is {self.freeze}. Give at least 0, and more only with kind 'full'")


def adapt_task(task: Task, config: AdaptConfig, seed: int) -> None:
    """Freeze weights, and add LoRA. Heads are always trained.

    A frozen trunk is no part of the autograd graph: none of its weights requires a gradient, so nothing is stored for
    it, and `backward` ends at the heads. It also runs without dropout in training, so that its features are the same in
    every epoch.
    """
    match config.kind:
        case "full":
            layers = task.trunk.config.distinct
            if config.freeze > layers + 1:
                fact = f"{config.freeze} is more than the embeddings and {layers} layers"
                raise RecipeError("adapt.freeze", fact, f"Give at most {layers + 1}")
            for name, parameter in task.named_parameters():
                if _depth(name, layers) < config.freeze:
                    parameter.requires_grad_(False)
        case "frozen":
            task.trunk.requires_grad_(False)
            # An attribute of this trunk alone, which `task.train()` calls.
            task.trunk.train = MethodType(_train_frozen, task.trunk)  # type: ignore[method-assign]
            task.trunk.eval()
        case "lora":
            lora.adapt(
                task.trunk,
                rank=config.rank,
                alpha=config.alpha,
                dropout=config.dropout,
                targets=_targets(task, config),
                seed=seed,
            )
    if not any(parameter.requires_grad for parameter in task.parameters()):
        fact = f"with kind '{config.kind}' nothing is left to learn, as this task has no head"
        raise RecipeError("adapt", fact, "Use 'lora', or freeze less")


def merge_and_unfreeze(task: Task) -> None:
    """The network as it was built, for saving: LoRA merged, every weight under its first name and trainable."""
    lora.merge(task.trunk)
    vars(task.trunk).pop("train", None)
    task.requires_grad_(True)
    task.trunk.train(task.training)


def learning_rate_scales(task: Task, config: AdaptConfig) -> dict[str, float]:
    """Layer-wise learning rate decay: the factor of each parameter's learning rate, by name.

    With N layers, embeddings have depth 0, layer n has n + 1 and heads (with the pooler) have N + 1; the factor is
    layer_decay ** (N + 1 - depth), so that it is 1 for heads. Clark et al. 2020 do so for BERT and ELECTRA; their code
    has one more step between the heads and the top layer.
    """
    layers = task.trunk.config.distinct
    return {name: config.layer_decay ** (layers + 1 - _depth(name, layers)) for name, _ in task.named_parameters()}


def _depth(name: str, layers: int) -> int:
    if not name.startswith("trunk."):
        return layers + 1
    if name.startswith("trunk.final_norm."):
        return layers
    layer = re.match(r"trunk\.layers\.(\d+)\.", name)
    return int(layer[1]) + 1 if layer else 0


def _train_frozen(trunk: Transformer, mode: bool = True) -> Transformer:
    """`train` of a frozen trunk: it stays in eval mode."""
    return Transformer.train(trunk, False)


def _targets(task: Task, config: AdaptConfig) -> tuple[str, ...]:
    """The configured targets or the default ones; refused before training if PEFT has no name for them."""
    peft.transformers_class(task)
    known = peft.supported_targets(task)
    for target in config.targets:
        if target not in known:
            fact = f"'{target}' is not a separate weight in this network's folder"
            raise RecipeError("adapt.targets", fact, f"Known: {', '.join(known)}")
    return config.targets or tuple(target for target in DEFAULT_TARGETS if target in known)
