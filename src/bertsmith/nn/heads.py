"""Heads: small networks on the trunk that turn vectors into guesses. Devlin et al. 2018, section 3.1."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.nn.activations import ACTIVATIONS, Activation, gelu
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.kernels import linear_cross_entropy_cpu
from bertsmith.nn.layout import kernels_unavailable

PoolerActivation = Literal["tanh", "gelu", "relu"]

POOLER_ACTIVATIONS: dict[PoolerActivation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": gelu,
    "relu": torch.relu,
}
ALIGNMENT = 64  # words that a vocabulary is filled up to a multiple of, inside a step


class Transform(nn.Module):
    """One more layer, bent and normed, between the trunk and what reads it; it may make vectors narrower."""

    def __init__(
        self, width: int, activation: Activation, norm_eps: float, biases: bool = True, output_width: int | None = None
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width, output_width or width, biases)
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(output_width or width, norm_eps, bias=biases)

    def forward(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        normed: Tensor = self.norm(self.activation(self.dense(hidden)))
        return normed


class MaskedLMHead(Transform):
    """Scores of every word at the chosen places: a small transform, then the embedding read backwards."""

    def __init__(
        self,
        width: int,
        vocabulary: int,
        activation: Activation,
        norm_eps: float,
        biases: bool = True,
        embedding_width: int | None = None,  # width of the embedding, where it is not the network's
    ) -> None:
        super().__init__(width, activation, norm_eps, biases, embedding_width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(  # type: ignore[override]
        self, hidden: Float[Tensor, "N D"], table: Float[Tensor, "V E"]
    ) -> Float[Tensor, "N V"]:
        """`table` is the trunk's embedding: one weight for reading words and for guessing them."""
        bias: Tensor = self.bias
        if self.training and hidden.is_cuda:
            table, bias = pad_vocabulary(table, bias)
        return F.linear(self.transform(hidden), table, bias)

    def loss(
        self, hidden: Float[Tensor, "N D"], table: Float[Tensor, "V E"], targets: Int[Tensor, "N"]
    ) -> Float[Tensor, ""]:
        """The sum of what the true words cost, where `some_at_a_time` says that no scores need be kept."""
        return chunked_cross_entropy(self.transform(hidden), table, self.bias, targets)

    def transform(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """What is compared with the table, before it is."""
        return super().forward(hidden)


def can_chunk_loss(hidden: Float[Tensor, "N D"], table: Float[Tensor, "V E"]) -> bool:
    """Whether some scores can be taken after the others: on a CPU, and as with attention in compiled steps on a GPU."""
    half = hidden.is_cuda and hidden.dtype == table.dtype == torch.bfloat16
    return linear_cross_entropy_cpu.available(hidden, table) or (
        half and torch.compiler.is_compiling() and kernels_unavailable(hidden.device) is None
    )


def chunked_cross_entropy(
    vectors: Float[Tensor, "N E"],
    table: Float[Tensor, "V E"],
    bias: Float[Tensor, "V"] | None,
    targets: Int[Tensor, "N"],
) -> Float[Tensor, ""]:
    """The sum of what the true words cost, with never all scores there at once."""
    if vectors.device.type == "cpu":
        return linear_cross_entropy_cpu.linear_cross_entropy(vectors, table, bias, targets)
    from bertsmith.nn.kernels.linear_cross_entropy import linear_cross_entropy  # needs Triton

    return linear_cross_entropy(
        vectors, *pad_vocabulary(table, table.new_zeros(len(table)) if bias is None else bias), targets
    )


def pad_vocabulary(
    table: Float[Tensor, "V D"], bias: Float[Tensor, "V"]
) -> tuple[Float[Tensor, "W D"], Float[Tensor, "W"]]:
    """A table filled up to a multiple, for which a GPU has faster products; what is no word is never likely."""
    spare = -len(table) % ALIGNMENT
    return F.pad(table, (0, 0, 0, spare)), F.pad(bias, (0, spare), value=-torch.inf)


class Pooler(nn.Module):
    """What stands for a whole sequence: the vector of its first token, through one more layer."""

    def __init__(self, width: int, activation: PoolerActivation = "tanh") -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = POOLER_ACTIVATIONS[activation]

    def forward(self, first_hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        return self.activation(self.dense(first_hidden))


class SentencePairHead(nn.Module):
    """Does the second text follow the first? Scores of 0, it does, and 1, it is a random one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 2)

    def forward(self, pooled: Float[Tensor, "B D"]) -> Float[Tensor, "B 2"]:
        scores: Tensor = self.dense(pooled)
        return scores


class DiscriminatorHead(nn.Module):
    """Was this token replaced by another? A score for each, above nought if it was. Clark et al. 2020, section 2."""

    def __init__(self, width: int, activation: Activation) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = ACTIVATIONS[activation]
        self.output = nn.Linear(width, 1)

    def forward(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
        scores: Tensor = self.output(self.activation(self.dense(hidden)))
        return scores[:, 0]


class Classifier(nn.Module):
    """Scores of a few classes, for a pooled vector or for every token. Devlin et al. 2018, section 4."""

    def __init__(self, width: int, classes: int, dropout: float, bias: bool = True) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(width, classes, bias)

    def forward(self, vectors: Float[Tensor, "*N D"]) -> Float[Tensor, "*N C"]:
        scores: Tensor = self.dense(self.dropout(vectors))
        return scores


class SpanHead(nn.Module):
    """Of every token, how much it looks like the beginning and the end of the answer. Section 4.2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 2)

    def forward(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T 2"]:
        scores: Tensor = self.dense(hidden)
        return scores
