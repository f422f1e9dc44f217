"""Bi-LSTM: each sequence read token by token, in one direction or in both. Hochreiter and Schmidhuber 1997.

One reading, in two layouts that give the same numbers:

    rows    one rectangle, short sequences filled up at the end that is read last: CUDA, and equal lengths anywhere
    packed  every first token, every second one, and so on, the longest sequence first; nothing filled up: CPU
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

Direction = Literal["both", "left_to_right", "right_to_left"]


@dataclass(frozen=True)
class ReadingOrder:
    """The tokens in the order in which they are read from one end."""

    tokens: Int[Tensor, "..."]  # for each slot of the layout the token that stands in it
    slots: Int[Tensor, "T"]  # for each token its slot
    rows: int = 0  # of the rectangle, if it is one
    batch_sizes: Int[Tensor, "L"] | None = None  # if packed: how many sequences have a first token, a second, and so on

    def run(self, lstm: nn.Module, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T K"]:
        """What the LSTM makes of each token."""
        laid = hidden.index_select(0, self.tokens)
        if self.batch_sizes is None:
            read: Tensor = lstm(laid.view(self.rows, -1, laid.shape[1]))[0].flatten(0, 1)
        else:
            read = lstm(PackedSequence(laid, self.batch_sizes))[0].data
        return read.index_select(0, self.slots)


class BiLSTM(nn.Module):
    """A stack of LSTMs that reads every sequence from both ends, or from one alone. Graves et al. 2013.

    Every layer sees what the one below it has gathered from either end. `hidden` is the width of one direction: a
    vector read from both ends has twice as many numbers.
    """

    def __init__(
        self, width: int, hidden: int, layers: int = 2, dropout: float = 0.0, direction: Direction = "both"
    ) -> None:
        super().__init__()
        self.directions = ("left_to_right", "right_to_left") if direction == "both" else (direction,)
        self.width = hidden * len(self.directions)  # of what comes out
        # One module a layer and a direction. cuDNN reads one way in half the time it takes for both at once (H200,
        # bfloat16); and its own dropout between layers goes on with a state that no seed reaches, so that a run that
        # was resumed would differ from one that was not.
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {end: nn.LSTM(self.width if layer else width, hidden, batch_first=True) for end in self.directions}
            )
            for layer in range(layers)
        )
        self.dropout = nn.Dropout(dropout)  # between layers

    def forward(
        self, hidden: Float[Tensor, "T D"], bounds: Int[Tensor, "..."], longest: int
    ) -> Float[Tensor, "T {self.width}"]:
        """A vector for each token, made of its own sequence alone.

        No sequence is longer than `longest`. On CUDA nothing waits for the device, so that a step can be recorded, and
        the time taken goes by `longest`: let it not be far above the longest there is.
        """
        if not len(hidden):
            return hidden.new_zeros(0, self.width)
        ways = reading_orders(bounds, longest, hidden)
        for number, layer in enumerate(self.layers):
            below = self.dropout(hidden) if number else hidden
            hidden = torch.cat([ways[end].run(layer[end], below) for end in self.directions], -1)  # type: ignore[index]
        return hidden


def reading_orders(bounds: Int[Tensor, "..."], longest: int, hidden: Float[Tensor, "T D"]) -> dict[str, ReadingOrder]:
    """The tokens of some sequences as they are read onward, and backward; in the layout that suits the device."""
    equal = longest * (len(bounds) - 1) == len(hidden)
    return _padded_orders(bounds, longest, len(hidden)) if equal or hidden.is_cuda else packed_orders(bounds)


def _padded_orders(bounds: Tensor, longest: int, tokens: int) -> dict[str, ReadingOrder]:
    """Sequences as rows. A slot filled up holds some token of the batch; it is read last, and its answer by nobody."""
    starts, lengths, rows = bounds[:-1], bounds.diff(), len(bounds) - 1
    places = torch.arange(longest, device=bounds.device)
    from_end = lengths[:, None] - 1 - places  # B L
    onward = (starts[:, None] + places).clamp(max=tokens - 1)
    back = (starts[:, None] + from_end.clamp(min=0)).clamp(max=tokens - 1)
    every = torch.arange(tokens, device=bounds.device)
    owners = torch.searchsorted(bounds[1:], every.to(bounds.dtype), right=True)
    place = every - starts[owners]
    return {
        "left_to_right": ReadingOrder(onward.flatten(), owners * longest + place, rows),
        "right_to_left": ReadingOrder(back.flatten(), owners * longest + lengths[owners] - 1 - place, rows),
    }


def packed_orders(bounds: Tensor) -> dict[str, ReadingOrder]:
    """Sequences one beside the other. Empty ones fall out."""
    ends = bounds.cpu().numpy().astype(np.int64)
    lengths = np.diff(ends)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(ends[-1]) - ends[owners]
    sizes = torch.from_numpy(np.bincount(places))
    return {
        "left_to_right": _packed_order(places, lengths[owners], sizes),
        "right_to_left": _packed_order(lengths[owners] - 1 - places, lengths[owners], sizes),
    }


def _packed_order(positions: NDArray[np.int64], lengths: NDArray[np.int64], batch_sizes: Tensor) -> ReadingOrder:
    order = np.lexsort((-lengths, positions))  # by place, then the longest first; of equals the first stays first
    slots = np.empty_like(order)
    slots[order] = np.arange(len(order))
    return ReadingOrder(torch.from_numpy(order), torch.from_numpy(slots), batch_sizes=batch_sizes)
