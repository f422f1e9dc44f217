"""Static vectors: a table with one vector for each word, whatever stands beside it. Word2vec's, as others read them."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from bertsmith.data.batch import Tokens


@dataclass(frozen=True, kw_only=True)
class StaticConfig:
    """How many words there are, and how many numbers stand for each."""

    vocabulary: int
    width: int
    max_length: int = 512  # most words in a sequence
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")

    causal = False
    layers = distinct = decoder_layers = segments = position_offset = 0

    @property
    def table(self) -> int:
        return self.width

    @property
    def parameter_count(self) -> int:
        return self.vocabulary * self.width

    def flops(self, mean_length: int | float, prediction_share: float) -> float:
        """To look a word up takes none."""
        return 6 * prediction_share * self.vocabulary * self.width


class Static(nn.Module):
    """Word vectors as a network that has no layers, so that whatever reads features can read them. Mikolov et al. 2013.

    It learns nothing more: its vectors are those of a file in word2vec's format, or of a run of `bertsmith word2vec`.
    """

    def __init__(self, config: StaticConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)

    def forward(self, tokens: Tokens) -> Float[Tensor, "T D"]:
        vectors: Tensor = self.embedding(tokens.ids)
        return vectors

    def hidden_states(self, tokens: Tokens) -> list[Float[Tensor, "T D"]]:
        """The one vector of each word."""
        return [self(tokens)]

    def matrices(self) -> dict[str, int]:
        return {}
