"""Recurrent cells in plain maths, RNN, LSTM and GRU: one token is read, and the state changes. Slow, and exact.

torch's own modules do the same for a whole text at once, on a GPU many times as fast, but tell nothing of what happened
on the way. These show every step: to a student, and to whoever follows a gradient back through time. The weights are
those of the modules, the gates' matrices one above the other.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Cell = Literal["rnn", "lstm", "gru"]


class Weights(NamedTuple):
    """Of one layer: what it makes of the token, and what of the state that it comes with."""

    weight_ih: Float[Tensor, "G E"]
    weight_hh: Float[Tensor, "G K"]
    bias_ih: Float[Tensor, "G"]
    bias_hh: Float[Tensor, "G"]

    @classmethod
    def of(cls, layer: nn.RNNBase) -> "Weights":
        return cls(*(getattr(layer, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))


State = tuple[Tensor, ...]  # what a layer remembers: its vector, and of an LSTM the cell behind it


def rnn(token: Float[Tensor, "B E"], state: State, weights: Weights) -> State:
    """The plain one: all that is known is written anew at every token. Elman 1990."""
    (hidden,) = state
    seen = F.linear(token, weights.weight_ih, weights.bias_ih)
    known = F.linear(hidden, weights.weight_hh, weights.bias_hh)
    return (torch.tanh(seen + known),)


def lstm(token: Float[Tensor, "B E"], state: State, weights: Weights) -> State:
    """A cell that keeps what it knows until a gate has it forget. Hochreiter and Schmidhuber 1997; Gers et al. 2000.

    What is in the cell is multiplied by the forget gate and added to, and by nothing else: where the gate stays open,
    gradients come back through any number of tokens as they were.
    """
    hidden, cell = state
    seen = F.linear(token, weights.weight_ih, weights.bias_ih)
    known = F.linear(hidden, weights.weight_hh, weights.bias_hh)
    return lstm_gates(seen + known, cell)


def lstm_gates(
    gates: Float[Tensor, "B G"], cell: Float[Tensor, "B K"]
) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
    """What an LSTM says and what it keeps, from what its four gates are told.

    What is kept may be of a higher precision than what is told, and stays so.
    """
    enter, keep, new, show = gates.chunk(4, 1)  # in torch's order
    cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(show) * torch.tanh(cell).to(gates.dtype), cell


def gru(token: Float[Tensor, "B E"], state: State, weights: Weights) -> State:
    """The same thought with one vector less: what a gate does not keep is written anew. Cho et al. 2014."""
    (hidden,) = state
    seen_reset, seen_keep, seen_new = F.linear(token, weights.weight_ih, weights.bias_ih).chunk(3, 1)
    reset, keep, new = F.linear(hidden, weights.weight_hh, weights.bias_hh).chunk(3, 1)
    fresh = torch.tanh(seen_new + torch.sigmoid(seen_reset + reset) * new)
    kept = torch.sigmoid(seen_keep + keep)
    return (kept * hidden + (1 - kept) * fresh,)


CELLS: dict[Cell, Callable[[Tensor, State, Weights], State]] = {"rnn": rnn, "lstm": lstm, "gru": gru}
Layer = nn.RNN | nn.LSTM | nn.GRU  # torch's own
LAYERS: dict[Cell, type[Layer]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
STATE_VECTORS: dict[Cell, int] = {"rnn": 1, "lstm": 2, "gru": 1}  # vectors that a layer remembers
GATES: dict[Cell, int] = {"rnn": 1, "lstm": 4, "gru": 3}  # matrices, one above the other
