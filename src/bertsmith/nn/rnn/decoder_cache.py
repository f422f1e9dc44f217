"""The cache of an LSTM decoder in generation: its states, and the last attention vector (input feeding).

Its size does not depend on the length of the text. All beams of a sequence attend to the same source.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.nn.rnn.attention import Source
from bertsmith.nn.rnn.decoder import States, StepWeights


class DecoderCache:
    """The states of sequences with the same number of beams each.

    A step changes them in place and on the device, so that it can be captured as a CUDA graph.
    """

    def __init__(
        self,
        layers: int,
        sequences: int,
        beams: int,
        hidden: int,
        width: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        shape = (2 * layers, sequences, beams, hidden)  # hidden and cell state of each layer
        self.states: Float[Tensor, "N B W K"] = torch.zeros(shape, dtype=dtype, device=device)
        self.input_feed: Float[Tensor, "B W D"] = torch.zeros(sequences, beams, width, dtype=dtype, device=device)
        self.source: Source | None = None  # the encoded source, which never changes
        self.weights: StepWeights | None = None  # of single steps
        self.fixed = False  # for CUDA graphs, as in KVCache; nothing grows here

    @property
    def beams(self) -> int:
        return self.input_feed.shape[1]

    def prefill(self, states: States, output: Float[Tensor, "B D"]) -> None:
        """Store the first states, for every beam."""
        self.states.copy_(_stacked(states)[:, :, None].expand_as(self.states))
        self.input_feed.copy_(output[:, None].expand_as(self.input_feed))

    def gather(self, parents: Int[Tensor, "B W"] | None) -> tuple[Float[Tensor, "B W D"], States]:
        """The input feed and the states before the next token; `parents` is the beam that each beam continues."""
        states, input_feed = self.states, self.input_feed
        if parents is not None:
            states = states.gather(2, parents[None, ..., None].expand_as(states))
            input_feed = input_feed.gather(1, parents[..., None].expand_as(input_feed))
        flat = states.flatten(1, 2)
        return input_feed, [(flat[number], flat[number + 1]) for number in range(0, len(flat), 2)]

    def update(self, states: States, output: Float[Tensor, "_ D"]) -> None:
        """Store the states after that token."""
        self.states.copy_(_stacked(states).view_as(self.states))
        self.input_feed.copy_(output.view_as(self.input_feed))

    def repeat_interleave(self, repeats: int) -> None:
        """Every sequence `repeats` times, one after the other, to be continued independently."""
        self.states, self.input_feed = (
            self.states.repeat_interleave(repeats, 1),
            self.input_feed.repeat_interleave(repeats, 0),
        )
        self.source = None if self.source is None else self.source.repeat_interleave(repeats)

    def prune(self) -> None:
        """Nothing to free: the states of dropped beams are overwritten."""


def _stacked(states: States) -> Float[Tensor, "N _ K"]:
    return torch.stack([part for layer in states for part in layer])
