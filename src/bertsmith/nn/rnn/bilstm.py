"""Bi-LSTM: LSTMs over each sequence in one direction or in both. Hochreiter and Schmidhuber 1997.

Two layouts give the same numbers:

    rows    one rectangle with padding after the last step: CUDA, and equal lengths anywhere
    packed  torch's PackedSequence, all first tokens, all second ones, ..., the longest sequence first: CPU
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bertsmith.nn.padded import PaddedRows

Direction = Literal["both", "left_to_right", "right_to_left"]


@dataclass(frozen=True)
class ReadingOrder:
    """The tokens of a batch in the order of one direction."""

    tokens: Int[Tensor, "..."]  # the token in each slot of the layout
    slots: Int[Tensor, "T"]  # the slot of each token
    rows: int = 0  # of the rectangle; 0: packed
    batch_sizes: Int[Tensor, "L"] | None = None  # of a PackedSequence: sequences at each step

    def run(self, lstm: nn.Module, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T K"]:
        """The LSTM's output for each token."""
        ordered = hidden.index_select(0, self.tokens)
        if self.batch_sizes is None:
            output: Tensor = lstm(ordered.view(self.rows, -1, ordered.shape[1]))[0].flatten(0, 1)
        else:
            output = lstm(PackedSequence(ordered, self.batch_sizes))[0].data
        return output.index_select(0, self.slots)


class BiLSTM(nn.Module):
    """A stack of bidirectional LSTMs, or of LSTMs in one direction. Graves et al. 2013.

    The input of a layer is the concatenated output of both directions below it. `hidden` is the width of one direction.
    """

    def __init__(
        self, width: int, hidden: int, layers: int = 2, dropout: float = 0.0, direction: Direction = "both"
    ) -> None:
        super().__init__()
        self.directions = ("left_to_right", "right_to_left") if direction == "both" else (direction,)
        self.width = hidden * len(self.directions)  # of the output
        # One module for each layer and direction. cuDNN takes half as long for one direction as for both in one call
        # (H200, bfloat16); and no seed reaches the state of its dropout between layers, so that a resumed run would
        # differ.
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
        """The output for each token, from its own sequence only.

        No sequence is longer than `longest`. On CUDA nothing waits for the device, so that a step can be captured as a
        CUDA graph, and the time grows with `longest`: keep it near the true maximum.
        """
        if not len(hidden):
            return hidden.new_zeros(0, self.width)
        orders = reading_orders(bounds, longest, hidden)
        for number, layer in enumerate(self.layers):
            below = self.dropout(hidden) if number else hidden
            hidden = torch.cat([orders[end].run(layer[end], below) for end in self.directions], -1)  # type: ignore[index]
        return hidden


def reading_orders(bounds: Int[Tensor, "..."], longest: int, hidden: Float[Tensor, "T D"]) -> dict[str, ReadingOrder]:
    """The order of tokens in each direction, in the layout that suits the device."""
    equal = longest * (len(bounds) - 1) == len(hidden)
    return _padded_orders(bounds, longest, len(hidden)) if equal or hidden.is_cuda else packed_orders(bounds)


def _padded_orders(bounds: Tensor, longest: int, tokens: int) -> dict[str, ReadingOrder]:
    """Sequences as rows. A padded slot holds any token of the batch; it comes last, and its output is not used."""
    rows, lengths = PaddedRows.of(bounds, longest, tokens), bounds.diff().long()
    from_end = (lengths[:, None] - 1 - torch.arange(longest, device=bounds.device)).clamp(min=0)  # B L
    number = rows.slots // longest  # the row of each token
    first, last = number * longest, number * longest + lengths[number] - 1  # and the slots between which it stands
    return {
        "left_to_right": ReadingOrder(rows.tokens.flatten(), rows.slots, len(lengths)),
        "right_to_left": ReadingOrder(
            rows.tokens.gather(1, from_end).flatten(), first + last - rows.slots, len(lengths)
        ),
    }


def packed_orders(bounds: Tensor) -> dict[str, ReadingOrder]:
    """Sequences side by side; empty ones are left out."""
    ends = bounds.cpu().numpy().astype(np.int64)
    lengths = np.diff(ends)
    sequence_ids = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.arange(ends[-1]) - ends[sequence_ids]
    sizes = torch.from_numpy(np.bincount(positions))
    return {
        "left_to_right": _packed_order(positions, lengths[sequence_ids], sizes),
        "right_to_left": _packed_order(lengths[sequence_ids] - 1 - positions, lengths[sequence_ids], sizes),
    }


def _packed_order(positions: NDArray[np.int64], lengths: NDArray[np.int64], batch_sizes: Tensor) -> ReadingOrder:
    order = np.lexsort((-lengths, positions))  # by position, then the longest first; stable
    slots = np.empty_like(order)
    slots[order] = np.arange(len(order))
    return ReadingOrder(torch.from_numpy(order), torch.from_numpy(slots), batch_sizes=batch_sizes)
