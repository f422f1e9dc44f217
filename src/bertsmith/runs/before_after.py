"""A continued model before and after: bits per byte on its text and on general text, neighbours, generated texts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bertsmith import files
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import FolderError
from bertsmith.inference.masked_words import bits_and_bytes, bits_per_byte, cut_passages
from bertsmith.inference.model import Model
from bertsmith.inference.word_neighbours import nearest_words, typical_words
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import LanguageModel
from bertsmith.runs.verdict import SMALL_GAIN
from bertsmith.text.fertility import batches
from bertsmith.text.tokenizer import Tokenizer

T = TypeVar("T")
BEFORE = "before.json"
PASSAGE_TOKENS = 100  # of a passage, at most
QUERY_WORDS, NEIGHBOUR_SENTENCES = 8, 400  # words whose neighbours are shown; sentences that they are found in
PROMPTS, PROMPT_WORDS, MAX_NEW_TOKENS = 4, 6, 24  # of a causal model
RUN = 20  # consecutive sentences that are taken together
NO_GAIN = 0.005  # bits per byte: a smaller improvement is none


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The texts by which a model is measured, the same before and after."""

    domain: list[str]  # held-out passages of the text
    general: list[str]  # passages of general text; empty if there is none in a language that the model knows
    sentences: list[str]  # of the training text, for the neighbours of words
    words: list[str]  # words that are typical of the text


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a model makes of a probe."""

    domain: list[tuple[float, int]]  # bits and bytes of each passage
    general: list[tuple[float, int]]
    neighbours: dict[str, list[str]] = field(default_factory=dict)
    generations: list[str] = field(default_factory=list)


def make_probe(
    train: Shards, valid: Shards, decoder: Tokenizer, general: Sequence[str], model: Model, passages: int
) -> Probe:
    """A probe of a prepared text, whose shards `decoder` reads; its passages are short enough for the model."""
    tokenizer, length = model.tokenizer, min(PASSAGE_TOKENS, int(0.9 * model.max_length) - 2)
    held_out, sentences = _sentences(valid, decoder, 20 * passages), _sentences(train, decoder, NEIGHBOUR_SENTENCES)
    return Probe(
        domain=cut_passages(held_out, tokenizer, length, passages),
        general=cut_passages(general, tokenizer, length, passages) if general else [],
        sentences=sentences,
        words=typical_words(sentences, general, QUERY_WORDS),
    )


def measure(model: Model, probe: Probe) -> Measurement:
    """Measure a masked or causal language model."""
    objective, trunk = model.objective, model.trunk
    assert isinstance(objective, LanguageModel)
    assert isinstance(trunk, Transformer)
    generations = []
    if objective.generates:
        prompts = [" ".join(text.split()[:PROMPT_WORDS]) for text in probe.domain[:PROMPTS]]
        generations = list(model.generate(prompts, max_new_tokens=MAX_NEW_TOKENS))
    return Measurement(
        domain=bits_and_bytes(objective, model.tokenizer, probe.domain),
        general=bits_and_bytes(objective, model.tokenizer, probe.general) if probe.general else [],
        neighbours=nearest_words(trunk, model.tokenizer, probe.sentences, probe.words),
        generations=generations,
    )


def save(out: Path, probe: Probe, before: Measurement, seconds: float) -> None:
    """Keep the probe and its first measurement in the run's folder, for the end of the run."""
    files.write_json(out / BEFORE, {"probe": asdict(probe), "before": asdict(before), "seconds": seconds})


def load(out: Path) -> tuple[Probe, Measurement, float] | None:
    """The probe, its first measurement and the seconds it took; None if there is none yet, or a damaged one."""
    try:
        content = files.read_json(out / BEFORE)
        probe, before = Probe(**content["probe"]), _parse(content["before"])
        return probe, before, float(content["seconds"])
    except (FolderError, LookupError, TypeError, ValueError):
        return None


def _parse(content: Mapping[str, Any]) -> Measurement:
    def pairs(name: str) -> list[tuple[float, int]]:
        return [(float(bits), int(size)) for bits, size in content[name]]

    neighbours = {str(word): [str(one) for one in near] for word, near in content["neighbours"].items()}
    generations = [str(text) for text in content["generations"]]
    return Measurement(domain=pairs("domain"), general=pairs("general"), neighbours=neighbours, generations=generations)


@dataclass(frozen=True)
class Change:
    """Bits per byte of the same passages before and after, and the standard error of their difference."""

    before: float
    after: float
    error: float

    @classmethod
    def of(cls, before: Sequence[tuple[float, int]], after: Sequence[tuple[float, int]]) -> "Change":
        first, last = bits_per_byte(before), bits_per_byte(after)
        sizes = np.array([size for _, size in before], np.float64)
        differences = np.array([one[0] - other[0] for one, other in zip(after, before, strict=True)])
        residuals = differences - (last - first) * sizes  # of a ratio of sums, by passage
        error = math.sqrt(len(sizes) * float(np.var(residuals))) / max(float(sizes.sum()), 1.0)
        return cls(first, last, error)

    @property
    def gain(self) -> float:
        """Bits per byte that are saved; negative if more are needed."""
        return self.before - self.after

    @property
    def significant(self) -> bool:
        """Whether the difference is more than two standard errors, and more than nothing."""
        return abs(self.gain) > max(2 * self.error, NO_GAIN)


@dataclass(frozen=True)
class BeforeAfter:
    """Both measurements of a continued model."""

    name: str  # of the model that was continued
    before: Measurement
    after: Measurement
    frequency_gain: float = math.inf  # nats below the loss of predicting by word frequency, in validation

    @property
    def domain(self) -> Change:
        return Change.of(self.before.domain, self.after.domain)

    @property
    def general(self) -> Change | None:
        return Change.of(self.before.general, self.after.general) if self.before.general else None

    @property
    def figures(self) -> dict[str, float]:
        """The figures for programs."""
        found = {"domain_before": self.domain.before, "domain_after": self.domain.after}
        if self.general is not None:
            found |= {"general_before": self.general.before, "general_after": self.general.after}
        return {f"bits_per_byte_{name}": value for name, value in found.items()}

    @property
    def better(self) -> bool:
        """Whether the model has become better on its text, beyond the noise."""
        return self.domain.gain > 0 and self.domain.significant

    @property
    def usable(self) -> bool:
        """Whether the model should be used instead of the one that was continued."""
        return self.better and self.frequency_gain >= SMALL_GAIN

    @property
    def good_for(self) -> str:
        """What the model is for."""
        if not self.usable:
            return f"Nothing yet: keep {self.name}."
        only = self.general is not None and -self.general.gain > self.domain.gain
        rest = f". For other texts {self.name} is better" if only else ""
        return f"All that {self.name} is used for, on texts like yours{rest}."

    @property
    def verdict(self) -> str:
        """Whether the model should be used: it should not where it is no better on its text."""
        domain, general = self.domain, self.general
        figures = f"{domain.before:.3f} bits per byte before and {domain.after:.3f} after, on held-out text"
        if not self.better:
            worse = "worse" if domain.significant else "no better"
            remedy = f"Keep {self.name}, or give it more text or more time."
            return f"Do not use this model: on text like yours it is {worse} than {self.name} ({figures}). {remedy}"
        if self.frequency_gain < SMALL_GAIN:  # of a new head
            fact = f"it is better on your text than before ({figures}), but hardly better than word frequency"
            return f"Do not use this model yet: {fact}. Give it more time."
        sentence = f"The model has learnt your text: {figures}."
        if general is None:
            remedy = "name one in its language with --general-text."
            return f"{sentence} How much general text it has forgotten was not measured: {remedy}"
        other = f"{general.before:.3f} before and {general.after:.3f} after"
        if -general.gain > domain.gain:
            lost = f"On general text it has lost more than that: {other}."
            return f"{sentence} {lost} Use it for texts like yours only, and {self.name} for others."
        kept = "lost a little" if general.gain < 0 else "lost nothing"
        return f"{sentence} On general text it has {kept if general.significant else 'lost nothing'}: {other}."


def spread(items: Sequence[T], count: int) -> list[T]:
    """Runs of consecutive items, spread evenly, about `count` in all."""
    if len(items) <= count:
        return list(items)
    starts = np.linspace(0, len(items) - RUN, max(count // RUN, 1)).astype(np.int64)
    return [items[number] for number in np.unique(starts[:, None] + np.arange(RUN)).tolist()]


def first_characters(texts: Sequence[str], limit: int) -> list[str]:
    """The first texts, up to a number of characters."""
    return [text for batch in batches(texts, limit) for text in batch]


def _sentences(shards: Shards, tokenizer: Tokenizer, count: int) -> list[str]:
    """Sentences of a prepared text as text: runs that are spread over it."""
    numbers = np.array(spread(range(len(shards.sentence_ends)), count), np.int64)
    starts = np.concatenate([[0], shards.sentence_ends[:-1]])[numbers]
    lengths = shards.sentence_ends[numbers] - starts
    rows = zip(starts.tolist(), lengths.tolist(), strict=True)
    return [tokenizer.decode(shards.gather(np.array([start]), np.array([length])).tolist()) for start, length in rows]
