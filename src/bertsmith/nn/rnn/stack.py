"""A stack of recurrent layers that reads onward, with what it remembers going in and coming out.

A state is one vector a sequence: what every layer remembers, side by side. So it is carried over, kept and branched
like any other vector.
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

MAX_SPAN = 64  # tokens that the slowest cells keep what they have read, at first


class RecurrentStack(CustomInit):
    """Recurrent layers, one above the other, each as wide as `widths` says. Graves 2013, "Generating Sequences".

    Dropout is that of Merity et al. 2017: the same numbers are forgotten all along a sequence (Gal and Ghahramani
    2016), of what goes in, of what goes from layer to layer and of what comes out; and of the weights by which a layer
    reads its own state some are forgotten for the whole batch (Wan et al. 2013).
    """

    def __init__(
        self,
        cell: Cell,
        width: int,  # of what goes in
        widths: Sequence[int],  # of what comes out of each layer
        *,
        input_dropout: float = 0.0,  # shares that are forgotten in training: of what goes in,
        layer_dropout: float = 0.0,  # from layer to layer,
        output_dropout: float = 0.0,  # of what comes out,
        weight_dropout: float = 0.0,  # of the weights from state to state
    ) -> None:
        super().__init__()
        self.cell: Cell = cell
        self.widths = tuple(widths)
        self.layers = nn.ModuleList(
            LAYERS[cell](below, above, batch_first=True)
            for below, above in zip((width, *self.widths), self.widths, strict=False)
        )
        self.sizes = [width for width in self.widths for _ in range(STATE_VECTORS[cell])]  # of the parts of a state
        self.dropouts = (input_dropout, *[layer_dropout] * (len(self.widths) - 1), output_dropout)
        self.weight_dropout = weight_dropout

    @property
    def state_size(self) -> int:
        """The numbers in a state."""
        return sum(self.sizes)

    def forward(
        self, rows: Float[Tensor, "B L E"], state: Float[Tensor, "B S"] | None = None
    ) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B S"]]:
        """A vector for each token of sequences of one length, and what is remembered behind the last; from nothing, or
        from a state."""
        states = self._split_state(
            rows.new_zeros(len(rows), self.state_size) if state is None else state.to(rows.dtype)
        )
        after: list[Tensor] = []
        for number, (layer, held) in enumerate(zip(self.layers, states, strict=True)):
            rows = self._locked_dropout(rows, self.dropouts[number])
            rows, new = self._run_layer(layer, rows, [part[None] for part in held])
            after += [part[0] for part in new]
        return self._locked_dropout(rows, self.dropouts[-1]), torch.cat([part.to(rows.dtype) for part in after], 1)

    def forward_packed(
        self, hidden: Float[Tensor, "T E"], batch_sizes: Int[Tensor, "L"]
    ) -> tuple[Float[Tensor, "T D"], Float[Tensor, "B S"]]:
        """The same from nothing, of sequences that are packed: every first token, every second one, and so on, the
        longest sequence first. Nothing is forgotten: so prompts are read, and texts are scored."""
        after: list[Tensor] = []
        for layer in self.layers:
            read, new = layer(PackedSequence(hidden, batch_sizes))
            hidden = read.data
            after += [part[0] for part in (new if isinstance(new, tuple) else (new,))]
        return hidden, torch.cat(after, 1)

    def step(
        self, tokens: Float[Tensor, "B E"], state: Float[Tensor, "B S"]
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B S"]]:
        """One token of each sequence, in plain maths: what it makes of it, and what is remembered then."""
        after: list[Tensor] = []
        for layer, held in zip(self.layers, self._split_state(state), strict=True):
            assert isinstance(layer, nn.RNNBase)
            new = CELLS[self.cell](tokens, tuple(held), Weights.of(layer))
            tokens = new[0]
            after += new
        return tokens, torch.cat(after, 1)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """First weights: evenly spread about nought, the less the wider; and gates that keep for a while what came in.

        What a gate of one half keeps is gone after a few tokens. So each cell begins with a span of its own, drawn from
        one token to many, and lets in as much as it forgets. Tallec and Ollivier 2018, section 2.
        """
        for layer, width in zip(self.layers, self.widths, strict=True):
            for weight in layer.parameters():
                weight.uniform_(-(width**-0.5), width**-0.5, generator=generator)
            if self.cell != "rnn":
                spans = torch.empty(width).uniform_(1.0, MAX_SPAN - 1.0, generator=generator).log()
                bias = layer.get_parameter("bias_ih_l0")
                bias[width : 2 * width] += spans  # of the gate that keeps: the second of both kinds
                if self.cell == "lstm":
                    bias[:width] -= spans  # and of the one that lets in; a GRU lets in what it does not keep

    def _split_state(self, state: Tensor) -> list[list[Tensor]]:
        """A state as what each layer remembers."""
        parts, each = torch.split(state, self.sizes, 1), STATE_VECTORS[self.cell]
        return [list(parts[first : first + each]) for first in range(0, len(parts), each)]

    def _run_layer(self, layer: Any, rows: Tensor, held: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        state: Any = (held[0].contiguous(), held[1].contiguous()) if len(held) == 2 else held[0].contiguous()
        if self.training and self.weight_dropout:
            weight = {"weight_hh_l0": dropout(layer.weight_hh_l0, self.weight_dropout)}
            with warnings.catch_warnings():  # cuDNN has to lay the weights anew, and says so
                warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
                found, new = functional_call(layer, weight, (rows, state))
        else:
            found, new = layer(rows, state)
        return found, new if isinstance(new, tuple) else (new,)

    def _locked_dropout(self, rows: Tensor, probability: float) -> Tensor:
        """The same numbers of a sequence forgotten at all its tokens."""
        if not self.training or probability == 0:
            return rows
        return rows * dropout(rows.new_ones(len(rows), 1, rows.shape[2]), probability)
