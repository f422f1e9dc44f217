"""What a run is: one typed section per component. A recipe is a TOML file of about thirty lines."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bertsmith import config, files
from bertsmith.config import Component, component_field
from bertsmith.errors import RunError
from bertsmith.models.family import FAMILY
from bertsmith.objectives import OBJECTIVES
from bertsmith.tasks import TASKS
from bertsmith.tasks.adapt import AdaptConfig
from bertsmith.text.tokenizer import TokenizerConfig
from bertsmith.train import log
from bertsmith.train.optimizers import OptimizerConfig
from bertsmith.train.schedules import ScheduleConfig
from bertsmith.train.trainer import TrainConfig

EXTENTS = [["train.steps", "train.epochs", "train.budget"]]  # how long a run is, of which the last that is said counts


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The prepared text, and how it is cut into batches."""

    folder: Path  # what `bertsmith prepare` wrote
    max_length: int = 128  # tokens in a sequence at most, special ones included
    batch_tokens: int = 65_536  # in a micro-batch, exactly
    cross_documents: bool = False  # a sequence may go on with the next document, behind a separator
    validation_tokens: int = 1_000_000  # tokens of validation text at most
    workers: int = 2  # threads that make batches ahead of time

    def __post_init__(self) -> None:
        if self.max_length < 16:
            raise ValueError(f"a length of {self.max_length} leaves no room for a pair of texts. Use 16 or more")
        if self.batch_tokens < 8 * self.max_length:
            fact = f"batch_tokens={self.batch_tokens} holds too few sequences of {self.max_length}"
            raise ValueError(f"{fact}. Use {8 * self.max_length} or more")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A run, whole: the same recipe, data and machine give the same weights.

    >>> recipe = config.read(Path("bert.toml"), bertsmith.Recipe)
    >>> recipe.train.steps, recipe.objective.kind
    (2, 'masked_lm')
    """

    out: Path  # the run's folder: log, checkpoints, model, report
    start: Path | None = None  # a model folder to go on with; None: from chance
    model: Component = component_field(FAMILY)
    objective: Component = component_field(OBJECTIVES)
    data: DataConfig
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig

    def __post_init__(self) -> None:
        if self.data.max_length > self.model.settings.max_length:
            positions = self.model.settings.max_length
            fact = f"sequences of {self.data.max_length} tokens do not fit a model of {positions} positions"
            raise ValueError(f"{fact}. Lower data.max_length, or raise model.max_length")
        pairs = getattr(self.objective.settings, "pairs", "none")
        if self.data.cross_documents and pairs != "none":
            fact = f"a sequence that goes on with the next document holds no pair, and here pairs = '{pairs}'"
            raise ValueError(f"{fact}. Set data.cross_documents=false, or objective.pairs=none")


@dataclass(frozen=True, kw_only=True)
class LabelledConfig:
    """The labelled files, which of their columns hold what, and how examples become batches."""

    train: Path
    dev: Path | None = None  # without one, a tenth of the training examples is kept back
    texts: tuple[str, ...] | None = None  # columns; guessed where not given
    label: str | None = None
    separator: str | None = None  # between several labels in one cell
    labels: tuple[str, ...] | None = None  # instead of a label: columns of 0 and 1, one for each of several labels
    on_bad_row: Literal["skip", "fail"] = "skip"  # what to do with rows that cannot be read
    max_length: int = 128  # tokens in a sequence at most, special ones included
    batch_size: int = 32  # examples in a micro-batch
    workers: int = 2  # threads that make batches ahead of time

    def __post_init__(self) -> None:
        if self.max_length < 8 or self.batch_size < 1:
            raise ValueError("length is at least 8, and items at least 1")


@dataclass(frozen=True, kw_only=True)
class FineTune:
    """A run on labelled examples, whole. Devlin et al. 2018, appendix A.3.

    It begins with a model folder; or, as a translator does, with a network at its first weights, and with pieces that
    are learnt from its own examples.

    >>> recipe = config.read(Path("reviews.toml"), bertsmith.FineTune)
    >>> recipe.task.kind, recipe.data.batch_size
    ('classify', 32)
    """

    out: Path
    model: Path | None = None  # a model folder to begin with
    network: Component | None = field(default=None, metadata={"table": FAMILY})  # or a member, which begins from chance
    tokenizer: Path | TokenizerConfig | None = None  # of a member: a folder, or what is learnt from both sides
    task: Component = component_field(TASKS)
    data: LabelledConfig
    adapt: AdaptConfig = field(default_factory=AdaptConfig)
    dropout: float | None = None  # of the network while it learns; None: as its folder says
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    train: TrainConfig
    keep: Literal["best", "last"] = "best"  # whose weights: of the best evaluation, or of the last step
    seeds: int = 1  # runs that differ in nothing but chance

    def __post_init__(self) -> None:
        if (self.model is None) == (self.network is None):
            raise ValueError("give either model, a folder to begin with, or network, a member that begins from chance")
        if self.network is not None and not self.network.settings.decoder_layers:
            fact = f"'{self.network.kind}' only reads, and only networks that write learn a task from chance"
            raise ValueError(f"{fact}. Use transformer-small, or pretrain it first")
        if self.model is not None and self.tokenizer is not None:
            raise ValueError("a model folder has a tokenizer of its own. Leave tokenizer out")


def settle(recipe: Any, may_change: frozenset[str]) -> None:
    """Write the resolved recipe beside the run; a run that has taken steps with another one is not gone on with."""
    path = recipe.out / "recipe.toml"
    if path.exists() and begun(recipe.out):
        change = config.first_difference(config.read(path, type(recipe)), recipe, ignore=may_change)
        if change:
            raise RunError(
                recipe.out, f"was begun with another recipe: {change}", "Choose another folder, or remove this one"
            )
    with files.explain_os_errors(recipe.out):
        recipe.out.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, config.dump(recipe).encode())


def begun(out: Path) -> bool:
    """Whether a run has taken a step: one that failed before may be run again with another recipe."""
    places = [out, *out.glob("seed-*")]  # fine-tuning has a folder for each seed
    saved = any(any(place.glob("checkpoints/step-*")) or (place / "result.json").exists() for place in places)
    return saved or any(log.has_steps(place / log.NAME) for place in places)
