"""What a writer made of LSTMs carries from token to token: its states, and what it said last.

However long a text becomes, it is the same few numbers. A sequence may be gone on with in several ways at once, as a
beam search does; all of them look at the one text that was read.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.nn.rnn.attention import Source
from bertsmith.nn.rnn.decoder import States, StepWeights


class DecoderCache:
    """States of some sequences, each gone on with in as many ways.

    All that changes from one step to the next changes in place and on the device, so that a step can be recorded.
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
        # Of each layer what it has said and what it keeps.
        shape = (2 * layers, sequences, beams, hidden)
        self.states: Float[Tensor, "N B W K"] = torch.zeros(shape, dtype=dtype, device=device)
        self.input_feed: Float[Tensor, "B W D"] = torch.zeros(sequences, beams, width, dtype=dtype, device=device)
        self.source: Source | None = None  # what was read, which never changes
        self.weights: StepWeights | None = None  # nor do the weights
        self.fixed = False  # steps are recorded: here they always could be

    @property
    def beams(self) -> int:
        return self.input_feed.shape[1]

    def prefill(self, states: States, output: Float[Tensor, "B D"]) -> None:
        """All ways begin as one."""
        self.states.copy_(_stacked(states)[:, :, None].expand_as(self.states))
        self.input_feed.copy_(output[:, None].expand_as(self.input_feed))

    def gather(self, parents: Int[Tensor, "B W"] | None) -> tuple[Float[Tensor, "B W D"], States]:
        """What every way goes on with: its own past, or that of the way that it came from."""
        states, fed = self.states, self.input_feed
        if parents is not None:
            states = states.gather(2, parents[None, ..., None].expand_as(states))
            fed = fed.gather(1, parents[..., None].expand_as(fed))
        flat = states.flatten(1, 2)
        return fed, [(flat[number], flat[number + 1]) for number in range(0, len(flat), 2)]

    def update(self, states: States, output: Float[Tensor, "_ D"]) -> None:
        """That token has been written."""
        self.states.copy_(_stacked(states).view_as(self.states))
        self.input_feed.copy_(output.view_as(self.input_feed))

    def repeat_interleave(self, repeats: int) -> None:
        """Every sequence so many times, one behind the other, to be gone on with independently."""
        self.states, self.input_feed = (
            self.states.repeat_interleave(repeats, 1),
            self.input_feed.repeat_interleave(repeats, 0),
        )
        self.source = None if self.source is None else self.source.repeat_interleave(repeats)

    def prune(self) -> None:
        """Nothing grows here, and so nothing is to be given back."""


def _stacked(states: States) -> Float[Tensor, "N _ K"]:
    return torch.stack([part for layer in states for part in layer])
