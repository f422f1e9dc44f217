"""Automatic configuration for `make`: vocabulary, model size and hyperparameters for a text, a machine and a budget."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bertsmith.config import Component
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import RecipeError
from bertsmith.models.family import FAMILY
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import DataConfig, Recipe
from bertsmith.train.clock import format_duration, parse_duration
from bertsmith.train.evaluate import SINGLE_EVALUATION_SHARE
from bertsmith.train.optimizers import OptimizerConfig
from bertsmith.train.schedules import ScheduleConfig
from bertsmith.train.train_config import TrainConfig

# Short runs take short sequences: a network that has to learn 128 position embeddings still predicts by word frequency
# when one with 32 positions has long learnt to attend to the neighbours. Seen in docs/diary.md, 2026-11-15.
LENGTHS = {32: 0.0, 64: 2e7, 128: 1e8}  # sequence length -> tokens seen from which it pays
SMALL_TEXT, MIDDLE_TEXT = 1_500_000, 10_000_000  # words


@dataclass(frozen=True)
class Size:
    """The training length from which a model size pays, its learning rate and the optimizer of its matrices."""

    min_tokens: float  # seen in training, from which it beats the next smaller size
    learning_rate: float
    hidden_optimizer: Literal["adamw", "muon"] = "adamw"


SIZES = {
    "bert-tiny": Size(0, 5e-3, "muon"),  # AdamW learns half as much in five minutes: docs/diary.md, 2026-11-16
    "bert-mini": Size(1e7, 1e-3),
    "bert-small": Size(4e7, 7e-4),
    "bert-medium": Size(1e8, 5e-4),
    "bert-base": Size(2.5e8, 4e-4),
    "bert-large": Size(5e9, 2e-4),
}


@dataclass(frozen=True)
class RecipeChoice:
    """A recipe with its reasons, one line each."""

    recipe: Recipe
    reasons: list[str]


def budget_seconds(budget: str) -> float:
    """The seconds of a --budget."""
    try:
        return parse_duration(budget)
    except ValueError as error:
        raise RecipeError("--budget", str(error)) from None


def vocabulary_size(words: float, units: str = "words") -> tuple[int, str]:
    """The vocabulary size for a text of this many words, and the reason.

    In scripts without spaces, `words` counts characters, and the vocabulary must have room for all of them.
    """
    about = f"about {words:,.0f} {units}"
    if words < SMALL_TEXT and units == "words":
        return 8_192, f"{about} are too few for a larger one"
    if words < MIDDLE_TEXT:
        return 16_384, f"{about}, so rare words are split into several tokens" if units == "words" else about
    return 30_522, f"as many as BERT's: {about}"


def validation_share(words: float) -> float:
    """The share of the text that is held out for validation: larger for a small text."""
    return 0.05 if words < SMALL_TEXT else 0.01


def choose_recipe(data: Path, out: Path, *, budget: float, flops: float, gpu: bool, seed: int = 0) -> RecipeChoice:
    """A recipe for a prepared text, a machine with `flops` FLOP/s in training, and a budget in seconds."""
    shards = Shards(data / "train")
    expected = {name: budget * flops / _flops_per_token(name, shards.vocabulary) for name in SIZES}
    name = [size for size in SIZES if expected[size] >= SIZES[size].min_tokens][-1]
    seen, epochs = expected[name], expected[name] / shards.tokens
    length = [length for length, min_tokens in LENGTHS.items() if seen >= min_tokens][-1]
    pairs = shards.documents >= 2 and shards.sentences >= 2 * shards.documents
    dropout = 0.1 if epochs > 30 else 0.0
    shape, tokens = FAMILY[name], 65_536 if gpu else 2_048
    assert isinstance(shape, TransformerConfig)
    settings = replace(shape, vocabulary=shards.vocabulary, dropout=dropout, attention_dropout=0.0)
    recipe = Recipe(
        out=out,
        model=Component(name, settings),
        objective=Component("masked_lm", MaskedLM.Config(pairs="nsp" if pairs else "none")),
        data=DataConfig(
            folder=data, max_length=length, batch_tokens=tokens, validation_tokens=_validation_tokens(seen, tokens)
        ),
        optimizer=OptimizerConfig(
            learning_rate=SIZES[name].learning_rate, betas=(0.9, 0.98), hidden_optimizer=SIZES[name].hidden_optimizer
        ),
        schedule=ScheduleConfig(warmup=0.06),
        train=TrainConfig(budget=f"{budget:.0f}s", seed=seed),
    )
    return RecipeChoice(recipe, _reasons(recipe, budget, seen, epochs))


def _validation_tokens(tokens_seen: float, batch_tokens: int) -> int:
    """The number of validation tokens; one costs a third of a training token (forward pass only)."""
    return int(min(max(3 * SINGLE_EVALUATION_SHARE * tokens_seen, 8 * batch_tokens), 1_000_000))


def _reasons(recipe: Recipe, budget: float, tokens_seen: float, epochs: float) -> list[str]:
    times = f"{epochs:.1f} times" if epochs < 10 else f"{epochs:.0f} times"
    dropout, length = recipe.model.settings.dropout, recipe.data.max_length
    overfitting = "the text is seen often" if dropout else "the text is seen too rarely to overfit"
    short = "in a short run fewer positions are learnt sooner"
    sequences = "long enough for a paragraph" if length == max(LENGTHS) else short
    muon = "; matrices are updated by Muon" if recipe.optimizer.hidden_optimizer == "muon" else ""
    alone = "masked language modelling alone: the text has no documents to draw sentence pairs from"
    both = "masked language modelling and next-sentence prediction, as in BERT"
    seen = f"in {format_duration(budget)} it sees {tokens_seen / 1e6:,.1f} M tokens on this machine"
    return [
        f"{recipe.model.kind}: {seen}, your text {times}",
        f"dropout {dropout}: {overfitting}",
        alone if recipe.objective.settings.pairs == "none" else both,
        f"sequences of {length} tokens: {sequences}",
        f"learning rate {recipe.optimizer.learning_rate:g} at its peak, falling to zero at the end{muon}",
    ]


def reserve_seconds(budget: float, *, gpu: bool) -> float:
    """Seconds of a budget that are reserved for compilation, the last validation, the model folder and the report."""
    return 3 + 0.02 * budget + (40 if gpu else 0)


def training_memory(
    networks: Sequence[NetworkConfig], parameters: int, batch_tokens: int, prediction_share: float
) -> float:
    """The approximate bytes of training: weights, gradients, two moments, activations and logits."""
    states = 16 * parameters
    # The decoder's sequence is as long as the predicted part of the text.
    depths = [(shape, shape.layers + prediction_share * shape.decoder_layers) for shape in networks]
    widths = sum(depth * (16 * shape.width + 4 * _inner_width(shape)) for shape, depth in depths)
    activations = batch_tokens * widths * 2  # bfloat16, dropout masks included
    logits = batch_tokens * prediction_share * networks[0].vocabulary * 8
    return states + activations + logits


def duration(recipe: Recipe, speed: float, shards: Shards | None) -> str:
    """The length of a run in words, at `speed` tokens per second."""
    train, update = recipe.train, recipe.data.batch_tokens * recipe.train.gradient_accumulation
    if train.budget is not None:
        total = parse_duration(train.budget)
        return f"{format_duration(total)}, about {total * speed / update:,.0f} updates"
    if train.steps is not None:
        return f"{train.steps:,} updates, about {format_duration(train.steps * update / speed)}"
    assert train.epochs is not None
    if shards is None:
        return f"{train.epochs:g} epochs over a text that is not prepared yet"
    duration = format_duration(train.epochs * shards.tokens / speed)
    return f"{train.epochs:g} epochs over {shards.tokens:,} tokens, about {duration}"


def _inner_width(shape: NetworkConfig) -> int:
    """The inner width of a layer: of the feed-forward network, or of the four gates of a recurrent cell."""
    return shape.feed_forward if isinstance(shape, TransformerConfig) else 4 * shape.width


def _flops_per_token(name: str, vocabulary: int) -> float:
    settings = replace(FAMILY[name], vocabulary=vocabulary)
    return settings.flops(max(LENGTHS), MaskedLM.Config().mask_rate)
