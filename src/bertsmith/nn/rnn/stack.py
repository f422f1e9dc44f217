"""A stack of recurrent layers, left to right, with its state as input and output.

The state of a sequence is one vector, the states of all layers side by side: so it is carried over between batches,
cached and copied like any other vector.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence

from bertsmith.nn.dropout import dropout
from bertsmith.nn.init import CustomInit
from bertsmith.nn.rnn.cells import CELLS, LAYERS, STATE_VECTORS, Cell, Weights

MAX_SPAN = 64  # tokens: the longest memory of a cell at initialisation


class RecurrentStack(CustomInit):
    """Stacked recurrent layers of the given `widths`. Graves 2013, "Generating Sequences".

    Dropout is that of AWD-LSTM (Merity et al. 2017): one mask for all tokens of a sequence (locked or variational
    dropout, Gal and Ghahramani 2016) on input, between layers and on output; and on the hidden-to-hidden weights one
    mask for the whole batch (DropConnect, Wan et al. 2013).
    """

    def __init__(
        self,
        cell: Cell,
        width: int,  # of the input
        widths: Sequence[int],  # of each layer's output
        *,
        input_dropout: float = 0.0,
        layer_dropout: float = 0.0,  # between layers
        output_dropout: float = 0.0,
        weight_dropout: float = 0.0,  # of the hidden-to-hidden weights
    ) -> None:
        super().__init__()
        self.cell: Cell = cell
        self.widths = tuple(widths)
        self.layers = nn.ModuleList(
            LAYERS[cell](below, above, batch_first=True)
            for below, above in zip((width, *self.widths), self.widths, strict=False)
        )
        self.sizes = [width for width in self.widths for _ in range(STATE_VECTORS[cell])]  # of the parts of the state
        self.dropouts = (input_dropout, *[layer_dropout] * (len(self.widths) - 1), output_dropout)
        self.weight_dropout = weight_dropout

    @property
    def state_size(self) -> int:
        """The width of the state."""
        return sum(self.sizes)

    def forward(
        self, rows: Float[Tensor, "B L E"], state: Float[Tensor, "B S"] | None = None
    ) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B S"]]:
        """The output for each token of sequences of one length, and the state after the last; from zeros, or from a
        state."""
        states = self._split_state(
            rows.new_zeros(len(rows), self.state_size) if state is None else state.to(rows.dtype)
        )
        new_states: list[Tensor] = []
        for number, (layer, held) in enumerate(zip(self.layers, states, strict=True)):
            rows = self._locked_dropout(rows, self.dropouts[number])
            rows, new = self._run_layer(layer, rows, [part[None] for part in held])
            new_states += [part[0] for part in new]
        return self._locked_dropout(rows, self.dropouts[-1]), torch.cat([part.to(rows.dtype) for part in new_states], 1)

    def forward_packed(
        self, hidden: Float[Tensor, "T E"], batch_sizes: Int[Tensor, "L"]
    ) -> tuple[Float[Tensor, "T D"], Float[Tensor, "B S"]]:
        """The same from zeros, of a PackedSequence: all first tokens, all second ones, ..., the longest sequence first.
        Without dropout: for prompts and for scoring."""
        new_states: list[Tensor] = []
        for layer in self.layers:
            output, new = layer(PackedSequence(hidden, batch_sizes))
            hidden = output.data
            new_states += [part[0] for part in (new if isinstance(new, tuple) else (new,))]
        return hidden, torch.cat(new_states, 1)

    def step(
        self, tokens: Float[Tensor, "B E"], state: Float[Tensor, "B S"]
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B S"]]:
        """One token of each sequence by the plain cells: the output and the new state."""
        new_states: list[Tensor] = []
        for layer, held in zip(self.layers, self._split_state(state), strict=True):
            assert isinstance(layer, nn.RNNBase)
            new = CELLS[self.cell](tokens, tuple(held), Weights.of(layer))
            tokens = new[0]
            new_states += new
        return tokens, torch.cat(new_states, 1)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Uniform weights up to 1 / sqrt(width); and gate biases for memories of different lengths.

        With a forget gate of one half a cell forgets within a few tokens. So each cell is initialised with its own time
        span, drawn from one token to many, and an input gate to match (chrono initialisation). Tallec and Ollivier
        2018, section 2.
        """
        for layer, width in zip(self.layers, self.widths, strict=True):
            for weight in layer.parameters():
                weight.uniform_(-(width**-0.5), width**-0.5, generator=generator)
            if self.cell != "rnn":
                spans = torch.empty(width).uniform_(1.0, MAX_SPAN - 1.0, generator=generator).log()
                bias = layer.get_parameter("bias_ih_l0")
                bias[width : 2 * width] += spans  # the forget gate of an LSTM, the update gate of a GRU
                if self.cell == "lstm":
                    bias[:width] -= spans  # the input gate; a GRU has none

    def _split_state(self, state: Tensor) -> list[list[Tensor]]:
        """The state as a list of parts for each layer."""
        parts, count = torch.split(state, self.sizes, 1), STATE_VECTORS[self.cell]
        return [list(parts[first : first + count]) for first in range(0, len(parts), count)]

    def _run_layer(self, layer: Any, rows: Tensor, held: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        state: Any = (held[0].contiguous(), held[1].contiguous()) if len(held) == 2 else held[0].contiguous()
        if self.training and self.weight_dropout:
            weight = {"weight_hh_l0": dropout(layer.weight_hh_l0, self.weight_dropout)}
            with warnings.catch_warnings():  # cuDNN copies the weights into one chunk, and warns
                warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
                output, new = functional_call(layer, weight, (rows, state))
        else:
            output, new = layer(rows, state)
        return output, new if isinstance(new, tuple) else (new,)

    def _locked_dropout(self, rows: Tensor, probability: float) -> Tensor:
        """Locked dropout: one mask for all tokens of a sequence."""
        if not self.training or probability == 0:
            return rows
        return rows * dropout(rows.new_ones(len(rows), 1, rows.shape[2]), probability)
