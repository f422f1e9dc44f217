"""What every objective is: a network with heads and a loss; and what those without labels are besides."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Batch
from bertsmith.data.packing.pairs import Pairs
from bertsmith.errors import RecipeError
from bertsmith.models.elmo import Elmo
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.networks import Network
from bertsmith.models.transformer import Transformer
from bertsmith.text.tokenizer import Tokenizer


class Term(NamedTuple):
    """One loss, as a sum over its guesses. Whoever knows all the counts divides, once."""

    total: Float[Tensor, ""]
    correct: Int[Tensor, ""] | None  # how many guesses were right; not counted in training
    weight: float = 1.0  # of its mean in what is learnt; what is told of it is never weighted
    ratios: Mapping[str, tuple[Int[Tensor, ""], Int[Tensor, ""]]] | None = None  # more to tell: how many, of how many


class Objective(nn.Module, ABC):
    """Something to learn: `forward` gives the losses of a batch as sums. All that a trainer knows of it."""

    trunk: Network

    def hidden_matrices(self) -> dict[str, int]:
        """The matrices inside the network's layers by name, and how many each is made of: what Muon may move."""
        return {f"trunk.{name}": count for name, count in self.trunk.matrices().items()}

    @abstractmethod
    def forward(self, batch: Batch) -> dict[str, Term]:
        """The loss terms by name, each summed over the guesses that `batch.counts` counts."""


class Pretraining(Objective):
    """Learning without labels: it makes its own questions out of packed text."""

    Config: ClassVar[Any]
    causal: ClassVar[bool] = False  # whether its networks may look at nothing that is to come
    encoder_decoder: ClassVar[bool] = False  # whether a second network writes while it looks at what the first has read
    stateful: ClassVar[bool] = False  # whether each batch goes on where the one before it ended
    bilm: ClassVar[bool] = False  # whether its networks read from both ends, and neither sees what the other has read

    def __init__(self, trunk: Network, config: Any) -> None:
        super().__init__()
        if self.bilm and not isinstance(trunk, Elmo):
            fact = "the network does not read from both ends apart, and would see the words that it is to guess"
            raise RecipeError("objective.kind", fact, "Use another, or a member such as elmo")
        if isinstance(trunk, Elmo) and not self.bilm:
            fact = "the network reads from both ends apart, and is to guess every word from either"
            raise RecipeError("objective.kind", fact, "Use 'bilm', or a member such as bert-base")
        if not (self.bilm or self.stateful or isinstance(trunk, Transformer | EncoderDecoder)):
            fact = "the network is not made of attention"
            remedy = "Use 'recurrent_lm' for a recurrent one; "
            remedy += "one that writes about what it reads learns by bertsmith finetune"
            raise RecipeError("objective.kind", fact, remedy)
        if self.causal and not trunk.config.causal:
            fact = "the network looks ahead, and would see the tokens that it is to guess"
            raise RecipeError("objective.kind", fact, "Use 'masked_lm', or a member such as gpt2")
        if trunk.config.causal and not self.causal:
            fact = "the network looks only back, and what is hidden is guessed from both sides"
            raise RecipeError("objective.kind", fact, "Use 'causal_lm', or a member such as bert-base")
        if self.encoder_decoder and not trunk.config.decoder_layers:
            fact = "the network has no second network to write what is asked for"
            raise RecipeError("objective.kind", fact, "Use 'masked_lm', or a member such as t5-base")
        if trunk.config.decoder_layers and not self.encoder_decoder:
            fact = "the network has a second network, which would learn nothing"
            raise RecipeError("objective.kind", fact, "Use 'span_corruption', or a member such as bert-base")
        self.trunk, self.config = trunk, config

    def bind(self, tokenizer: Tokenizer) -> None:
        """Be told what must be known of the vocabulary before anything is learnt."""

    @property
    @abstractmethod
    def pairs(self) -> Pairs:
        """How the packer is to pair texts."""

    @abstractmethod
    def collator(self, tokenizer: Tokenizer) -> Callable[[Any], Batch]:
        """A pure function from packed text, or a stretch of streams, to a batch, small enough to hand to any worker."""

    @property
    @abstractmethod
    def prediction_share(self) -> float:
        """The share of a batch's positions that are given to the vocabulary, for counting memory."""

    @abstractmethod
    def flops(self, attended: float) -> float:
        """Floating-point operations that training takes for one token, as `TransformerConfig.flops` counts them."""

    @property
    @abstractmethod
    def exports(self) -> "dict[str, Pretraining]":
        """The model folders that a run leaves, by name, and what each holds. The last one guesses words."""


@dataclass(frozen=True)
class Sums:
    """Plain totals of a term over many batches, for validation."""

    total: float = 0.0
    correct: int = 0
    count: int = 0
    weight: float = 1.0
    ratios: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # how many, of how many

    def plus(self, term: Term, count: int) -> "Sums":
        right = 0 if term.correct is None else int(term.correct)
        shares = {}
        for name, (some, every) in (term.ratios or {}).items():
            before, out_of = self.ratios.get(name, (0, 0))
            shares[name] = (before + int(some), out_of + int(every))
        return Sums(self.total + float(term.total), self.correct + right, self.count + count, term.weight, shares)
