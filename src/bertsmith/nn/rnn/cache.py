"""What a recurrent network remembers while it writes: one state for every way that a sequence is gone on with.

It stands where attention has its keys and values (`cache.py`), and is moved on by the same few calls. A way that is
given up for a branch of another takes over the other's state: that is all.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class RecurrentCache:
    """What is remembered of some sequences, each gone on with in as many ways. All of it changes in place."""

    def __init__(
        self,
        sequences: int,
        size: int,
        beams: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.states: Float[Tensor, "B W S"] = torch.zeros(sequences, beams, size, dtype=dtype, device=device)
        self.fixed = False  # whether a step is recorded: here nothing grows, and it may be as it is

    @property
    def beams(self) -> int:
        return self.states.shape[1]

    def prefill(self, state: Float[Tensor, "B S"]) -> None:
        """Prompts have been read, and every way goes on with what is remembered of them."""
        self.states.copy_(state[:, None].expand_as(self.states))

    def gather(self, parents: Int[Tensor, "B W"] | None = None) -> Float[Tensor, "N S"]:
        """One more token on every way is about to be read: what each remembers. `came` is the way it goes on with."""
        if parents is not None:
            self.states.copy_(self.states.gather(1, parents[..., None].expand_as(self.states)))
        return self.states.flatten(0, 1)

    def update(self, states: Float[Tensor, "N S"]) -> None:
        """That token has been read."""
        self.states.copy_(states.view_as(self.states))

    def repeat_interleave(self, repeats: int) -> None:
        """Every sequence so many times, one behind the other, to be gone on with independently."""
        self.states = self.states.repeat_interleave(repeats, 0)

    def prune(self) -> None:
        """Nothing to free: a branch that was given up is forgotten already."""
