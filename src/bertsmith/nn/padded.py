"""Padded attention: sequences as the rows of one rectangle, whose shape is known without reading the bounds.

It wastes work on padding, but does what most other kernels do not: relative position bias and cross-attention, on any
device.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bertsmith.nn.dropout import dropout as apply_dropout
from bertsmith.nn.window import Window


@dataclass(frozen=True)
class PaddedRows:
    """Sequences as rows of a rectangle, with the index of each token there and back."""

    tokens: Int[Tensor, "B L"]  # the token in each slot
    mask: Bool[Tensor, "B L"]  # False: padding
    slots: Int[Tensor, "T"]  # the slot of each token

    @classmethod
    def of(cls, bounds: Int[Tensor, "ends"], longest: int, count: int) -> "PaddedRows":
        """The rows of `count` tokens in sequences of at most `longest`; some may be empty."""
        bounds = bounds.long()
        positions, all_tokens = (torch.arange(size, device=bounds.device) for size in (longest, count))
        tokens = bounds[:-1, None] + positions
        # An empty row keeps one slot: a query without any key would be nan.
        real = (tokens < bounds[1:, None]) | (positions == 0)
        rows = torch.searchsorted(bounds, all_tokens, right=True) - 1  # of all bounds: a compiler may refuse a slice
        return cls(tokens.clamp(max=count - 1), real, rows * longest + all_tokens - bounds[rows])

    def pad(self, part: Float[Tensor, "T H K"]) -> Float[Tensor, "B H L K"]:
        padded: Tensor = _Pad.apply(part, self.tokens, self.slots)  # type: ignore[no-untyped-call]
        return padded.transpose(1, 2)

    def unpad(self, part: Float[Tensor, "B H L K"]) -> Float[Tensor, "T H K"]:
        flat: Tensor = _Unpad.apply(part.transpose(1, 2), self.slots)  # type: ignore[no-untyped-call]
        return flat


@dataclass(frozen=True)
class Rectangle:
    """Rows that are padded already: the flat sequence is the rectangle itself, padding included, and is only viewed."""

    mask: Bool[Tensor, "B L"]  # False: padding

    def pad(self, part: Float[Tensor, "T H K"]) -> Float[Tensor, "B H L K"]:
        return torch.unflatten(part, 0, self.mask.shape).transpose(1, 2)

    def unpad(self, part: Float[Tensor, "B H L K"]) -> Float[Tensor, "T H K"]:
        return part.transpose(1, 2).flatten(0, 1)


class _Pad(torch.autograd.Function):
    """Gather tokens into slots. Padding is masked and has no gradient, so a token's gradient is that of its own slot:
    no index_add, which is slow in half precision."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, tokens: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        return part[tokens]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        [slots] = ctx.saved_tensors
        return grad_output.flatten(0, 1).index_select(0, slots), None, None


class _Unpad(torch.autograd.Function):
    """Gather slots into tokens: padding has a gradient of 0."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.shape = part.shape
        return part.flatten(0, 1).index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        [slots] = ctx.saved_tensors
        padded = grad_output.new_zeros(ctx.shape).flatten(0, 1).index_copy(0, slots, grad_output)
        return padded.view(ctx.shape), None


def build_mask(queries: PaddedRows, keys: PaddedRows, window: Window) -> Bool[Tensor, "B 1 _ M"]:
    """The attention mask of each row: True means that a query may attend to a key."""
    real = keys.mask[:, None, None]
    if window.full:
        return real
    size, length = queries.mask.shape[1], keys.mask.shape[1]
    visible = window.mask(size, length, real.device)
    return real & (visible | ~queries.mask[:, None, :, None])  # padding attends to all keys, as none would be nan


def attend_padded(
    query: Float[Tensor, "T H K"],
    key: Float[Tensor, "S H K"],
    value: Float[Tensor, "S H K"],
    queries: PaddedRows | Rectangle,
    keys: PaddedRows | Rectangle,
    mask: Bool[Tensor, "B 1 _ M"] | Float[Tensor, "B _ _ M"],
    dropout: float,
) -> Float[Tensor, "T H K"]:
    """Attention within each row; `mask` is boolean, or is added to the scores."""
    query, key, value = queries.pad(query), keys.pad(key), keys.pad(value)
    if dropout and query.device.type == "cpu":  # whose fused kernel has no dropout
        scores = (query * query.shape[-1] ** -0.5) @ key.mT
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        attended = apply_dropout(scores.softmax(-1), dropout) @ value
    else:
        attended = F.scaled_dot_product_attention(query, key, value, mask, dropout)
    return queries.unpad(attended)
