"""Attention of an LSTM decoder: dot-product attention, bilinear attention, or additive attention by an MLP.

    dot       the dot product of query and key. Luong et al. 2015, section 3.1
    bilinear  the product with a matrix between them; "general" in the same paper
    mlp       additive attention, by a network of one hidden layer. Bahdanau et al. 2015, section 3.1

A softmax over the words of the source text turns the scores into weights.
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
    """The encoded source texts, a row each: keys, values and mask, computed once for all steps of the decoder."""

    keys: Float[Tensor, "B M _"]
    values: Float[Tensor, "B M K"]
    mask: Float[Tensor, "B 1 M"]  # 0 for words of the text, minus infinity for padding

    def repeat_interleave(self, repeats: int) -> "Source":
        """Every text `repeats` times, one after the other."""
        keys, values, mask = (part.repeat_interleave(repeats, 0) for part in (self.keys, self.values, self.mask))
        return replace(self, keys=keys, values=values, mask=mask)


class SourceAttention(nn.Module, ABC):
    """Attention over a source text: a weighted mean of its vectors for each query."""

    @abstractmethod
    def keys(self, memory: Float[Tensor, "T K"]) -> Float[Tensor, "T _"]:
        """The keys, computed once for each word of the source."""

    @abstractmethod
    def scores(self, query: Float[Tensor, "B L K"], source: Source) -> Float[Tensor, "B L M"]:
        """The score of each word for each query; minus infinity for padding."""

    def make_source(self, memory: Float[Tensor, "T K"], rows: PaddedRows) -> Source:
        """The source of a batch of texts, in autocast's precision, to which each step would otherwise cast it."""
        device, real = memory.device.type, rows.mask[:, None]
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else memory.dtype
        mask = torch.zeros(real.shape, dtype=dtype, device=real.device).masked_fill(~real, -torch.inf)
        return Source(self.keys(memory).to(dtype)[rows.tokens], memory.to(dtype)[rows.tokens], mask)

    def forward(
        self, query: Float[Tensor, "B L K"], source: Source
    ) -> tuple[Float[Tensor, "B L K"], Float[Tensor, "B L M"]]:
        """The context vectors, and the attention weights over the words of the source."""
        weights = self.scores(query, source).softmax(-1)
        return torch.bmm(weights.to(source.values.dtype), source.values), weights


class DotAttention(SourceAttention):
    """Dot-product attention: score = query . key. No parameters."""

    def keys(self, memory: Float[Tensor, "T K"]) -> Float[Tensor, "T _"]:
        return memory

    def scores(self, query: Float[Tensor, "B L K"], source: Source) -> Float[Tensor, "B L M"]:
        return _products(query, source)


class BilinearAttention(SourceAttention):
    """Bilinear attention: score = query . W key."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width, bias=False)

    def keys(self, memory: Float[Tensor, "T K"]) -> Float[Tensor, "T _"]:
        projected: Tensor = self.projection(memory)
        return projected

    def scores(self, query: Float[Tensor, "B L K"], source: Source) -> Float[Tensor, "B L M"]:
        return _products(query, source)


class AdditiveAttention(SourceAttention):
    """Additive attention: score = v . tanh(W query + U key)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key_projection = nn.Linear(width, width, bias=False)
        self.query_projection = nn.Linear(width, width)
        self.score_projection = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Float[Tensor, "T K"]) -> Float[Tensor, "T _"]:
        projected: Tensor = self.key_projection(memory)
        return projected

    def scores(self, query: Float[Tensor, "B L K"], source: Source) -> Float[Tensor, "B L M"]:
        hidden = self.query_projection(query)[:, :, None] + source.keys[:, None]  # B L M K
        scores: Tensor = self.score_projection(hidden.tanh())[..., 0] + source.mask
        return scores


def make_attention(scoring: Scoring, width: int) -> SourceAttention:
    """The attention with this scoring function."""
    match scoring:
        case "dot":
            return DotAttention()
        case "bilinear":
            return BilinearAttention(width)
        case "mlp":
            return AdditiveAttention(width)


def _products(query: Float[Tensor, "B L K"], source: Source) -> Float[Tensor, "B L M"]:
    return torch.baddbmm(source.mask, query, source.keys.mT)
