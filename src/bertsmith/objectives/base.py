"""An objective: a network with heads and a loss. A pretraining objective makes its targets from the text itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor, nn

from bertsmith.data.batch import Batch, TargetBatch, Tokens
from bertsmith.data.packing.pack import PackedBatch
from bertsmith.data.packing.pairs import Pairs
from bertsmith.errors import RecipeError
from bertsmith.models.networks import Architecture, Network
from bertsmith.text.tokenizer import Tokenizer


class Term(NamedTuple):
    """One loss as a sum over its targets. The trainer divides it once, by the targets of all micro-batches."""

    total: Float[Tensor, ""]
    correct: Int[Tensor, ""] | None  # number of correct predictions; None in training
    weight: float = 1.0  # of the term's mean in the training loss; reported losses are never weighted
    ratios: Mapping[str, tuple[Int[Tensor, ""], Int[Tensor, ""]]] | None = None  # further rates: count and total


class Objective(nn.Module, ABC):
    """A training objective: `forward` returns the losses of a batch as sums. The trainer knows nothing else of it."""

    trunk: Network
    labels: tuple[str, ...] = ()  # names of the classes of a task, in the order of their ids
    generates: ClassVar[bool] = False  # whether it teaches its network to write text, token by token

    def hidden_matrices(self) -> dict[str, int]:
        """The matrices inside the network's layers by name, with the number stacked in each: for Muon."""
        return {f"trunk.{name}": count for name, count in self.trunk.matrices().items()}

    def prepare(self, batch: Batch, device: torch.device) -> Batch:
        """What `forward` is given: by default the batch itself, before it is brought to the device.

        A step runs it eagerly before the forward pass, which may be compiled or captured as a CUDA graph. Images are
        brought to the device as bytes, changed at random and cut into patches here.
        """
        return batch

    @abstractmethod
    def forward(self, batch: Any) -> dict[str, Term]:  # each objective has its own kind of `Batch`
        """The loss terms by name, each summed over the targets that `batch.counts` counts."""


class Pretraining(Objective):
    """A pretraining objective: self-supervised, its targets are made from packed text."""

    Config: ClassVar[Any]
    needs: ClassVar[Architecture]  # the networks that it can train

    def __init__(self, trunk: Network, config: Any) -> None:
        super().__init__()
        check_architecture(trunk.config.architecture, self.needs)
        self.trunk, self.config = trunk, config

    def bind(self, tokenizer: Tokenizer) -> None:
        """Take from the tokenizer what the network needs before training, such as the characters of each word."""

    @property
    def pairs(self) -> Pairs:
        """How the packer pairs texts: none, next sentence (NSP) or sentence order (SOP)."""
        return "none"

    @abstractmethod
    def collator(self, tokenizer: Tokenizer) -> Callable[[Any], TargetBatch]:
        """A pure function from packed text, or a segment of each stream, to a batch; small enough to be pickled."""

    def validation_collator(self, tokenizer: Tokenizer) -> Callable[[Any], TargetBatch]:
        """The same for validation, where it differs."""
        return self.collator(tokenizer)

    @property
    def prediction_share(self) -> float:
        """The share of positions whose logits over the vocabulary are computed, for estimates of memory."""
        return 1.0

    def flops(self, attended: float) -> float:
        """Floating-point operations of training per token, counted as in `TransformerConfig.flops`."""
        return self.trunk.config.flops(attended, self.prediction_share)

    @property
    def exports(self) -> "dict[str, Pretraining]":
        """The model folders that a run writes, by name, with the objective that each holds. The last predicts words."""
        return {"model": self}


class LanguageModel(Pretraining):
    """A language model, which gives each token of a text a probability: masked, or from left to right if causal."""

    @abstractmethod
    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The logits of every token of the vocabulary, from the hidden vectors of the network."""


def check_architecture(network: Architecture, needs: Architecture) -> None:
    """Refuse a network that an objective cannot train, and name an objective or a network that fits the other."""
    if network == needs:
        return
    match needs, network:
        case "elmo", _:
            fact = "the network does not keep its two directions apart, and would see the words that it has to predict"
            remedy = "Use another, or a member such as elmo"
        case "recurrent", _:
            fact = "the network is not recurrent: it has no state to carry on"
            remedy = "Use 'causal_lm', or a member such as lstm-small"
        case _, "elmo":
            fact = "the network has two separate directions, and each must predict every word"
            remedy = "Use 'bilm', or a member such as bert-base"
        case _, "recurrent" | "seq2seq" | "static":
            fact = "the network is not a transformer"
            remedy = "Use 'recurrent_lm' for a recurrent one; "
            remedy += "an LSTM encoder-decoder learns by bertsmith finetune"
        case "decoder", _:
            fact = "the network is not causal, and would see the tokens that it has to predict"
            remedy = "Use 'masked_lm', or a member such as gpt2"
        case _, "decoder":
            fact = "the network is causal, and masked tokens are predicted from both sides"
            remedy = "Use 'causal_lm', or a member such as bert-base"
        case "encoder_decoder", _:
            fact = "the network has no decoder to generate the targets"
            remedy = "Use 'masked_lm', or a member such as t5-base"
        case _:
            fact = "the network has a decoder, which would learn nothing"
            remedy = "Use 'span_corruption', or a member such as bert-base"
    raise RecipeError("objective.kind", fact, remedy)


def packed_tokens(packed: PackedBatch, ids: Int32[np.ndarray, "T"] | None = None) -> Tokens:
    """Packed text as the tokens of a batch, with corrupted ids if they are given."""
    return Tokens(
        ids=torch.from_numpy(packed.ids if ids is None else ids),
        bounds=torch.from_numpy(packed.bounds),
        positions=torch.from_numpy(packed.positions),
        max_length=packed.max_length,
    )


def count_tokens(packed: PackedBatch) -> dict[str, int]:
    """The tokens of a batch, and the sum of squared lengths (attended positions), for measuring speed."""
    lengths = np.diff(packed.bounds[: packed.real_sequences + 1]).astype(np.int64)
    return {"tokens": packed.real_tokens, "squares": int((lengths * lengths).sum())}


@dataclass(frozen=True)
class Sums:
    """Totals of a term over the batches of a validation, as plain numbers."""

    total: float = 0.0
    correct: int | None = 0  # None: the term does not tell
    count: int = 0
    weight: float = 1.0
    ratios: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # further rates by name: a count, and its total

    def plus(self, term: Term, count: int) -> "Sums":
        correct = None if term.correct is None or self.correct is None else self.correct + int(term.correct)
        ratios = {}
        for name, (part, whole) in (term.ratios or {}).items():
            earlier_part, earlier_whole = self.ratios.get(name, (0, 0))
            ratios[name] = (earlier_part + int(part), earlier_whole + int(whole))
        return Sums(self.total + float(term.total), correct, self.count + count, term.weight, ratios)
