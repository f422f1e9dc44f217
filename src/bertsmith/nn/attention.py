"""Self-attention and cross-attention: each token takes a weighted mean of other tokens. Vaswani et al. 2017.

One formula, softmax(Q K' / sqrt K) V, within each sequence of a flat batch. `Eager` is the formula written out; other
kernels give the same numbers faster, and `kernel_choice.py` says which one is used when:

    varlen.py    Varlen, Short, Long, Biased    a GPU in half precision, sequences of any length end to end
    grouping.py  Dense, Grouped                 sequences of one length; groups of nearly one length
    tiling.py    Tiled                          a CPU without gradients
    padded.py    Padded                         all rows in one rectangle, also with a bias and across two texts
    kv_cache.py  Filling, Cached                generation with a KV cache

A kernel is made once for a batch, and every layer calls it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bertsmith.nn.dropout import dropout as apply_dropout
from bertsmith.nn.window import FULL, Window


class Sequences(NamedTuple):
    """Where the sequences of a flat batch begin and end."""

    bounds: Int[Tensor, "ends"]  # int32: the start of each sequence, then the end
    longest: int
    tokens: int

    @property
    def lengths(self) -> list[int]:
        """The length of each sequence; reading it may wait for the device."""
        lengths: list[int] = self.bounds.diff().tolist()
        return lengths


@dataclass(eq=False)
class Kernel(ABC):
    """Attention within the sequences of one batch."""

    window: Window = field(default=FULL, kw_only=True)  # a cache's mask has it already

    @abstractmethod
    def attend(
        self,
        query: Float[Tensor, "T H K"],
        key: Float[Tensor, "S H K"],
        value: Float[Tensor, "S H K"],
        dropout: float = 0.0,
    ) -> Float[Tensor, "T H K"]:
        """Attention of all heads; `dropout` applies to the attention weights."""

    def attend_qkv(self, qkv: Float[Tensor, "T 3 H K"], dropout: float = 0.0) -> Float[Tensor, "T H K"]:
        """The same of query, key and value in one tensor: our Triton kernels return its gradient without a copy."""
        query, key, value = qkv.unbind(1)
        return self.attend(query, key, value, dropout)


@dataclass(eq=False)
class Eager(Kernel):
    """The formula, one sequence at a time, on any device: what every other kernel is compared with."""

    query_lengths: list[int]
    key_lengths: list[int]
    bias: Float[Tensor, "H Q S"] | None = None  # relative position bias

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        values = torch.split(value.transpose(0, 1), self.key_lengths, 1)  # H L K
        weights = self.weights(query, key)
        mixed = [apply_dropout(each, dropout) @ part for each, part in zip(weights, values, strict=True)]
        return torch.cat(mixed, 1).transpose(0, 1)

    def weights(self, query: Float[Tensor, "T H K"], key: Float[Tensor, "S H K"]) -> list[Float[Tensor, "H _ _"]]:
        """The attention weights of each sequence: from each query (row) to each key (column)."""
        queries = torch.split(query.transpose(0, 1), self.query_lengths, 1)  # H L K
        keys = torch.split(key.transpose(0, 1), self.key_lengths, 1)
        return [
            attention_weights(part, other, self._mask(part.shape[1], other.shape[1], query.device))
            for part, other in zip(queries, keys, strict=True)
        ]

    def _mask(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        visible = None if self.window.full else self.window.mask(queries, keys, device)
        if self.bias is None:
            return visible
        bias = self.bias[:, :queries, :keys]
        return bias if visible is None else torch.where(visible, bias, -torch.inf)


def attention_weights(
    query: Float[Tensor, "*B Q K"],
    key: Float[Tensor, "*B S K"],
    mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "*B Q S"]:
    """softmax(Q K' / sqrt K); `mask` is true where a query may attend to a key, or is added to the scores."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    weights: Tensor = scores.softmax(-1)
    return weights
