"""Length grouping: sequences of nearly the same length as the rows of one rectangle, with little padding."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

MIN_LENGTH_RATIO = 0.8  # a group takes sequences down to this share of its longest: at most a quarter more tokens
MAX_GROUPS = 8  # more calls cost more than the padding they save
LENGTH_MULTIPLE = 4  # lengths of rectangles are multiples: a CPU prepares a kernel for every new shape
FREE_PADDING = 16_384  # padded scores that cost less than one more call


@dataclass(frozen=True)
class Group:
    """Sequences of nearly the same length, as the rows of one rectangle."""

    rows: int
    length: int
    mask: Bool[Tensor, "B 1 1 L"] | None  # True: may be attended to. None without padding


@dataclass(frozen=True)
class Grouping:
    """All sequences in rectangles laid end to end, with the index of each token there and back."""

    groups: tuple[Group, ...]
    tokens: Int[Tensor, "..."]  # the token in each slot of the rectangles
    slots: Int[Tensor, "T"]  # the slot of each token


def group_by_length(bounds: Tensor) -> Grouping:
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
    return Grouping(tuple(groups), *(torch.from_numpy(part).to(bounds.device) for part in (flat, slots)))
