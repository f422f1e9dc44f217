"""Static word vectors as a network: an embedding table with one vector for each word, in any context."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models.counts import Counted


@dataclass(frozen=True, kw_only=True)
class StaticConfig(Counted):
    """The size of a table of word vectors."""

    vocabulary: int
    width: int
    max_length: int = 512  # words of the longest sequence
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")

    architecture: ClassVar[Literal["static"]] = "static"
    causal = False
    layers = distinct = decoder_layers = segments = position_offset = 0

    @property
    def table(self) -> int:
        return self.width

    @property
    def output_products(self) -> int:
        return self.vocabulary * self.width


class Static(nn.Module):
    """An embedding table as a network without layers, for tasks on frozen features. Mikolov et al. 2013.

    Its vectors come from a file in word2vec's format or from a run of `bertsmith word2vec`, and are not trained.
    """

    def __init__(self, config: StaticConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)

    def forward(self, tokens: Tokens) -> Float[Tensor, "T D"]:
        vectors: Tensor = self.embedding(tokens.ids)
        return vectors

    def hidden_states(self, tokens: Tokens) -> list[Float[Tensor, "T D"]]:
        """The word vectors, as the only layer."""
        return [self(tokens)]

    def matrices(self) -> dict[str, int]:
        return {}
