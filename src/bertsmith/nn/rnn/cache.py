"""The cache of a recurrent network in generation: one state for every beam, as one vector.

It takes the place of the KV cache. Its size does not depend on the length of the text.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.nn.cache import Cache
from bertsmith.nn.rnn.attention import Source
from bertsmith.nn.rnn.decoder import StepWeights


class StateCache(Cache):
    """The states of sequences with the same number of beams each."""

    def __init__(
        self,
        sequences: int,
        size: int,
        beams: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.states: Float[Tensor, "B W S"] = torch.zeros(sequences, beams, size, dtype=dtype, device=device)
        self.source: Source | None = None  # of a decoder: the encoded source, to which all beams attend
        self.weights: StepWeights | None = None  # of a decoder: those of single steps

    def update(self, states: Float[Tensor, "N S"]) -> None:
        """Store the state after the newest token: of each beam, or after the prompt, of each sequence for all beams."""
        self.states.copy_(states.view(len(self.states), -1, states.shape[1]))

    def reorder(self, parents: Int[Tensor, "B W"]) -> None:
        self.states.copy_(self.states.gather(1, parents[..., None].expand_as(self.states)))

    def repeat_interleave(self, repeats: int) -> None:
        self.states = self.states.repeat_interleave(repeats, 0)
        self.source = None if self.source is None else self.source.repeat_interleave(repeats)
