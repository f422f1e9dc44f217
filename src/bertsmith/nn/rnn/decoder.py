"""A writer: a stack of LSTMs that goes on from given states, through a whole text at once or token by token.

What a token is told by the one before it, such as where that one looked, is not known before that one is done: then
there is no way but token by token. Both ways use the same weights and give the same numbers.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bertsmith.nn.dropout import Dropout
from bertsmith.nn.rnn.cells import lstm_gates

States = list[tuple[Tensor, Tensor]]  # of each layer what it has said and what it keeps, both [B, K]


@dataclass(frozen=True)
class StepWeights:
    """The weights of all layers laid out for going on token by token: of each layer one matrix and one bias.

    The words' part of the first layer's is apart, since what it makes of all words of a text is known beforehand.
    """

    input_weight: Float[Tensor, "_ E"]
    matrices: tuple[Tensor, ...]  # for what comes from below, or was told by the last token, beside the own state
    biases: tuple[Tensor, ...]


class LSTMDecoder(nn.Module):
    """LSTMs, one above the other, that know only what has come. Hochreiter and Schmidhuber 1997; Graves 2013."""

    def __init__(self, width: int, hidden: int, layers: int, dropout: float = 0.0, input_feed: int = 0) -> None:
        """`fed` is the width of what each token is told by the one before it."""
        super().__init__()
        self.width = width  # of words
        self.layers = nn.ModuleList(
            nn.LSTM(hidden if number else width + input_feed, hidden, batch_first=True) for number in range(layers)
        )
        self.dropout = Dropout(dropout)  # between layers

    def forward(self, words: Float[Tensor, "B L E"], states: States) -> Float[Tensor, "B L K"]:
        """What the last layer says of each word, where no token is told anything by the one before."""
        hidden = words
        for number, (layer, (said, kept)) in enumerate(zip(self.layers, states, strict=True)):
            below = self.dropout(hidden) if number else hidden
            hidden = layer(below, (said[None].contiguous(), kept[None].contiguous()))[0]
        return hidden

    def step_weights(self) -> StepWeights:
        """The weights laid out, once for as many tokens as come."""
        laid: list[list[Tensor]] = []
        for layer in self.layers:
            below, own, *biases = layer.parameters()  # in torch's order
            laid.append([below, own, biases[0] + biases[1]])
        device = laid[0][0].device.type
        if torch.is_autocast_enabled(device):  # which would do it anew for each token
            laid = [[part.to(torch.get_autocast_dtype(device)) for part in parts] for parts in laid]
        words, laid[0][0] = laid[0][0].tensor_split([self.width], 1)
        matrices = tuple(torch.cat((below, own), 1) for below, own, _ in laid)
        return StepWeights(words, matrices, tuple(bias for _, _, bias in laid))

    def input_gates(self, words: Float[Tensor, "*B E"], weights: StepWeights) -> Float[Tensor, "*B G"]:
        """What words tell the gates of the first layer; of all words of a text in one go."""
        return F.linear(words, weights.input_weight, weights.biases[0])

    def step(
        self,
        input_gates: Float[Tensor, "B G"],
        input_feed: Float[Tensor, "B _"] | None,
        states: States,
        weights: StepWeights,
    ) -> tuple[Float[Tensor, "B K"], States]:
        """One more token: what the last layer says, and the states that come of it."""
        below, grown = input_feed, States()
        for number, (said, kept) in enumerate(states):
            given = said if below is None else torch.cat((below, said), -1)
            if number:
                sums = F.linear(given.to(input_gates.dtype), weights.matrices[number], weights.biases[number])
            else:
                sums = torch.addmm(input_gates, given.to(input_gates.dtype), weights.matrices[0].T)
            grown.append(lstm_gates(sums, kept))
            below = self.dropout(grown[-1][0])
        return grown[-1][0], grown
