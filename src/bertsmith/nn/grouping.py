"""Length grouping: sequences of nearly the same length as the rows of one rectangle, with little padding."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from bertsmith.nn.attention import Kernel, attention_weights
from bertsmith.nn.dropout import dropout as apply_dropout
from bertsmith.nn.window import FULL, Window

MIN_LENGTH_RATIO = 0.8  # a group takes sequences down to this share of its longest: at most a quarter more tokens
MAX_GROUPS = 8  # more calls cost more than the padding they save
LENGTH_MULTIPLE = 4  # lengths of rectangles are multiples: a CPU prepares a kernel for every new shape
FREE_PADDING = 16_384  # padded scores that cost less than one more call


@dataclass(frozen=True)
class Group:
    """Sequences of nearly the same length, as the rows of one rectangle."""

    rows: int
    length: int
    mask: Bool[Tensor, "B 1 1 L"] | None = None  # True: may be attended to. None without padding

    def attend(self, query: Tensor, key: Tensor, value: Tensor, window: Window, dropout: float) -> Tensor:
        """Attention within each row, of tokens end to end."""
        shape = (self.rows, self.length, *query.shape[1:])
        query, key, value = (part.reshape(shape).transpose(1, 2) for part in (query, key, value))  # B H L K
        if query.requires_grad and query.device.type == "cpu" and (dropout > 0 or query.dtype != torch.float32):
            # A CPU's fused kernel has no dropout, and its backward pass in half precision takes three times as long.
            weights = attention_weights(query, key, self._visible(window, query.device))
            attended = apply_dropout(weights, dropout) @ value
        elif window.causal:
            attended = F.scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True)
        else:
            mask = self._visible(window, query.device)
            attended = F.scaled_dot_product_attention(query, key, value, mask, dropout)
        return attended.transpose(1, 2).flatten(0, 1)

    def _visible(self, window: Window, device: torch.device) -> Tensor | None:
        """The attention mask of the rectangle; None if nothing is masked."""
        if window.full:
            return self.mask
        visible = window.mask(self.length, self.length, device)
        if self.mask is None or window.causal:  # padding is at the end, where no earlier token attends
            return visible
        # Padding attends to all real tokens: a query without any key would be nan.
        return self.mask & (visible | ~self.mask.mT)


@dataclass(eq=False)
class Dense(Kernel):
    """Sequences of one length: a rectangle without padding, for torch's own attention. Any device."""

    rows: int
    length: int

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        return Group(self.rows, self.length).attend(query, key, value, self.window, dropout)


@dataclass(eq=False)
class Grouped(Kernel):
    """Ragged sequences in rectangles, for torch's own attention: on a CPU, and on a GPU in float32."""

    groups: tuple[Group, ...]
    tokens: Int[Tensor, "..."]  # the token in each slot of the rectangles, which lie end to end
    slots: Int[Tensor, "T"]  # the slot of each token

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        if not self.groups:
            return query  # every sequence is empty
        # One gather and one split: with slices the backward pass would fill a whole batch for each group.
        sizes = [group.rows * group.length for group in self.groups]
        parts = (torch.split(part.index_select(0, self.tokens), sizes) for part in (query, key, value))
        rows = zip(self.groups, *parts, strict=True)
        return torch.cat([group.attend(*each, self.window, dropout) for group, *each in rows]).index_select(
            0, self.slots
        )


def group_by_length(bounds: Tensor, window: Window = FULL) -> Grouped:
    """Sort sequences by length and cut them into rectangles; empty sequences are left out."""
    ends = bounds.cpu().numpy().astype(np.int64)
    starts, lengths = ends[:-1], np.diff(ends)
    order = np.argsort(lengths, kind="stable")[np.count_nonzero(lengths == 0) :]  # shortest first
    groups: list[Group] = []
    tokens, slots, filled = [], np.zeros(int(ends[-1]), np.int64), 0
    while order.size:
        longest = int(lengths[order[-1]])
        last = len(groups) == MAX_GROUPS - 1
        wasted = np.cumsum(longest**2 - lengths[order[::-1]] ** 2)  # padded scores, by sequences in the group
        most = len(order) - int(np.searchsorted(wasted, FREE_PADDING, side="right"))
        cut = 0 if last else min(most, int(np.searchsorted(lengths[order], MIN_LENGTH_RATIO * longest)))
        order, members = order[:cut], order[cut:]
        longest += -longest % LENGTH_MULTIPLE
        positions = np.arange(longest)
        real = positions < lengths[members, None]  # B L
        # A padded slot repeats its sequence's last token: always finite, and never attended to.
        rectangle = starts[members, None] + np.minimum(positions, lengths[members, None] - 1)
        slots[rectangle[real]] = filled + np.flatnonzero(real)
        mask = None if real.all() else torch.from_numpy(real[:, None, None]).to(bounds.device)
        groups.append(Group(len(members), longest, mask))
        tokens.append(rectangle.ravel())
        filled += rectangle.size
    flat = np.concatenate(tokens) if tokens else slots
    tokens_and_slots = (torch.from_numpy(part).to(bounds.device) for part in (flat, slots))
    return Grouped(tuple(groups), *tokens_and_slots, window=window)
