"""Padded attention: sequences as the rows of one rectangle whose shape is known beforehand, and no bound is read.

It wastes what shorter sequences leave free, but takes what no other kernel does: numbers to be added to the scores, as
relative positions are, and keys of another text than the queries'.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bertsmith.nn.dropout import dropout as forget
from bertsmith.nn.reach import Reach


@dataclass(frozen=True)
class Rows:
    """Sequences as rows of a rectangle, and the way there and back."""

    tokens: Int[Tensor, "B L"]  # the token that stands in each slot
    real: Bool[Tensor, "B L"]  # whether it belongs there
    slots: Int[Tensor, "T"]  # for each token its slot

    @classmethod
    def of(cls, bounds: Int[Tensor, "ends"], longest: int, count: int) -> "Rows":
        """Of `count` tokens, in sequences that are no longer than `longest`; some may be empty."""
        bounds = bounds.long()
        places, all_tokens = (torch.arange(size, device=bounds.device) for size in (longest, count))
        tokens = bounds[:-1, None] + places
        # Something must be looked at even in an empty row: nothing at all would be no number.
        real = (tokens < bounds[1:, None]) | (places == 0)
        rows = torch.searchsorted(bounds, all_tokens, right=True) - 1  # of all bounds: a compiler may refuse a slice
        return cls(tokens.clamp(max=count - 1), real, rows * longest + all_tokens - bounds[rows])

    def lay(self, part: Float[Tensor, "T H K"]) -> Float[Tensor, "B H L K"]:
        laid: Tensor = _Lay.apply(part, self.tokens, self.slots)  # type: ignore[no-untyped-call]
        return laid.transpose(1, 2)

    def take(self, part: Float[Tensor, "B H L K"]) -> Float[Tensor, "T H K"]:
        taken: Tensor = _Take.apply(part.transpose(1, 2), self.slots)  # type: ignore[no-untyped-call]
        return taken


class _Lay(torch.autograd.Function):
    """Tokens into slots. What does not belong into its slot is looked at by nobody whose answer is taken, and so has no
    slope: each token's gradient is its own slot's alone, and need not be added up, which half precision does slowly."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, tokens: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        return part[tokens]

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None, None]:
        [slots] = ctx.saved_tensors
        return above.flatten(0, 1).index_select(0, slots), None, None


class _Take(torch.autograd.Function):
    """And back: a slot that no token was taken from has no slope."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.shape = part.shape
        return part.flatten(0, 1).index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None]:
        [slots] = ctx.saved_tensors
        laid = above.new_zeros(ctx.shape).flatten(0, 1).index_copy(0, slots, above)
        return laid.view(ctx.shape), None


def allowed(queries: Rows, keys: Rows, reach: Reach) -> Bool[Tensor, "B 1 _ M"]:
    """Which keys the queries of each row may look at."""
    real = keys.real[:, None, None]
    if reach.whole:
        return real
    size, length = queries.real.shape[1], keys.real.shape[1]
    seen = reach.seen(size, length, real.device)
    return real & (seen | ~queries.real[:, None, :, None])  # what is padding looks at all, and so finds something


def padded(
    query: Float[Tensor, "T H K"],
    key: Float[Tensor, "S H K"],
    value: Float[Tensor, "S H K"],
    queries: Rows,
    keys: Rows,
    looks: Bool[Tensor, "B 1 _ M"] | Float[Tensor, "B H L M"],
    dropout: float,
) -> Float[Tensor, "T H K"]:
    """What each query takes from the keys of its row; `looks` says which it sees, or what is added to their scores."""
    query, key, value = queries.lay(query), keys.lay(key), keys.lay(value)
    if dropout and query.device.type == "cpu":  # whose fused kernel knows no dropout
        scores = (query * query.shape[-1] ** -0.5) @ key.mT
        scores = scores.masked_fill(~looks, -torch.inf) if looks.dtype == torch.bool else scores + looks
        attended = forget(scores.softmax(-1), dropout) @ value
    else:
        attended = F.scaled_dot_product_attention(query, key, value, looks, dropout)
    return queries.take(attended)
