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
from bertsmith.nn.window import Window


@dataclass(frozen=True)
class PaddedRows:
    """Sequences as rows of a rectangle, and the way there and back."""

    tokens: Int[Tensor, "B L"]  # the token that stands in each slot
    mask: Bool[Tensor, "B L"]  # whether it belongs there
    slots: Int[Tensor, "T"]  # for each token its slot

    @classmethod
    def of(cls, bounds: Int[Tensor, "ends"], longest: int, count: int) -> "PaddedRows":
        """Of `count` tokens, in sequences that are no longer than `longest`; some may be empty."""
        bounds = bounds.long()
        places, all_tokens = (torch.arange(size, device=bounds.device) for size in (longest, count))
        tokens = bounds[:-1, None] + places
        # Something must be looked at even in an empty row: nothing at all would be no number.
        real = (tokens < bounds[1:, None]) | (places == 0)
        rows = torch.searchsorted(bounds, all_tokens, right=True) - 1  # of all bounds: a compiler may refuse a slice
        return cls(tokens.clamp(max=count - 1), real, rows * longest + all_tokens - bounds[rows])

    def pad(self, part: Float[Tensor, "T H K"]) -> Float[Tensor, "B H L K"]:
        laid: Tensor = _Pad.apply(part, self.tokens, self.slots)  # type: ignore[no-untyped-call]
        return laid.transpose(1, 2)

    def unpad(self, part: Float[Tensor, "B H L K"]) -> Float[Tensor, "T H K"]:
        taken: Tensor = _Unpad.apply(part.transpose(1, 2), self.slots)  # type: ignore[no-untyped-call]
        return taken


class _Pad(torch.autograd.Function):
    """Tokens into slots. What does not belong into its slot is looked at by nobody whose answer is taken, and so has no
    slope: each token's gradient is its own slot's alone, and need not be added up, which half precision does slowly."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, tokens: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        return part[tokens]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        [slots] = ctx.saved_tensors
        return grad_output.flatten(0, 1).index_select(0, slots), None, None


class _Unpad(torch.autograd.Function):
    """And back: a slot that no token was taken from has no slope."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.shape = part.shape
        return part.flatten(0, 1).index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        [slots] = ctx.saved_tensors
        laid = grad_output.new_zeros(ctx.shape).flatten(0, 1).index_copy(0, slots, grad_output)
        return laid.view(ctx.shape), None


def build_mask(queries: PaddedRows, keys: PaddedRows, window: Window) -> Bool[Tensor, "B 1 _ M"]:
    """Which keys the queries of each row may look at."""
    real = keys.mask[:, None, None]
    if window.full:
        return real
    size, length = queries.mask.shape[1], keys.mask.shape[1]
    seen = window.mask(size, length, real.device)
    return real & (seen | ~queries.mask[:, None, :, None])  # what is padding looks at all, and so finds something


def attend_padded(
    query: Float[Tensor, "T H K"],
    key: Float[Tensor, "S H K"],
    value: Float[Tensor, "S H K"],
    queries: PaddedRows,
    keys: PaddedRows,
    mask: Bool[Tensor, "B 1 _ M"] | Float[Tensor, "B H L M"],
    dropout: float,
) -> Float[Tensor, "T H K"]:
    """What each query takes from the keys of its row; `looks` says which it sees, or what is added to their scores."""
    query, key, value = queries.pad(query), keys.pad(key), keys.pad(value)
    if dropout and query.device.type == "cpu":  # whose fused kernel knows no dropout
        scores = (query * query.shape[-1] ** -0.5) @ key.mT
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        attended = forget(scores.softmax(-1), dropout) @ value
    else:
        attended = F.scaled_dot_product_attention(query, key, value, mask, dropout)
    return queries.unpad(attended)
