"""Recurrent cells in plain maths, RNN, LSTM and GRU: one step from token and state to the new state.

torch's own modules do the same for a whole text at once, on a GPU many times as fast, but hide the states in between.
These show every step, to students and to the analysis of gradients through time. The weights are those of the modules,
with the gates' matrices stacked.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Cell = Literal["rnn", "lstm", "gru"]


class Weights(NamedTuple):
    """The weights of one layer: input to hidden (ih) and hidden to hidden (hh), by torch's names."""

    weight_ih: Float[Tensor, "G E"]
    weight_hh: Float[Tensor, "G K"]
    bias_ih: Float[Tensor, "G"]
    bias_hh: Float[Tensor, "G"]

    @classmethod
    def of(cls, layer: nn.RNNBase) -> "Weights":
        return cls(*(getattr(layer, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))


State = tuple[Tensor, ...]  # of a layer: the hidden state, and the cell state of an LSTM


def rnn(token: Float[Tensor, "B E"], state: State, weights: Weights) -> State:
    """The plain RNN: h = tanh(W x + U h). Elman 1990."""
    (hidden,) = state
    from_input = F.linear(token, weights.weight_ih, weights.bias_ih)
    from_hidden = F.linear(hidden, weights.weight_hh, weights.bias_hh)
    return (torch.tanh(from_input + from_hidden),)


def lstm(token: Float[Tensor, "B E"], state: State, weights: Weights) -> State:
    """The LSTM with a forget gate. Hochreiter and Schmidhuber 1997; Gers et al. 2000.

    The cell state is multiplied by the forget gate and added to, and nothing else: where the gate stays open, gradients
    pass through any number of tokens unchanged.
    """
    hidden, cell = state
    from_input = F.linear(token, weights.weight_ih, weights.bias_ih)
    from_hidden = F.linear(hidden, weights.weight_hh, weights.bias_hh)
    return lstm_gates(from_input + from_hidden, cell)


def lstm_gates(
    gates: Float[Tensor, "B G"], cell: Float[Tensor, "B K"]
) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
    """The hidden and the cell state of an LSTM, from the inputs of its four gates.

    The cell state may have a higher precision than the gates, and keeps it.
    """
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, 1)  # in torch's order
    cell = torch.sigmoid(forget_gate) * cell + torch.sigmoid(input_gate) * torch.tanh(candidate)
    return torch.sigmoid(output_gate) * torch.tanh(cell).to(gates.dtype), cell


def gru(token: Float[Tensor, "B E"], state: State, weights: Weights) -> State:
    """The GRU: one state, and an update gate in place of input and forget gates. Cho et al. 2014."""
    (hidden,) = state
    input_reset, input_update, input_new = F.linear(token, weights.weight_ih, weights.bias_ih).chunk(3, 1)
    hidden_reset, hidden_update, hidden_new = F.linear(hidden, weights.weight_hh, weights.bias_hh).chunk(3, 1)
    candidate = torch.tanh(input_new + torch.sigmoid(input_reset + hidden_reset) * hidden_new)
    update_gate = torch.sigmoid(input_update + hidden_update)
    return (update_gate * hidden + (1 - update_gate) * candidate,)


CELLS: dict[Cell, Callable[[Tensor, State, Weights], State]] = {"rnn": rnn, "lstm": lstm, "gru": gru}
Layer = nn.RNN | nn.LSTM | nn.GRU  # torch's own
LAYERS: dict[Cell, type[Layer]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
STATE_VECTORS: dict[Cell, int] = {"rnn": 1, "lstm": 2, "gru": 1}  # vectors in the state of a layer
GATES: dict[Cell, int] = {"rnn": 1, "lstm": 4, "gru": 3}  # stacked matrices
