"""Automatic configuration for `make`: vocabulary, model size and hyperparameters for a text, a machine and a budget."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from bertsmith.data.shards.shards import Shards
from bertsmith.errors import RecipeError
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.recipe import Recipe
from bertsmith.runs import candidates
from bertsmith.runs.epochs import epoch_tokens
from bertsmith.runs.more_time import twice_the_time
from bertsmith.runs.pace import measure_pace
from bertsmith.train import hardware
from bertsmith.train.clock import format_duration, parse_duration

SMALL_TEXT, MIDDLE_TEXT = 1_500_000, 10_000_000  # words
DECAYS = {  # what the learning rate does after its warmup, by the kind of its schedule
    "linear": "falling to zero at the end",
    "cosine": "falling to zero at the end, by a cosine",
    "trapezoid": "constant, and falling to zero at the end",
    "inverse_root": "falling with the root of the steps, not to zero",
}
CHARACTERS_PER_WORD = 2  # in scripts without spaces, about: as long as a word of Chinese


@dataclass(frozen=True)
class RecipeChoice:
    """A recipe with its reasons, one line each."""

    recipe: Recipe
    reasons: list[str]
    more_time: str = ""  # what twice the time would bring


def budget_seconds(budget: str) -> float:
    """The seconds of a --budget."""
    try:
        return parse_duration(budget)
    except ValueError as error:
        raise RecipeError("--budget", str(error)) from None


def vocabulary_size(words: float, units: str = "words") -> tuple[int, str]:
    """The vocabulary size for a text of this many words, and the reason.

    In scripts without spaces `words` counts characters, of which a word has about two.
    """
    about, count = f"about {words:,.0f} {units}", words if units == "words" else words / CHARACTERS_PER_WORD
    if count < SMALL_TEXT:
        return 8_192, f"{about} are too few for a larger one"
    if count < MIDDLE_TEXT:
        return 16_384, f"{about}, so rare words are split into several tokens"
    return 30_522, f"as many as BERT's: {about}"


def validation_share(words: float) -> float:
    """The share of the text that is held out for validation: larger for a small text."""
    return 0.05 if words < SMALL_TEXT else 0.01


def choose_recipe(
    data: Path, out: Path, *, budget: float, device: torch.device, seed: int = 0, like: str = candidates.SMITH
) -> RecipeChoice:
    """A recipe for a prepared text, this machine, and a budget in seconds."""
    shards, gpu, peak = Shards(data / "train"), device.type == "cuda", hardware.training_flops(device)
    flops = {size: candidates.flops_per_token(like, size, shards.vocabulary) for size in candidates.SIZES}
    paces, pairs = {size: peak / flops[size] for size in flops}, candidates.has_pairs(shards)

    def recipe(size: str) -> Recipe:
        return candidates.build(
            size, data, out, budget=budget, tokens_seen=budget * paces[size], gpu=gpu, pairs=pairs, seed=seed, like=like
        )

    if gpu:  # a pace could be measured only after compilation; the estimate serves
        size = largest_size({size: budget * paces[size] for size in paces}, shards.tokens)
    else:
        size, paces = measured_size(flops, budget, shards.tokens, lambda size: measure_pace(recipe(size), device))
    chosen, seen = recipe(size), budget * paces[size]
    then = largest_size({size: 2 * budget * paces[size] for size in paces}, shards.tokens)
    epochs = seen / epoch_tokens(chosen, shards)
    more = twice_the_time(like, size, then, seen, epochs)
    return RecipeChoice(chosen, _reasons(chosen, budget, seen, epochs), more)


def largest_size(expected: Mapping[str, float], text_tokens: float) -> str:
    """The largest size that pays for the tokens that each is expected to see, and for a text of this size."""
    sizes = candidates.SIZES.items()
    return [size for size, one in sizes if expected[size] >= one.min_tokens and text_tokens >= one.min_text][-1]


def measured_size(
    flops: Mapping[str, float], budget: float, text_tokens: float, measure: Callable[[str], float]
) -> tuple[str, dict[str, float]]:
    """The largest size that pays, and the tokens per second of all: measured where it matters, else by FLOPs."""
    size, measured = next(iter(flops)), dict[str, float]()
    while size not in measured:
        measured[size] = measure(size)
        paces: dict[str, float] = {}
        for other in flops:
            nearest = min(measured, key=lambda known: abs(math.log(flops[known] / flops[other])))
            paces[other] = measured[nearest] * flops[nearest] / flops[other]
        size = largest_size({other: budget * paces[other] for other in paces}, text_tokens)
    return size, paces


def _reasons(recipe: Recipe, budget: float, tokens_seen: float, epochs: float) -> list[str]:
    times = f"{epochs:.1f} times" if epochs < 10 else f"{epochs:.0f} times"
    part = f"{epochs:.0%}" if epochs >= 0.01 else "less than 1%"
    text = f"your text {times}" if epochs >= 0.95 else f"{part} of your text"
    tokens = f"{tokens_seen / 1e6:,.1f} M" if tokens_seen >= 1e5 else f"{tokens_seen:,.0f}"
    shape, length, optimizer = recipe.model.settings, recipe.data.max_length, recipe.optimizer
    size = f"{shape.layers} layers of width {shape.width}"
    seen = f"in {format_duration(budget)} it sees {tokens} tokens on this machine"
    overfitting = "the text is seen often" if shape.dropout else "the text is seen too rarely to overfit"
    if shape.dropout and epochs <= candidates.MANY_EPOCHS:
        overfitting = "as this member has it"
    short = "in a short run short ones teach more"
    muon = f", matrices {optimizer.muon_learning_rate:g} by Muon" if optimizer.hidden_optimizer == "muon" else ""
    return [
        f"{recipe.model.kind}, {size}: {seen}, {text}",
        f"dropout {shape.dropout}: {overfitting}",
        *_objective_reason(recipe),
        f"sequences of {length} tokens: {'long enough for a paragraph' if length >= candidates.MAX_LENGTH else short}",
        *(
            ["embeddings from counts of neighbouring tokens: a head start"]
            if recipe.embeddings == "cooccurrence"
            else []
        ),
        f"learning rate {optimizer.learning_rate:g}{muon}, {DECAYS[recipe.schedule.kind]}",
    ]


def _objective_reason(recipe: Recipe) -> list[str]:
    if recipe.objective.kind not in {"masked_lm", "mixed"}:
        return []
    settings, parts = recipe.objective.settings, ["masked language modelling"]
    if recipe.objective.kind == "mixed":
        share = f"one row in {1 / settings.causal_share:.0f}"
        parts.append(f"next-token prediction on {share}, which teaches grammar in a long run")
    names = {"nsp": "next-sentence prediction", "sop": "sentence-order prediction"}
    if settings.pairs in names:
        parts.append(f"{names[settings.pairs]}, because its sentences belong together")
    else:
        parts.append("no pairs of sentences, because the text has none that belong together")
    return [", ".join(parts)]


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
    duration = format_duration(train.epochs * epoch_tokens(recipe, shards) / speed)
    return f"{train.epochs:g} epochs over {shards.tokens:,} tokens, about {duration}"


def _inner_width(shape: NetworkConfig) -> int:
    """The inner width of a layer: of the feed-forward network, or of the four gates of a recurrent cell."""
    return shape.feed_forward if isinstance(shape, TransformerConfig) else 4 * shape.width
