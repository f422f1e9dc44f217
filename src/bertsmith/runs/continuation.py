"""The choices of `make --from`: which models can be continued, and vocabulary, length, batch and learning rate."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from bertsmith.config import Component
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import FolderError, TextError
from bertsmith.inference.load import load_text_model
from bertsmith.inference.model import Model
from bertsmith.models.family import FAMILY
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import DataConfig, Recipe
from bertsmith.runs.candidates import has_pairs
from bertsmith.runs.epochs import packed_tokens
from bertsmith.runs.warm_start import MAY_DIFFER
from bertsmith.tasks.base import Task
from bertsmith.text.extend import extend
from bertsmith.text.fertility import Fertility, measure_fertility
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train.clock import format_duration
from bertsmith.train.optimizers import OptimizerConfig
from bertsmith.train.schedules import ScheduleConfig
from bertsmith.train.train_config import TrainConfig

MIN_WORDS = 5_000  # of the text: from fewer nothing can be held out that shows whether the model has improved
MAX_UNKNOWN = 0.05  # share of unknown tokens
MIN_CHARACTERS = {"words": 2.0, "characters": 0.75}  # per token, by the unit of the script; below, words are spelt out
USUAL_FERTILITY = 1.5  # tokens per word: a tokenizer on the language it was made for has less (Rust et al. 2021)
# Each token more per word lengthens every sequence. Below a tenth more than in general text, new tokens would save
# little, and their embeddings have to be learnt from this text alone.
EXTEND_FROM = 1.1  # tokens per word, compared with general text
MIN_SAVING = 0.02  # share of the text's tokens that an extension must save
WORDS_PER_NEW_TOKEN = 1_000  # so that even the rarest new token is read some twenty times
MAX_NEW_TOKENS = 8_000
EXTENSION_CHARACTERS = 3_000_000  # of the text, from which new tokens are learnt
# Repeated text: Muennighoff et al. 2023 find 4 epochs as good as new text and 40 without effect. A masked model
# predicts a seventh of the tokens in an epoch, so that it needs more of them.
MAX_EPOCHS = {"masked_lm": 40.0, "causal_lm": 10.0}
MIN_LENGTH, MAX_LENGTH = 32, {False: 128, True: 512}  # of sequences, on a CPU and on a GPU
SHORT_LENGTH = 64  # sequences are not made shorter than this for the sake of more updates
MAX_BATCH = {False: 4_096, True: 65_536}  # tokens
FEW_UPDATES = 300  # smaller batches are taken before a run has fewer
SIZES = ("width", "layers", "decoder_layers", "heads", "feed_forward", "hidden")  # in which members of a kind differ
LEARNING_RATE, WIDTH, UPDATES = 1e-4, 768, 1_000  # at this width and number of updates
# A new head has more to learn. all-MiniLM-L6-v2 on captions, 60 updates: at three times the rate 0.36 bits per byte are
# gained on the text instead of 0.25, and 0.07 lost on general text instead of none.
NEW_HEAD_RATE = 3.0  # factor of the learning rate


@dataclass(frozen=True)
class Continuation:
    """A recipe that continues a model, its reasons, and the seconds of training after which its text is worn out."""

    recipe: Recipe
    reasons: list[str]
    max_seconds: float | None


def open_model(start: Path) -> Model:
    """The model of a folder that can be continued by masked or causal language modelling; others are refused."""
    model = load_text_model(start)
    objective, config = model.objective, model.objective.trunk.config
    if isinstance(objective, Task):
        remedy = "Continue the model it was made from, and fine-tune the result"
        raise FolderError(model.path, "was fine-tuned, which continued pretraining would undo", remedy)
    by_hand = f"Use: bertsmith pretrain {nearest_member(config)} start={model.path}, with --data and --out"
    if not isinstance(objective, MaskedLM | CausalLM):
        fact = "is neither a masked nor a causal language model, the kinds that --from continues"
        raise FolderError(model.path, fact, by_hand)
    if not model.has_lm_head and "discriminator" in layout_of(config).parts:
        fact = "is a discriminator (ELECTRA), which learns from the tokens that a generator replaces"
        raise FolderError(model.path, fact, by_hand)
    if isinstance(objective, MaskedLM) and "mask" not in model.tokenizer.roles:
        raise FolderError(model.path, "its tokenizer has no mask token", "Only a masked model with one is continued")
    return model


def nearest_member(config: NetworkConfig) -> str:
    """The member of the family that a network differs least from: by its design first, and then by its sizes."""
    same = {name: shape for name, shape in FAMILY.items() if type(shape) is type(config)}
    names = [field.name for field in fields(config) if field.name not in MAY_DIFFER]

    def differences(member: str) -> tuple[int, int]:
        differ = [name for name in names if getattr(same[member], name) != getattr(config, name)]
        return sum(name not in SIZES for name in differ), len(differ)

    return min(same, key=differences)


def speaks(tokenizer: Tokenizer, texts: Sequence[str]) -> bool:
    """Whether a vocabulary was made for the language of some texts, so that they can stand for general text."""
    found = measure_fertility(tokenizer, texts)
    return found.tokens_per_word <= USUAL_FERTILITY and found.unknown_rate <= MAX_UNKNOWN


def choose_vocabulary(
    tokenizer: Tokenizer, texts: Sequence[str], general: Sequence[str], words: float, folder: Path
) -> tuple[Tokenizer, list[str]]:
    """The tokenizer for a text of this many words, extended if that saves tokens; and the reason.

    `texts` and `general` are samples of the text and of general text. A text that the tokenizer cannot express, or that
    is too small, is refused.
    """
    own = measure_fertility(tokenizer, texts, EXTENSION_CHARACTERS)
    _check_text(own, texts, words, folder)
    usual = measure_fertility(tokenizer, general).tokens_per_word if general else USUAL_FERTILITY / EXTEND_FROM
    unit, compared = own.units[:-1], f", general text {usual:.2f}" if general else ""
    needs = f"your text needs {own.tokens_per_word:.2f} tokens per {unit}{compared}"
    if own.tokens_per_word <= EXTEND_FROM * usual or own.units != "words":
        return tokenizer, [f"vocabulary of the model, {tokenizer.vocabulary:,} tokens: {needs}"]
    if tokenizer.kind not in ("wordpiece", "bpe", "unigram"):
        return tokenizer, [f"vocabulary of the model: {needs}, but a vocabulary of its kind cannot be extended"]
    new = max(1, min(int(words / WORDS_PER_NEW_TOKEN), MAX_NEW_TOKENS))
    extended = extend(tokenizer, texts, new)
    after = measure_fertility(extended, texts, EXTENSION_CHARACTERS)
    if after.tokens > (1 - MIN_SAVING) * own.tokens:
        saved = max(1 - after.tokens / own.tokens, 0.0)
        return tokenizer, [f"vocabulary of the model: {needs}, and {new:,} new tokens would save {saved:.1%} of them"]
    added = range(tokenizer.vocabulary, extended.vocabulary)
    some = ", ".join(extended.readable(number) for number in added[:4])
    with_them = f"with them {after.tokens_per_word:.2f}. One for each {WORDS_PER_NEW_TOKEN:,} words of text"
    return extended, [f"{len(added):,} new tokens ({some}, ...): {needs}; {with_them}"]


def _check_text(own: Fertility, texts: Sequence[str], words: float, folder: Path) -> None:
    """Refuse a text that is too small, or that the vocabulary cannot express."""
    if words < MIN_WORDS:
        fact = f"{words:,.0f} {own.units} are too few to continue a model on: it would learn them by heart"
        raise TextError("text", fact, f"Give at least {MIN_WORDS:,}")
    remedy = "Continue a model of its language, or leave --from out to make a new one"
    if own.unknown_rate > MAX_UNKNOWN:
        fact = f"{own.unknown_rate:.0%} of the text's tokens are unknown to the vocabulary of {folder}"
        raise TextError("text", fact, remedy)
    characters = sum(map(len, texts)) * min(1.0, own.bytes / max(sum(len(text.encode()) for text in texts), 1))
    if characters < MIN_CHARACTERS[own.units] * own.tokens:
        fact = f"the vocabulary of {folder} spells the text out, {characters / own.tokens:.1f} characters per token"
        raise TextError("text", fact, remedy)


def choose_recipe(
    model: Model, start: Path, data: Path, out: Path, *, budget: float, flops: float, gpu: bool, seed: int = 0
) -> Continuation:
    """A recipe that continues a model on a prepared text, in `budget` seconds on a machine with `flops` FLOP/s."""
    shards, config = Shards(data / "train"), model.objective.trunk.config
    assert isinstance(config, TransformerConfig)
    shape, objective = replace(config, vocabulary=shards.vocabulary), _objective(model, shards)
    longest = min(shape.max_length, MAX_LENGTH[gpu])
    predicted = 1.0 if shape.causal else objective.settings.mask_rate
    speed = flops / shape.flops(longest, predicted)  # tokens per second
    length = _length(shards, longest)
    while length > SHORT_LENGTH and budget * speed < FEW_UPDATES * 8 * length:
        length //= 2  # a batch has at least eight sequences
    epoch = packed_tokens(shards, length, getattr(objective.settings, "pairs", "none"))
    most = MAX_EPOCHS[objective.kind] * epoch
    seen = min(budget * speed, most)
    batch = int(min(max(seen / FEW_UPDATES, 8 * length), MAX_BATCH[gpu])) // length * length
    updates = max(seen / batch, 1.0)
    factor = 1.0 if model.has_lm_head else NEW_HEAD_RATE
    rate = float(f"{factor * learning_rate(shape.width, updates):.1e}")
    recipe = Recipe(
        out=out,
        start=start,
        model=Component(nearest_member(shape), shape),
        objective=objective,
        data=DataConfig(folder=data, max_length=length, batch_tokens=batch),
        optimizer=OptimizerConfig(learning_rate=rate, betas=(0.9, 0.98)),
        schedule=ScheduleConfig(warmup=0.06),
        train=TrainConfig(budget=f"{budget:.0f}s", seed=seed),
    )
    capped = most / speed if most < budget * speed else None
    epochs = seen / epoch
    enough = "; seen more often, it would be learnt by heart" if capped else ""
    fits = f"of {shape.max_length:,} that the model reads; most documents have no more, or time is short"
    little = "a fraction of a new model's, so that little is forgotten"
    little += "" if model.has_lm_head else f", and {NEW_HEAD_RATE:g} times as high for the new head"
    trained = f"about {format_duration(min(budget, capped or budget))} of training"
    run = f"about {updates:,.0f} updates of {batch:,} tokens"
    reasons = [
        f"{trained}: {seen / 1e6:,.2f} M tokens on this machine, your text {epochs:.1f} times{enough}",
        _objective_reason(objective),
        f"sequences of {length} tokens{f', {fits}' if length < longest else ', as many as it pays to read'}",
        f"learning rate {rate:g} at its peak, by the width {shape.width} and {run}: {little}",
    ]
    return Continuation(recipe, reasons, capped)


def learning_rate(width: int, updates: float) -> float:
    """The peak learning rate of continued pretraining: lower for wide networks and for long runs."""
    by_updates = min(max((UPDATES / updates) ** 0.25, 0.5), 2.0)
    return float(LEARNING_RATE * (WIDTH / width) ** 0.5 * by_updates)


def _objective(model: Model, shards: Shards) -> Component:
    """The objective of the folder. Sentence pairs are kept where it has heads for them and the text allows it."""
    if not isinstance(model.objective, MaskedLM):
        return Component("causal_lm", CausalLM.Config())
    pairs = model.objective.config.pairs
    return Component("masked_lm", MaskedLM.Config(pairs=pairs if has_pairs(shards) else "none"))


def _objective_reason(objective: Component) -> str:
    if objective.kind == "causal_lm":
        return "causal language modelling, as before"
    tasks = {"nsp": "next-sentence prediction", "sop": "sentence-order prediction"}
    second = tasks.get(objective.settings.pairs)
    if second is None:
        return "masked language modelling alone: the folder has no head for sentence pairs, or the text no pairs"
    return f"masked language modelling and {second}: the folder has heads for both"


def _length(shards: Shards, limit: int) -> int:
    """The sequence length: a power of two in which nineteen of twenty documents fit, at most `limit`."""
    ends = shards.sentence_ends[shards.document_ends - 1]
    longest = float(np.quantile(np.diff(ends, prepend=0), 0.95)) + 3  # with special tokens
    return min(limit, max(MIN_LENGTH, 1 << int(np.ceil(np.log2(longest)))))
