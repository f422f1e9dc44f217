"""Heads: small networks that turn the trunk's hidden vectors into predictions. Devlin et al. 2018, section 3.1."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.nn.activations import ACTIVATIONS, Activation, gelu
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.kernels import linear_cross_entropy_cpu
from bertsmith.nn.kernels.availability import kernels_unavailable

PoolerActivation = Literal["tanh", "gelu", "relu"]

POOLER_ACTIVATIONS: dict[PoolerActivation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": gelu,
    "relu": torch.relu,
}
ALIGNMENT = 64  # vocabularies are padded to a multiple inside a step on a GPU


class Transform(nn.Module):
    """Dense layer, activation and LayerNorm between the trunk and a head; it may change the width."""

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
    """The masked LM head: a transform, then logits over the vocabulary by the tied embedding table."""

    def __init__(
        self,
        width: int,
        vocabulary: int,
        activation: Activation,
        norm_eps: float,
        biases: bool = True,
        embedding_width: int | None = None,  # of a factorised embedding
    ) -> None:
        super().__init__(width, activation, norm_eps, biases, embedding_width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(  # type: ignore[override]
        self, hidden: Float[Tensor, "N D"], table: Float[Tensor, "V E"]
    ) -> Float[Tensor, "N V"]:
        """`table` is the trunk's embedding: input and output share it (weight tying)."""
        bias: Tensor = self.bias
        if self.training and hidden.is_cuda:
            table, bias = pad_vocabulary(table, bias)
        return F.linear(self.transform(hidden), table, bias)

    def loss(
        self, hidden: Float[Tensor, "N D"], table: Float[Tensor, "V E"], targets: Int[Tensor, "N"]
    ) -> Float[Tensor, ""]:
        """The summed cross-entropy without the logits of all positions in memory; see `can_chunk_loss`."""
        return chunked_cross_entropy(self.transform(hidden), table, self.bias, targets)

    def transform(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """The vectors that are multiplied with the table."""
        return super().forward(hidden)


def can_chunk_loss(hidden: Float[Tensor, "N D"], table: Float[Tensor, "V E"]) -> bool:
    """Whether the loss can be computed in chunks: in training on a CPU, and in compiled bfloat16 steps on a GPU."""
    bfloat16 = hidden.is_cuda and hidden.dtype == table.dtype == torch.bfloat16
    return linear_cross_entropy_cpu.available(hidden, table) or (
        bfloat16 and torch.compiler.is_compiling() and kernels_unavailable(hidden.device) is None
    )


def chunked_cross_entropy(
    vectors: Float[Tensor, "N E"],
    table: Float[Tensor, "V E"],
    bias: Float[Tensor, "V"] | None,
    targets: Int[Tensor, "N"],
) -> Float[Tensor, ""]:
    """The summed cross-entropy of a linear layer, in chunks of logits."""
    if vectors.device.type == "cpu":
        return linear_cross_entropy_cpu.linear_cross_entropy(vectors, table, bias, targets)
    from bertsmith.nn.kernels.linear_cross_entropy import linear_cross_entropy  # needs Triton

    return linear_cross_entropy(
        vectors, *pad_vocabulary(table, table.new_zeros(len(table)) if bias is None else bias), targets
    )


def pad_vocabulary(
    table: Float[Tensor, "V D"], bias: Float[Tensor, "V"]
) -> tuple[Float[Tensor, "W D"], Float[Tensor, "W"]]:
    """A table padded to a multiple, for which a GPU has faster products; padding has a logit of minus infinity."""
    padding = -len(table) % ALIGNMENT
    return F.pad(table, (0, 0, 0, padding)), F.pad(bias, (0, padding), value=-torch.inf)


class Pooler(nn.Module):
    """BERT's pooler: the first token's hidden vector through a dense layer and an activation."""

    def __init__(self, width: int, activation: PoolerActivation = "tanh") -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = POOLER_ACTIVATIONS[activation]

    def forward(self, first_hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        return self.activation(self.dense(first_hidden))


class SentencePairHead(nn.Module):
    """Logits of next-sentence prediction: 0, the second text follows the first; 1, it does not."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 2)

    def forward(self, pooled: Float[Tensor, "B D"]) -> Float[Tensor, "B 2"]:
        logits: Tensor = self.dense(pooled)
        return logits


class DiscriminatorHead(nn.Module):
    """ELECTRA's discriminator: a logit for each token, positive if it was replaced. Clark et al. 2020, section 2."""

    def __init__(self, width: int, activation: Activation) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = ACTIVATIONS[activation]
        self.output = nn.Linear(width, 1)

    def forward(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
        logits: Tensor = self.output(self.activation(self.dense(hidden)))
        return logits[:, 0]


class Classifier(nn.Module):
    """Dropout and a linear layer: class logits for a pooled vector or for each token. Devlin et al. 2018, section 4."""

    def __init__(self, width: int, classes: int, dropout: float, bias: bool = True) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(width, classes, bias)

    def forward(self, vectors: Float[Tensor, "*N D"]) -> Float[Tensor, "*N C"]:
        logits: Tensor = self.dense(self.dropout(vectors))
        return logits


class SpanHead(nn.Module):
    """Logits of each token as start and as end of the answer. Devlin et al. 2018, section 4.2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 2)

    def forward(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T 2"]:
        logits: Tensor = self.dense(hidden)
        return logits
