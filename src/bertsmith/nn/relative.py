"""Relative position bias: a learned number for the distance of two tokens is added to their score. T5."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class RelativePositionBias(nn.Module):
    """T5's bias: a number for each head and bucket; short distances have a bucket each, longer ones share one.

    Half of the buckets are for keys after the query, unless the network is causal. All layers share the table. Raffel
    et al. 2020, section 2.1.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int, *, causal: bool) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.causal = buckets, max_distance, causal
        self.weight = nn.Parameter(torch.empty(buckets, heads).normal_(std=0.02))

    def forward(self, relative_position: Int[Tensor, "*N"]) -> Float[Tensor, "*N H"]:
        """The bias by the position of the key less that of the query."""
        bucket = relative_position_bucket(relative_position, self.buckets, self.max_distance, causal=self.causal)
        return F.embedding(bucket, self.weight)

    def compute_bias(self, queries: int, keys: int) -> Float[Tensor, "H Q K"]:
        """The bias of all queries and keys of a sequence, counted from the same first token."""
        # Each distance is looked up once; a row of the matrix is a slice of them.
        device = self.weight.device
        by_distance: Tensor = self(torch.arange(1 - queries, keys, device=device)).mT  # H Q+K-1
        rows = torch.arange(queries - 1, -1, -1, device=device)[:, None] + torch.arange(keys, device=device)
        return by_distance[:, rows]


def relative_position_bucket(
    relative_position: Int[Tensor, "*N"], buckets: int, max_distance: int, *, causal: bool
) -> Int[Tensor, "*N"]:
    """The bucket of a distance. Half of each side's are exact, the others logarithmic up to `max_distance`."""
    if causal:
        distance, first = (-relative_position).clamp(min=0), torch.zeros_like(relative_position)
    else:
        buckets //= 2
        distance, first = relative_position.abs(), torch.where(relative_position > 0, buckets, 0)
    exact = buckets // 2
    # In float32 and in the order of the published code: rounding must not move the edge of a bucket.
    logarithm = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    far = (exact + logarithm.to(distance.dtype)).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, far)
