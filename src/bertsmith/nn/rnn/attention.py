"""Attention of an LSTM decoder: dot-product attention, bilinear attention, or additive attention by an MLP.

    dot       the product of both vectors as they are. Luong et al. 2015, section 3.1
    bilinear  the product with a matrix between them; "general" in the same paper
    mlp       a network of one hidden layer looks at both. Bahdanau et al. 2015, section 3.1

Whatever the way, the scores of a text's own words become weights that sum to one.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertsmith.nn.padded import PaddedRows

Scoring = Literal["dot", "bilinear", "mlp"]


@dataclass(frozen=True)
class Source:
    """Texts that were read, a row each, made ready once for all that will be written about them."""

    keys: Float[Tensor, "B M _"]  # what scores are made of
    values: Float[Tensor, "B M K"]  # what is taken
    mask: Float[Tensor, "B 1 M"]  # nought for a text's own words, else minus infinity

    def repeat_interleave(self, repeats: int) -> "Source":
        """The same for every text so many times, one behind the other."""
        keys, values, mask = (part.repeat_interleave(repeats, 0) for part in (self.keys, self.values, self.mask))
        return replace(self, keys=keys, values=values, mask=mask)


class SourceAttention(nn.Module, ABC):
    """Attention over a text that was read: a weighted mean of its vectors for each vector that asks."""

    @abstractmethod
    def keys(self, memory: Float[Tensor, "T K"]) -> Float[Tensor, "T _"]:
        """What scores are made of, computed once for each word that was read."""

    @abstractmethod
    def scores(self, query: Float[Tensor, "B L K"], source: Source) -> Float[Tensor, "B L M"]:
        """How well each word goes with each vector that asks; minus infinity for what is no word of the text."""

    def make_source(self, memory: Float[Tensor, "T K"], rows: PaddedRows) -> Source:
        """Texts made ready to be looked at, in the precision of products, which else would be theirs at each look."""
        device, real = memory.device.type, rows.mask[:, None]
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else memory.dtype
        mask = torch.zeros(real.shape, dtype=dtype, device=real.device).masked_fill(~real, -torch.inf)
        return Source(self.keys(memory).to(dtype)[rows.tokens], memory.to(dtype)[rows.tokens], mask)

    def forward(
        self, query: Float[Tensor, "B L K"], source: Source
    ) -> tuple[Float[Tensor, "B L K"], Float[Tensor, "B L M"]]:
        """What is taken from the text, and from where: weights that sum to one over its words."""
        weights = self.scores(query, source).softmax(-1)
        return torch.bmm(weights.to(source.values.dtype), source.values), weights


class DotAttention(SourceAttention):
    """The more two vectors point the same way, the better they go together. It has no weights of its own."""

    def keys(self, memory: Float[Tensor, "T K"]) -> Float[Tensor, "T _"]:
        return memory

    def scores(self, query: Float[Tensor, "B L K"], source: Source) -> Float[Tensor, "B L M"]:
        return _products(query, source)


class BilinearAttention(SourceAttention):
    """The same after the words that were read have been turned by a matrix."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width, bias=False)

    def keys(self, memory: Float[Tensor, "T K"]) -> Float[Tensor, "T _"]:
        turned: Tensor = self.projection(memory)
        return turned

    def scores(self, query: Float[Tensor, "B L K"], source: Source) -> Float[Tensor, "B L M"]:
        return _products(query, source)


class AdditiveAttention(SourceAttention):
    """A network of one hidden layer, which can learn to compare in any way."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key_projection = nn.Linear(width, width, bias=False)
        self.query_projection = nn.Linear(width, width)
        self.score_projection = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Float[Tensor, "T K"]) -> Float[Tensor, "T _"]:
        mapped: Tensor = self.key_projection(memory)
        return mapped

    def scores(self, query: Float[Tensor, "B L K"], source: Source) -> Float[Tensor, "B L M"]:
        both = self.query_projection(query)[:, :, None] + source.keys[:, None]  # B L M K
        scores: Tensor = self.score_projection(both.tanh())[..., 0] + source.mask
        return scores


def make_attention(scoring: Scoring, width: int) -> SourceAttention:
    """The way to look that has this name."""
    match scoring:
        case "dot":
            return DotAttention()
        case "bilinear":
            return BilinearAttention(width)
        case "mlp":
            return AdditiveAttention(width)


def _products(query: Float[Tensor, "B L K"], source: Source) -> Float[Tensor, "B L M"]:
    return torch.baddbmm(source.mask, query, source.keys.mT)
