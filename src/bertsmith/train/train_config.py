"""Settings of a training run: how long it is, its precision, how often it is evaluated and saved."""

from dataclasses import dataclass
from typing import Literal

from bertsmith.train.clock import Extent, parse_duration

MAX_SEED = 10**18  # a seed has 64 bits, and runs with several seeds count on from it


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of the training loop. The length of a run is exactly one of steps, epochs and budget."""

    steps: int | None = None  # number of optimizer updates
    epochs: float | None = None  # passes over the data
    budget: str | None = None  # wall-clock time, as in "10m"
    gradient_accumulation: int = 1  # micro-batches per update, of all processes together
    # Gradients are added up in a fixed order, on a CPU by one thread of each process: the same bits whether 1, 2 or 4
    # processes share an update's micro-batches
    deterministic: bool = False
    # Each of several processes keeps the optimizer's state of its own part of the parameters and updates these (ZeRO,
    # stage 1); else all keep all of it and make the same updates
    shard_optimizer: bool = True
    seed: int = 0  # random seed of initial weights, data order, masking and dropout
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU if there is one
    # bfloat16: mixed precision, with float32 between layers; pure: bfloat16 between layers, too, at half the memory
    # traffic; auto: pure in compiled steps, else bfloat16 if the device is faster by it
    precision: Literal["auto", "float32", "bfloat16", "pure"] = "auto"
    compile: Literal["auto", "never", "always"] = "auto"  # torch.compile; auto: on a GPU in bfloat16
    evaluations: int = 10  # number of evaluations over the run, evenly spaced
    checkpoints: int = 10  # number of checkpoints over the run, evenly spaced
    keep_checkpoints: int = 2  # newest checkpoints that stay on disk
    patience: int | None = None  # early stopping: evaluations without a better score before the run ends
    # Weight averaging: share of the run, at its end, whose weights are averaged; evaluations in it and the exported
    # model use the average. 0: none; 0.2 suits texts that are seen many times
    average: float = 0.0
    average_decay: float = 0.999  # decay of the average per update (EMA); 1: a plain mean of all of them

    def __post_init__(self) -> None:
        given = [value for value in (self.steps, self.epochs, self.budget) if value is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of steps, epochs and budget, as in train.steps=1000")
        length = given[0] if self.budget is None else parse_duration(self.budget)
        if not length > 0:  # type: ignore[operator]
            raise ValueError(f"the length of a run is {given[0]}. Give more than 0")
        check_seed(self.seed)
        if self.patience is not None and self.patience < 1:
            fact = f"patience is {self.patience}, which ends a run before its first update"
            raise ValueError(f"{fact}. Give at least 1, or leave it out")
        if self.gradient_accumulation < 1 or self.keep_checkpoints < 1:
            raise ValueError("gradient_accumulation and keep_checkpoints are at least 1")
        if self.deterministic and self.gradient_accumulation & (self.gradient_accumulation - 1):
            fact = f"deterministic sums are in pairs, and gradient_accumulation is {self.gradient_accumulation}"
            raise ValueError(f"{fact}. Give a power of two")
        if not 0 <= self.average <= 1:
            raise ValueError(f"average is {self.average}. Give a share of the run, from 0 to 1, usually 0 or 0.2")
        if not 0 <= self.average_decay <= 1:
            raise ValueError(f"average_decay is {self.average_decay}. Give a share, from 0 to 1, usually 0.999")

    @property
    def extent(self) -> Extent:
        budget = None if self.budget is None else parse_duration(self.budget)
        return Extent(steps=self.steps, epochs=self.epochs, budget=budget)


def check_seed(seed: int) -> None:
    """Refuse a seed of more than 64 bits."""
    if abs(seed) >= MAX_SEED:
        raise ValueError(f"seed is {seed}. Give a whole number of at most 18 digits")
