"""Padded attention: sequences as the rows of one rectangle, whose shape is known without reading the bounds.

It wastes work on padding, but does what most other kernels do not: relative position bias and cross-attention, on any
device.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bertsmith.nn.attention import Kernel, Sequences, attention_weights
from bertsmith.nn.dropout import dropout as apply_dropout
from bertsmith.nn.window import FULL, Window


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


@dataclass(eq=False)
class Padded(Kernel):
    """All sequences in one rectangle, for torch's own attention with a mask: any device.

    It wins nothing: it is what is left where no other kernel can do it.
    """

    queries: PaddedRows
    keys: PaddedRows
    bias: Float[Tensor, "H Q S"] | None = None  # relative position bias
    mask: Bool[Tensor, "B 1 _ M"] | Float[Tensor, "B H L M"] = field(init=False)  # or what is added to the scores

    @classmethod
    def of(
        cls, queries: Sequences, keys: Sequences, window: Window = FULL, bias: Float[Tensor, "H Q S"] | None = None
    ) -> "Padded":
        queries, keys = _without_empty(queries, keys)
        rows = PaddedRows.of(*queries)
        return cls(rows, rows if keys is queries else PaddedRows.of(*keys), bias, window=window)

    def __post_init__(self) -> None:
        real = self.keys.mask[:, None, None]
        if not self.window.full:
            size, length = self.queries.mask.shape[1], self.keys.mask.shape[1]
            visible = self.window.mask(size, length, real.device)
            # Padding attends to all keys, as none would be nan.
            real = real & (visible | ~self.queries.mask[:, None, :, None])
        self.mask = real if self.bias is None else torch.where(real, self.bias, -torch.inf)  # once for all layers

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        mask = self.mask if self.bias is None else self.mask.to(query.dtype)
        query, key, value = self.queries.pad(query), self.keys.pad(key), self.keys.pad(value)
        if dropout and query.device.type == "cpu":  # whose fused kernel has no dropout
            attended = apply_dropout(attention_weights(query, key, mask), dropout) @ value
        else:
            attended = F.scaled_dot_product_attention(query, key, value, mask, dropout)
        return self.queries.unpad(attended)


@dataclass(eq=False)
class Rectangle(Kernel):
    """Rows that are padded already: the flat batch is the rectangle itself, padding included, and is only viewed."""

    real: Bool[Tensor, "B L"]  # False: padding
    mask: Float[Tensor, "_ _ _ L"]  # added to the scores

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        query, key, value = (torch.unflatten(part, 0, self.real.shape).transpose(1, 2) for part in (query, key, value))
        attended = F.scaled_dot_product_attention(query, key, value, self.mask, dropout)
        return attended.transpose(1, 2).flatten(0, 1)


def _without_empty(queries: Sequences, keys: Sequences) -> tuple[Sequences, Sequences]:
    """The same without empty sequences at the end, unless counting them would wait for a GPU or break a graph."""
    if queries.bounds.device.type != "cpu" or torch.compiler.is_compiling():
        return queries, keys
    most = max(int((part.bounds < part.tokens).sum()) for part in (queries, keys))
    first = queries._replace(bounds=queries.bounds[: most + 1])
    return first, first if keys is queries else keys._replace(bounds=keys.bounds[: most + 1])
