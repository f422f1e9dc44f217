"""What a run is: one typed section per component. A recipe is a TOML file of about thirty lines."""

from dataclasses import dataclass, field
from pathlib import Path

from bertsmith.config import Part, chosen
from bertsmith.models.family import FAMILY
from bertsmith.objectives import OBJECTIVES
from bertsmith.train.optimizers import OptimizerConfig
from bertsmith.train.schedules import ScheduleConfig
from bertsmith.train.trainer import TrainConfig


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The prepared text, and how it is cut into batches."""

    folder: Path  # what `bertsmith prepare` wrote
    length: int = 128  # tokens in a sequence at most, special ones included
    tokens: int = 65_536  # in a micro-batch, exactly
    valid: int = 1_000_000  # tokens of validation text at most
    workers: int = 2  # threads that make batches ahead of time

    def __post_init__(self) -> None:
        if self.length < 16:
            raise ValueError(f"a length of {self.length} leaves no room for a pair of texts. Use 16 or more")
        if self.tokens < 8 * self.length:
            raise ValueError(
                f"tokens={self.tokens} holds too few sequences of {self.length}. Use {8 * self.length} or more"
            )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A run, whole: the same recipe, data and machine give the same weights."""

    out: Path  # the run's folder: log, checkpoints, model, report
    model: Part = chosen(FAMILY)
    objective: Part = chosen(OBJECTIVES)
    data: DataConfig
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig

    def __post_init__(self) -> None:
        if self.data.length > self.model.settings.length:
            fact = (
                f"sequences of {self.data.length} tokens do not fit a model of {self.model.settings.length} positions"
            )
            raise ValueError(f"{fact}. Lower data.length, or raise model.length")
