"""The bidirectional language model (biLM) of ELMo: each word is predicted from those before it, and those after."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from bertsmith.data.batch import Batch, Tokens
from bertsmith.data.packing.pack import PackedBatch
from bertsmith.data.packing.pairs import Pairs
from bertsmith.errors import RecipeError
from bertsmith.models.elmo import Elmo
from bertsmith.models.networks import Network
from bertsmith.nn.init import CustomInit
from bertsmith.objectives.base import Pretraining, Term
from bertsmith.random_bits import uniform
from bertsmith.text.characters import vocabulary_characters
from bertsmith.text.tokenizer import Tokenizer

LOGITS_PER_CHUNK = 1 << 27  # scores of words that are looked at together where nothing is learnt


class OutputLayer(nn.Linear, CustomInit):
    """The table that words are told by, in numbers that keep a score about one."""

    def init_weights(self, generator: torch.Generator) -> None:
        self.weight.normal_(0.0, self.in_features**-0.5, generator=generator)
        self.bias.zero_()


class BidirectionalLM(Pretraining):
    """Guess every word twice: by one network that has read up to it, and by one that has read back to it.

    Peters et al. 2018, section 3.1. Both tell words by one table. Where there are too many words to score them all,
    some that are drawn, the frequent ones oftener, stand for all: Jean et al. 2015. A validation scores every one.

    As a sequence may begin and end in the middle of a text, its first and its last token are not guessed.
    """

    bilm = True
    trunk: Elmo

    @dataclass(frozen=True, kw_only=True)
    class Config:
        sampled_softmax: int = 0  # words drawn for each batch to be told from the true ones; 0: all there are

        def __post_init__(self) -> None:
            if self.sampled_softmax < 0:
                raise ValueError(f"sampled_softmax is {self.sampled_softmax}. Give at least 0")

    def __init__(self, trunk: Network, config: Config) -> None:
        super().__init__(trunk, config)
        shape = self.trunk.config
        if config.sampled_softmax > shape.vocabulary // 2:
            fact = f"{config.sampled_softmax} of {shape.vocabulary} words are too many to be drawn"
            raise RecipeError(
                "objective.sampled_softmax", fact, f"Give at most {shape.vocabulary // 2}, or 0 for all words"
            )
        self.output = OutputLayer(shape.direction, shape.vocabulary)
        self.tries = expected_tries(config.sampled_softmax, shape.vocabulary)

    def bind(self, tokenizer: Tokenizer) -> None:
        self.trunk.set_characters(torch.from_numpy(vocabulary_characters(tokenizer, self.trunk.config.max_characters)))

    @property
    def pairs(self) -> Pairs:
        return "none"

    def forward(self, batch: Batch) -> dict[str, Term]:
        assert batch.target_positions is not None
        assert batch.targets is not None
        onward, backward = self.trunk(batch.tokens).chunk(2, -1)
        before, behind = (
            onward.index_select(0, batch.target_positions - 1),
            backward.index_select(0, batch.target_positions + 1),
        )
        learn = self._training_term if self.training else self._validation_term
        return {name: learn(one, batch) for name, one in (("left_to_right", before), ("right_to_left", behind))}

    def _training_term(self, hidden: Float[Tensor, "N K"], batch: Batch) -> Term:
        assert batch.targets is not None
        if batch.negatives is None:
            total = F.cross_entropy(self.output(hidden).float(), batch.targets, reduction="sum", ignore_index=-100)
        else:
            total = self._sampled_softmax(hidden, batch.targets, batch.negatives)
        return Term(total, None, 0.5)

    def _sampled_softmax(
        self, hidden: Float[Tensor, "N K"], targets: Int64[Tensor, "N"], sampled_ids: Int[Tensor, "S"]
    ) -> Float[Tensor, ""]:
        """The true word told from those drawn, each of which stands for as many as it is seldom drawn.

        So the sum over the true one and the others is, on average, that over all words.
        """
        table, bias, asked = self.output.weight, self.output.bias, targets.clamp(min=0)
        drawn = math.log(self.trunk.config.vocabulary + 1), self.tries
        true = (hidden * table[asked]).sum(-1).float() + bias[asked]
        false = F.linear(hidden, table[sampled_ids], bias[sampled_ids]).float() - _log_expected_count(
            sampled_ids, *drawn
        )
        false = false.masked_fill(sampled_ids == asked[:, None], -torch.inf)  # a true word that was drawn is not false
        losses = torch.cat([true[:, None], false], 1).logsumexp(1) - true
        return torch.where(targets == -100, 0.0, losses).sum()

    def _validation_term(self, hidden: Float[Tensor, "N K"], batch: Batch) -> Term:
        """The same without learning, some words at a time: all scores at once may be more than the memory holds."""
        assert batch.targets is not None
        total, right = hidden.new_zeros((), dtype=torch.float32), hidden.new_zeros((), dtype=torch.int64)
        some = max(1, LOGITS_PER_CHUNK // self.trunk.config.vocabulary)
        for begin in range(0, len(hidden), some):
            scores, targets = self.output(hidden[begin : begin + some]).float(), batch.targets[begin : begin + some]
            total = total + F.cross_entropy(scores, targets, reduction="sum", ignore_index=-100)
            right = right + (scores.argmax(-1) == targets).sum()
        return Term(total, right, 0.5)

    def collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], Batch]:
        return partial(collate, sampled=self.config.sampled_softmax, vocabulary=self.trunk.config.vocabulary)

    @property
    def prediction_share(self) -> float:
        share = self.config.sampled_softmax / self.trunk.config.vocabulary if self.config.sampled_softmax else 1.0
        return 2.0 * share

    def flops(self, attended: float) -> float:
        return self.trunk.config.flops(attended, self.prediction_share)

    @property
    def exports(self) -> dict[str, Pretraining]:
        return {"model": self}


def _log_expected_count(word_ids: Int[Tensor, "..."], log_range: float, tries: float) -> Float[Tensor, "..."]:
    """The logarithm of the chance that a word is among those drawn; frequent words have small numbers."""
    chance = torch.log1p(1.0 / (word_ids.float() + 1.0)) / log_range
    return torch.log(-torch.expm1(tries * torch.log1p(-chance)))


def collate(packed: PackedBatch, sampled: int = 0, vocabulary: int = 0) -> Batch:
    """Packed text -> batch: nothing is corrupted, and what is guessed is every word that has one on either side."""
    size, bounds = len(packed.ids), packed.bounds[: packed.real_sequences + 1]
    asks = np.arange(size) < packed.real_tokens
    asks[bounds[:-1]] = asks[bounds[1:] - 1] = False
    found = np.flatnonzero(asks)
    # Two tokens of every sequence are not guessed, and there are no fewer sequences than full ones would be.
    room = size - 2 * size // packed.max_length
    chosen, targets = np.ones(room, np.int64), np.full(room, -100)
    chosen[: len(found)], targets[: len(found)] = found, packed.ids[found]
    tokens = Tokens(
        ids=torch.from_numpy(packed.ids),
        bounds=torch.from_numpy(packed.bounds),
        positions=torch.from_numpy(packed.positions),
        max_length=packed.max_length,
    )
    lengths = np.diff(bounds).astype(np.int64)
    counts = {"left_to_right": len(found), "right_to_left": len(found), "tokens": packed.real_tokens}
    counts["squares"] = int((lengths * lengths).sum())
    return Batch(
        tokens=tokens,
        target_positions=torch.from_numpy(chosen),
        targets=torch.from_numpy(targets),
        negatives=torch.from_numpy(sample_log_uniform(packed.key, sampled, vocabulary)) if sampled else None,
        counts=counts,
    )


def sample_log_uniform(key: int, count: int, vocabulary: int) -> Int64[np.ndarray, "S"]:
    """So many different words, the frequent ones likelier: number n as often as log(n + 2) - log(n + 1)."""
    found, tries = np.zeros(0, np.int64), 2 * count
    while len(found) < count:
        drawn = np.exp(uniform(key, np.arange(tries)) * math.log(vocabulary + 1)).astype(np.int64) - 1
        numbers, first = np.unique(np.minimum(drawn, vocabulary - 1), return_index=True)
        found, tries = numbers[np.argsort(first)], 2 * tries
    return np.sort(found[:count])


def expected_tries(count: int, vocabulary: int) -> float:
    """About how often a word must be drawn until so many different ones have been."""
    chances = np.log1p(1.0 / np.arange(1, vocabulary + 1)) / math.log(vocabulary + 1)
    low, high = 0.0, float(count)
    while -np.expm1(high * np.log1p(-chances)).sum() < count:
        high *= 2
    for _ in range(40 if count else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if -np.expm1(middle * np.log1p(-chances)).sum() < count else (low, middle)
    return high
