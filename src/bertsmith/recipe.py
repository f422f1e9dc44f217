"""The recipe of a run: one typed section per component. A recipe is a TOML file of about thirty lines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bertsmith import config, files
from bertsmith.config import Component, component_field
from bertsmith.data.images.augmentation import AugmentationConfig
from bertsmith.data.shards.cache import local_copy
from bertsmith.errors import RunError
from bertsmith.models.family import FAMILY
from bertsmith.models.vision_family import IMAGE_FAMILY, VISION_FAMILY
from bertsmith.objectives import IMAGE_OBJECTIVES, OBJECTIVES
from bertsmith.tasks import TASKS
from bertsmith.tasks.adapt import AdaptConfig
from bertsmith.tasks.image_classification import ImageClassification
from bertsmith.text.tokenizer import TokenizerConfig
from bertsmith.train import log
from bertsmith.train.optimizers import OptimizerConfig
from bertsmith.train.schedules import ScheduleConfig
from bertsmith.train.train_config import TrainConfig

RUN_KINDS = {  # by a section of the recipe, the first that is there
    "objective": "pretraining",
    "augmentation": "training on images",
    "task": "fine-tuning",
    "sampling": "word2vec",
}
MAX_WORKERS = 1_024  # threads that make batches
EXTENTS = [["train.steps", "train.epochs", "train.budget"]]  # the length of a run; the last one given counts


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The prepared text, and the shape of batches."""

    folder: Path  # the folder that `bertsmith prepare` wrote, or its address, such as s3://bucket/shards
    max_length: int = 128  # maximum sequence length in tokens, special tokens included
    batch_tokens: int = 65_536  # tokens in a micro-batch, exactly
    cross_documents: bool = False  # a sequence may continue with the next document, after a separator (RoBERTa)
    validation_tokens: int = 1_000_000  # validation tokens that are evaluated, at most
    workers: int = 2  # threads that make batches ahead of time

    def __post_init__(self) -> None:
        if self.max_length < 16:
            raise ValueError(f"a length of {self.max_length} leaves no room for a pair of texts. Use 16 or more")
        if self.batch_tokens < 8 * self.max_length:
            fact = f"batch_tokens={self.batch_tokens} holds too few sequences of {self.max_length}"
            raise ValueError(f"{fact}. Use {8 * self.max_length} or more")
        _check_workers(self.workers)

    @property
    def local(self) -> Path:
        """The prepared text on this machine: at an address, its copy in the cache."""
        return local_copy(self.folder)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A pretraining run: the same recipe, data and machine give the same weights.

    >>> recipe = config.read(Path("bert.toml"), bertsmith.Recipe)
    >>> recipe.train.steps, recipe.objective.kind
    (2, 'masked_lm')
    """

    out: Path  # the run's folder: log, checkpoints, model, report
    start: Path | None = None  # a model folder to continue from; None: random initialisation
    embeddings: Literal["random", "cooccurrence"] = "random"  # initial token embeddings; or from co-occurrence counts
    model: Component = component_field(FAMILY)
    objective: Component = component_field(OBJECTIVES)
    data: DataConfig
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig
    keep: Literal["best", "last"] = "last"  # the weights of the lowest validation loss, or of the last step

    def __post_init__(self) -> None:
        if self.start is not None and self.embeddings != "random":
            raise ValueError("start brings embeddings of its own. Leave out start, or set embeddings=random")
        _check_patience(self.train, self.keep)
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
    """The labelled files, the columns of texts and labels, and the shape of batches."""

    train: Path  # training examples
    dev: Path | None = None  # development set; without one, a tenth of the training examples is held out
    texts: tuple[str, ...] | None = None  # columns of the texts; guessed by default
    label: str | None = None  # column of the label; guessed by default
    separator: str | None = None  # between several labels in one cell
    labels: tuple[str, ...] | None = None  # instead of a label: columns of 0 and 1, one for each of several labels
    on_bad_row: Literal["skip", "fail"] = "skip"  # skip and count rows that cannot be read, or fail
    max_length: int = 128  # maximum sequence length in tokens, special tokens included
    batch_size: int = 32  # examples in a micro-batch
    workers: int = 2  # threads that make batches ahead of time

    def __post_init__(self) -> None:
        if self.max_length < 8 or self.batch_size < 1:
            raise ValueError("max_length is at least 8, and batch_size at least 1")
        _check_workers(self.workers)


@dataclass(frozen=True, kw_only=True)
class FineTune:
    """A fine-tuning run on labelled examples. Devlin et al. 2018, appendix A.3.

    It starts from a model folder; or, for translation, from a randomly initialised network with a tokenizer trained on
    its own examples.

    >>> recipe = config.read(Path("reviews.toml"), bertsmith.FineTune)
    >>> recipe.task.kind, recipe.data.batch_size
    ('classify', 32)
    """

    out: Path  # the run's folder: log, checkpoints, model, report
    model: Path | None = None  # a model folder to start from
    network: Component | None = field(default=None, metadata={"table": FAMILY})  # or a randomly initialised network
    tokenizer: Path | TokenizerConfig | None = None  # of such a network: a folder, or settings to train one
    task: Component = component_field(TASKS)
    data: LabelledConfig
    adapt: AdaptConfig = field(default_factory=AdaptConfig)
    dropout: float | None = None  # of the network in fine-tuning; None: as in its folder
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    train: TrainConfig
    keep: Literal["best", "last"] = "best"  # the weights of the best evaluation, or of the last step
    seeds: int = 1  # random seeds; scores are the mean with a 95 % interval

    def __post_init__(self) -> None:
        if (self.model is None) == (self.network is None):
            raise ValueError("give either model, a folder to start from, or network, randomly initialised")
        if self.network is not None and not self.network.settings.decoder_layers:
            fact = (
                f"'{self.network.kind}' has no decoder, and only a network with one is trained on a task from scratch"
            )
            raise ValueError(f"{fact}. Use transformer-small, or pretrain it first")
        if self.model is not None and self.tokenizer is not None:
            raise ValueError("a model folder has its own tokenizer. Leave tokenizer out")


@dataclass(frozen=True, kw_only=True)
class ImageDataConfig:
    """The labelled images, the size that they are read in, and the size of batches."""

    train: Path  # training images: a folder by class, a table with paths, or files of CIFAR-10 or MNIST
    dev: Path | None = None  # images to evaluate on; by default `val` beside `train`, else `test`, or a held-out tenth
    path: str | None = None  # column of a table with the paths; guessed by default
    label: str | None = None  # column of a table with the labels; guessed by default
    root: Path | None = None  # folder that the paths of a table begin at; that of the table by default
    size: int = 224  # pixels on each side of the square that every image is stretched to
    fit: Literal["stretch", "keep"] = "stretch"  # or keep the size of each image: nothing is padded
    resample: Literal["bicubic", "bilinear"] = "bicubic"  # how images are stretched
    channels: int = 3  # red, green and blue; or 1, grey
    on_bad_image: Literal["skip", "fail"] = "skip"  # skip, count and name images that cannot be read, or fail
    batch_size: int = 128  # images in a micro-batch
    workers: int = 2  # threads that make batches ahead of time

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise ValueError(f"channels is {self.channels}. Give 3 for colours, or 1 for grey")
        if self.size < 1 or self.batch_size < 1:
            raise ValueError("size and batch_size are at least 1")
        _check_workers(self.workers)


@dataclass(frozen=True, kw_only=True)
class ImageFineTune:
    """Training on labelled images: of a network from scratch, or of a model folder that goes on. Touvron et al. 2020.

    >>> recipe = config.read(Path("digits.toml"), bertsmith.ImageFineTune)
    >>> recipe.network.kind, recipe.data.channels
    ('vit-tiny', 1)
    """

    out: Path  # the run's folder: log, checkpoints, model, report
    model: Path | None = None  # a model folder to start from
    network: Component | None = field(default=None, metadata={"table": IMAGE_FAMILY})  # or a randomly initialised one
    teacher: Path | None = None  # a model folder whose predictions are learnt: distillation
    task: ImageClassification.Config = field(default_factory=ImageClassification.Config)
    data: ImageDataConfig
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    train: TrainConfig
    keep: Literal["best", "last"] = "last"  # the weights of the last step, or of the best evaluation
    seeds: int = 1  # random seeds; scores are the mean with a 95 % interval

    def __post_init__(self) -> None:
        if (self.model is None) == (self.network is None):
            raise ValueError("give either model, a folder to start from, or network, randomly initialised")
        if self.task.linear_probe and self.model is None:
            raise ValueError("a linear probe is of a trained network. Give a model folder, or set linear_probe=false")
        if self.data.fit == "keep" and self.task.mixes:
            raise ValueError("images of several sizes cannot be mixed. Set data.fit=stretch, or mixup=0 and cutmix=0")


@dataclass(frozen=True, kw_only=True)
class ImagePretraining:
    """Pretraining on images without labels: a masked autoencoder. He et al. 2021.

    >>> recipe = config.read(Path("completed.toml"), bertsmith.ImagePretraining)
    >>> recipe.model.kind, recipe.objective.settings.mask_rate
    ('mae-tiny', 0.75)
    """

    out: Path  # the run's folder: log, checkpoints, model, report
    model: Component = component_field(VISION_FAMILY)
    objective: Component = component_field(IMAGE_OBJECTIVES)
    data: ImageDataConfig
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    train: TrainConfig
    keep: Literal["best", "last"] = "last"  # the weights of the last step, or of the lowest validation loss

    def __post_init__(self) -> None:
        if self.model.settings.positions != "sinusoidal":
            fact = f"'{self.model.kind}' learns its positions, and a masked autoencoder has fixed ones"
            raise ValueError(f"{fact}. Use a member such as mae-small, or train it by bertsmith finetune")
        if self.model.settings.channels != self.data.channels:
            fact = f"data.channels is {self.data.channels}, and the network reads {self.model.settings.channels}"
            raise ValueError(f"{fact}. Set both alike")
        _check_patience(self.train, self.keep)


def _check_workers(workers: int) -> None:
    if not 0 <= workers <= MAX_WORKERS:
        raise ValueError(f"workers is {workers}. Give 0 (batches are made when they are needed) to {MAX_WORKERS:,}")


def _check_patience(train: TrainConfig, keep: str) -> None:
    if train.patience is not None and keep != "best":
        raise ValueError("train.patience waits for a better validation loss. Set keep=best with it")


def settle(recipe: Any, may_change: frozenset[str]) -> None:
    """Write the resolved recipe into the run's folder; refuse to resume a run that was begun with another one."""
    path = recipe.out / "recipe.toml"
    if path.exists() and begun(recipe.out):
        check_kind(recipe)
        change = config.first_difference(config.read(path, type(recipe)), recipe, ignore=may_change)
        if change:
            raise RunError(
                recipe.out, f"was begun with another recipe: {change}", "Choose another folder, or remove this one"
            )
    with files.explain_os_errors(recipe.out):
        recipe.out.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, config.dump(recipe).encode())


def check_kind(recipe: Any) -> None:
    """Refuse the folder of another kind of run: fine-tuning into the folder of the pretraining, for one."""
    path = recipe.out / "recipe.toml"
    if path.exists() and begun(recipe.out) and (kind := _kind(config.read_toml(path))) != _kind(vars(recipe)):
        raise RunError(recipe.out, f"is the folder of {kind}, not of {_kind(vars(recipe))}", "Choose another folder")


def _kind(values: Mapping[str, Any]) -> str:
    """The kind of a run, in words, by a section that only its recipes have."""
    return next((kind for section, kind in RUN_KINDS.items() if section in values), "another kind of run")


def begun(out: Path) -> bool:
    """Whether a run has taken a step: one that failed before its first step may be run with another recipe."""
    folders = [out, *out.glob("seed-*")]  # fine-tuning has a folder for each seed
    saved = any(any(folder.glob("checkpoints/step-*")) or (folder / "result.json").exists() for folder in folders)
    return saved or any(log.has_steps(folder / log.NAME) for folder in folders)
