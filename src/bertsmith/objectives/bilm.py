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

from bertsmith.data.batch import SelectedBatch
from bertsmith.data.packing.pack import PackedBatch
from bertsmith.errors import RecipeError
from bertsmith.models.elmo import Elmo
from bertsmith.models.networks import Network
from bertsmith.nn.init import CustomInit
from bertsmith.objectives.base import Pretraining, Term, count_tokens, packed_tokens
from bertsmith.random_bits import uniform
from bertsmith.text.characters import vocabulary_characters
from bertsmith.text.tokenizer import Tokenizer

LOGITS_PER_CHUNK = 1 << 27  # of a validation, which computes the logits of every word


class OutputLayer(nn.Linear, CustomInit):
    """The output layer over the vocabulary, initialised so that logits have a variance of about one."""

    def init_weights(self, generator: torch.Generator) -> None:
        self.weight.normal_(0.0, self.in_features**-0.5, generator=generator)
        self.bias.zero_()


@dataclass(frozen=True, kw_only=True)
class BidirectionalBatch(SelectedBatch):
    """Words to predict from both sides, and the sample of a sampled softmax."""

    negatives: Int64[Tensor, "S"] | None = None  # words that stand for all; None: the full softmax


class BidirectionalLM(Pretraining):
    """Two language models, left to right and right to left, each predict every word. Peters et al. 2018, section 3.1.

    Both share one output layer. For a large vocabulary training uses a sampled softmax: a sample of words, drawn
    log-uniformly so that frequent ones come oftener, stands for all (Jean et al. 2015). A validation scores every word.

    As a sequence may begin and end in the middle of a text, its first and its last token are no targets.
    """

    needs = "elmo"
    trunk: Elmo

    @dataclass(frozen=True, kw_only=True)
    class Config:
        sampled_softmax: int = 0  # words sampled per batch for the softmax; 0: the full softmax

        def __post_init__(self) -> None:
            if self.sampled_softmax < 0:
                raise ValueError(f"sampled_softmax is {self.sampled_softmax}. Give at least 0")

    def __init__(self, trunk: Network, config: Config) -> None:
        super().__init__(trunk, config)
        shape = self.trunk.config
        if config.sampled_softmax > shape.vocabulary // 2:
            fact = f"{config.sampled_softmax} of {shape.vocabulary} words are too many for a sample"
            raise RecipeError(
                "objective.sampled_softmax", fact, f"Give at most {shape.vocabulary // 2}, or 0 for all words"
            )
        self.output = OutputLayer(shape.direction, shape.vocabulary)
        self.tries = expected_tries(config.sampled_softmax, shape.vocabulary)

    def bind(self, tokenizer: Tokenizer) -> None:
        self.trunk.set_characters(torch.from_numpy(vocabulary_characters(tokenizer, self.trunk.config.max_characters)))

    def forward(self, batch: BidirectionalBatch) -> dict[str, Term]:
        forward, backward = self.trunk(batch.tokens).chunk(2, -1)
        left = forward.index_select(0, batch.target_positions - 1)
        right = backward.index_select(0, batch.target_positions + 1)
        term = self._training_term if self.training else self._validation_term
        return {"left_to_right": term(left, batch), "right_to_left": term(right, batch)}

    def _training_term(self, hidden: Float[Tensor, "N K"], batch: BidirectionalBatch) -> Term:
        if batch.negatives is None:
            total = F.cross_entropy(self.output(hidden).float(), batch.targets, reduction="sum", ignore_index=-100)
        else:
            total = self._sampled_softmax(hidden, batch.targets, batch.negatives)
        return Term(total, None, 0.5)

    def _sampled_softmax(
        self, hidden: Float[Tensor, "N K"], targets: Int64[Tensor, "N"], sampled_ids: Int[Tensor, "S"]
    ) -> Float[Tensor, ""]:
        """Cross-entropy over the true word and the sample, whose logits are reduced by the log of their expected count.

        The sum of exponentials is then, on average, that over all words.
        """
        table, bias, true_ids = self.output.weight, self.output.bias, targets.clamp(min=0)
        true = (hidden * table[true_ids]).sum(-1).float() + bias[true_ids]
        sampled = F.linear(hidden, table[sampled_ids], bias[sampled_ids]).float()
        sampled = sampled - _log_expected_count(sampled_ids, math.log(self.trunk.config.vocabulary + 1), self.tries)
        sampled = sampled.masked_fill(sampled_ids == true_ids[:, None], -torch.inf)  # the true word is no negative
        losses = torch.cat([true[:, None], sampled], 1).logsumexp(1) - true
        return torch.where(targets == -100, 0.0, losses).sum()

    def _validation_term(self, hidden: Float[Tensor, "N K"], batch: BidirectionalBatch) -> Term:
        """The full softmax without gradients, in chunks: all logits at once may be more than the memory holds."""
        total, correct = hidden.new_zeros((), dtype=torch.float32), hidden.new_zeros((), dtype=torch.int64)
        chunk = max(1, LOGITS_PER_CHUNK // self.trunk.config.vocabulary)
        for begin in range(0, len(hidden), chunk):
            logits, targets = self.output(hidden[begin : begin + chunk]).float(), batch.targets[begin : begin + chunk]
            total = total + F.cross_entropy(logits, targets, reduction="sum", ignore_index=-100)
            correct = correct + (logits.argmax(-1) == targets).sum()
        return Term(total, correct, 0.5)

    def collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], BidirectionalBatch]:
        return partial(collate, sampled=self.config.sampled_softmax, vocabulary=self.trunk.config.vocabulary)

    @property
    def prediction_share(self) -> float:
        share = self.config.sampled_softmax / self.trunk.config.vocabulary if self.config.sampled_softmax else 1.0
        return 2.0 * share


def _log_expected_count(word_ids: Int[Tensor, "..."], log_range: float, tries: float) -> Float[Tensor, "..."]:
    """The log of the probability that a word is in the sample; frequent words have small ids."""
    probability = torch.log1p(1.0 / (word_ids.float() + 1.0)) / log_range
    return torch.log(-torch.expm1(tries * torch.log1p(-probability)))


def collate(packed: PackedBatch, sampled: int = 0, vocabulary: int = 0) -> BidirectionalBatch:
    """From packed text to a batch: nothing is corrupted, and every word with a neighbour on both sides is a target."""
    size, bounds = len(packed.ids), packed.bounds[: packed.real_sequences + 1]
    is_target = np.arange(size) < packed.real_tokens
    is_target[bounds[:-1]] = is_target[bounds[1:] - 1] = False
    found = np.flatnonzero(is_target)
    # Two tokens of every sequence are no targets, and there are at least size / max_length sequences.
    room = size - 2 * size // packed.max_length
    chosen, targets = np.ones(room, np.int64), np.full(room, -100)
    chosen[: len(found)], targets[: len(found)] = found, packed.ids[found]
    return BidirectionalBatch(
        tokens=packed_tokens(packed),
        target_positions=torch.from_numpy(chosen),
        targets=torch.from_numpy(targets),
        negatives=torch.from_numpy(sample_log_uniform(packed.key, sampled, vocabulary)) if sampled else None,
        counts={"left_to_right": len(found), "right_to_left": len(found), **count_tokens(packed)},
    )


def sample_log_uniform(key: int, count: int, vocabulary: int) -> Int64[np.ndarray, "S"]:
    """`count` different words, drawn log-uniformly: id n with a probability as log(n + 2) - log(n + 1)."""
    found, tries = np.zeros(0, np.int64), 2 * count
    while len(found) < count:
        drawn = np.exp(uniform(key, np.arange(tries)) * math.log(vocabulary + 1)).astype(np.int64) - 1
        numbers, first = np.unique(np.minimum(drawn, vocabulary - 1), return_index=True)
        found, tries = numbers[np.argsort(first)], 2 * tries
    return np.sort(found[:count])


def expected_tries(count: int, vocabulary: int) -> float:
    """The expected number of draws until `count` different words have been drawn."""
    probabilities = np.log1p(1.0 / np.arange(1, vocabulary + 1)) / math.log(vocabulary + 1)
    low, high = 0.0, float(count)
    while -np.expm1(high * np.log1p(-probabilities)).sum() < count:
        high *= 2
    for _ in range(40 if count else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if -np.expm1(middle * np.log1p(-probabilities)).sum() < count else (low, middle)
    return high
