"""Relative position bias: attention scores get a number for the distance of two tokens. Raffel et al. 2020, 2.1."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class RelativePositionBias(nn.Module):
    """A number for each head and each bucket of distances: near ones have a bucket each, farther ones share them.

    Half of the buckets are for tokens to come, unless a network looks only back. One table serves all layers.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int, *, causal: bool) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.causal = buckets, max_distance, causal
        self.weight = nn.Parameter(torch.empty(buckets, heads).normal_(std=0.02))

    def forward(self, relative_position: Int[Tensor, "*N"]) -> Float[Tensor, "*N H"]:
        """What to add to the score of a key so many tokens ahead of its query; behind it, less than nought."""
        which = relative_position_bucket(relative_position, self.buckets, self.max_distance, causal=self.causal)
        return F.embedding(which, self.weight)

    def compute_bias(self, queries: int, keys: int) -> Float[Tensor, "H Q K"]:
        """The same for the first queries and keys of every sequence, counted from the same token."""
        # Each distance is looked up once; a row of the square is a stretch of them.
        device = self.weight.device
        line: Tensor = self(torch.arange(1 - queries, keys, device=device)).mT  # H Q+K-1
        rows = torch.arange(queries - 1, -1, -1, device=device)[:, None] + torch.arange(keys, device=device)
        return line[:, rows]


def relative_position_bucket(
    relative_position: Int[Tensor, "*N"], buckets: int, max_distance: int, *, causal: bool
) -> Int[Tensor, "*N"]:
    """The bucket of a distance. Half of a side's are exact, and the others grow by powers up to the farthest."""
    if causal:
        behind, first = (-relative_position).clamp(min=0), torch.zeros_like(relative_position)
    else:
        buckets //= 2
        behind, first = relative_position.abs(), torch.where(relative_position > 0, buckets, 0)
    exact = buckets // 2
    # In full precision, in the order of the published code: a bucket's edge must not move by rounding.
    powers = torch.log(behind.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    far = (exact + powers.to(behind.dtype)).clamp(max=buckets - 1)
    return first + torch.where(behind < exact, behind, far)
