"""What every objective is: a network with heads and a loss; and what those without labels are besides."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Batch
from bertsmith.data.pack import Packed
from bertsmith.data.plan import Pairs
from bertsmith.models.transformer import Transformer
from bertsmith.text.tokenizer import Tokenizer


class Term(NamedTuple):
    """One loss, as a sum over its guesses. Whoever knows all the counts divides, once."""

    total: Float[Tensor, ""]
    right: Int[Tensor, ""] | None  # how many guesses were right; not counted in training


class Objective(nn.Module, ABC):
    """Something to learn: `forward` gives the losses of a batch as sums. All that a trainer knows of it."""

    trunk: Transformer

    def matrices(self) -> dict[str, int]:
        """The matrices inside the network's layers by name, and how many each is made of: what Muon may move."""
        return {f"trunk.{name}": count for name, count in self.trunk.matrices().items()}

    @abstractmethod
    def forward(self, batch: Batch) -> dict[str, Term]:
        """The loss terms by name, each summed over the guesses that `batch.counts` counts."""


class Unlabelled(Objective):
    """Learning without labels: it makes its own questions out of packed text."""

    Config: ClassVar[Any]

    @property
    @abstractmethod
    def pairs(self) -> Pairs:
        """How the packer is to pair texts."""

    @abstractmethod
    def collator(self, tokenizer: Tokenizer) -> Callable[[Packed], Batch]:
        """A pure function from packed text to a batch, small enough to hand to any worker."""

    @property
    @abstractmethod
    def guesses(self) -> float:
        """The share of a batch's positions that are given to the vocabulary, for counting FLOPs."""


@dataclass(frozen=True)
class Sums:
    """Plain totals of a term over many batches, for validation."""

    total: float = 0.0
    right: int = 0
    count: int = 0

    def plus(self, term: Term, count: int) -> "Sums":
        right = 0 if term.right is None else int(term.right)
        return Sums(self.total + float(term.total), self.right + right, self.count + count)
