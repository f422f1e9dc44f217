"""Pooling: one vector for each sequence. An empty sequence has one, too, which means nothing."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Pooling = Literal["mean", "first", "last"]


def first_positions(bounds: Int[Tensor, "..."], tokens: int) -> Int[Tensor, "B"]:
    """The position of each sequence's first token, [CLS] in BERT."""
    return bounds[:-1].clamp(max=tokens - 1)


def last_positions(bounds: Int[Tensor, "..."]) -> Int[Tensor, "B"]:
    """The position of each sequence's last token, the only one in GPT that has seen all the others."""
    return (bounds[1:] - 1).clamp(min=0)


def first(hidden: Float[Tensor, "T D"], bounds: Int[Tensor, "..."]) -> Float[Tensor, "B D"]:
    """The vector of each sequence's first token."""
    return hidden.index_select(0, first_positions(bounds, hidden.shape[0]))


def last(hidden: Float[Tensor, "T D"], bounds: Int[Tensor, "..."]) -> Float[Tensor, "B D"]:
    """The vector of each sequence's last token."""
    return hidden.index_select(0, last_positions(bounds))


def mean(hidden: Float[Tensor, "T D"], bounds: Int[Tensor, "..."]) -> Float[Tensor, "B D"]:
    """The mean of each sequence's vectors, summed in float32; 0 for an empty sequence."""
    positions = torch.arange(hidden.shape[0], device=hidden.device, dtype=bounds.dtype)
    sequence_ids = torch.searchsorted(bounds[1:], positions, right=True)  # T: the sequence each token is in
    sums = hidden.new_zeros((bounds.shape[0] - 1, hidden.shape[1]), dtype=torch.float32)
    sums = sums.index_add(0, sequence_ids, hidden.float())
    return (sums / bounds.diff().clamp(min=1)[:, None]).to(hidden.dtype)


def maximum(hidden: Float[Tensor, "T D"], bounds: Int[Tensor, "..."]) -> Float[Tensor, "B D"]:
    """The element-wise maximum of each sequence's vectors; 0 for an empty sequence."""
    positions = torch.arange(hidden.shape[0], device=hidden.device, dtype=bounds.dtype)
    sequence_ids = torch.searchsorted(bounds[1:], positions, right=True)  # T: the sequence each token is in
    empty = hidden.new_zeros((bounds.shape[0] - 1, hidden.shape[1]))
    return empty.scatter_reduce(0, sequence_ids[:, None].expand_as(hidden), hidden, "amax", include_self=False)


POOLS = {"mean": mean, "first": first, "last": last}
