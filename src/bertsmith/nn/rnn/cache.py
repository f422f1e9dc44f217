"""The cache of a recurrent language model in generation: one hidden state for every beam.

It takes the place of the KV cache (`nn/kv_cache.py`). A beam that becomes a branch of another copies the other's state.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class RecurrentCache:
    """The states of sequences with the same number of beams each; they change in place."""

    def __init__(
        self,
        sequences: int,
        size: int,
        beams: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.states: Float[Tensor, "B W S"] = torch.zeros(sequences, beams, size, dtype=dtype, device=device)
        self.fixed = False  # for CUDA graphs, as in KVCache; nothing grows here

    @property
    def beams(self) -> int:
        return self.states.shape[1]

    def prefill(self, state: Float[Tensor, "B S"]) -> None:
        """Store the states after the prompts, for every beam."""
        self.states.copy_(state[:, None].expand_as(self.states))

    def gather(self, parents: Int[Tensor, "B W"] | None = None) -> Float[Tensor, "N S"]:
        """The states before the next token; `parents` is the beam that each beam continues."""
        if parents is not None:
            self.states.copy_(self.states.gather(1, parents[..., None].expand_as(self.states)))
        return self.states.flatten(0, 1)

    def update(self, states: Float[Tensor, "N S"]) -> None:
        """Store the states after that token."""
        self.states.copy_(states.view_as(self.states))

    def repeat_interleave(self, repeats: int) -> None:
        """Every sequence `repeats` times, one after the other, to be continued independently."""
        self.states = self.states.repeat_interleave(repeats, 0)

    def prune(self) -> None:
        """Nothing to free: the states of dropped beams are overwritten."""
