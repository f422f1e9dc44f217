"""The LSTM decoder: a stack of LSTMs that continues given states, over a whole text at once or token by token.

With input feeding, a token's input includes the attention vector of the token before it, so that only token by token is
possible. Both use the same weights and give the same numbers.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bertsmith.nn.dropout import Dropout
from bertsmith.nn.rnn.cells import lstm_gates

States = list[tuple[Tensor, Tensor]]  # hidden and cell state of each layer, both [B, K]


@dataclass(frozen=True)
class StepWeights:
    """The weights arranged for single steps: one matrix and one bias for each layer.

    The part of the first layer that multiplies the embeddings is separate, since its product is computed for all words
    of a text at once.
    """

    input_weight: Float[Tensor, "_ E"]
    matrices: tuple[Tensor, ...]  # for the input from below (or the input feed) and the hidden state
    biases: tuple[Tensor, ...]


class LSTMDecoder(nn.Module):
    """A stack of unidirectional LSTMs. Hochreiter and Schmidhuber 1997; Graves 2013."""

    def __init__(self, width: int, hidden: int, layers: int, dropout: float = 0.0, input_feed: int = 0) -> None:
        """`input_feed` is the width of the input feed; 0: none."""
        super().__init__()
        self.width = width  # of embeddings
        self.layers = nn.ModuleList(
            nn.LSTM(hidden if number else width + input_feed, hidden, batch_first=True) for number in range(layers)
        )
        self.dropout = Dropout(dropout)  # between layers

    def forward(self, words: Float[Tensor, "B L E"], states: States) -> Float[Tensor, "B L K"]:
        """The last layer's output for each word, without input feeding."""
        hidden = words
        for number, (layer, (state, cell)) in enumerate(zip(self.layers, states, strict=True)):
            below = self.dropout(hidden) if number else hidden
            hidden = layer(below, (state[None].contiguous(), cell[None].contiguous()))[0]
        return hidden

    def step_weights(self) -> StepWeights:
        """The weights for single steps, arranged once for all steps of a text."""
        arranged: list[list[Tensor]] = []
        for layer in self.layers:
            below, own, *biases = layer.parameters()  # in torch's order
            arranged.append([below, own, biases[0] + biases[1]])
        device = arranged[0][0].device.type
        if torch.is_autocast_enabled(device):  # which would cast them again at each step
            arranged = [[part.to(torch.get_autocast_dtype(device)) for part in parts] for parts in arranged]
        words, arranged[0][0] = arranged[0][0].tensor_split([self.width], 1)
        matrices = tuple(torch.cat((below, own), 1) for below, own, _ in arranged)
        return StepWeights(words, matrices, tuple(bias for _, _, bias in arranged))

    def input_gates(self, words: Float[Tensor, "*B E"], weights: StepWeights) -> Float[Tensor, "*B G"]:
        """The embeddings' part of the first layer's gates, for all words of a text at once."""
        return F.linear(words, weights.input_weight, weights.biases[0])

    def step(
        self,
        input_gates: Float[Tensor, "B G"],
        input_feed: Float[Tensor, "B _"] | None,
        states: States,
        weights: StepWeights,
    ) -> tuple[Float[Tensor, "B K"], States]:
        """One step: the last layer's output, and the new states."""
        below, new = input_feed, States()
        for number, (state, cell) in enumerate(states):
            inputs = state if below is None else torch.cat((below, state), -1)
            if number:
                gates = F.linear(inputs.to(input_gates.dtype), weights.matrices[number], weights.biases[number])
            else:
                gates = torch.addmm(input_gates, inputs.to(input_gates.dtype), weights.matrices[0].T)
            new.append(lstm_gates(gates, cell))
            below = self.dropout(new[-1][0])
        return new[-1][0], new
