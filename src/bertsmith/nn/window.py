"""The attention window: how many tokens to the left and to the right each token attends to.

BERT attends to everything, GPT is causal; most layers of ModernBERT have sliding-window
attention, 64 tokens each way.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor


@dataclass(frozen=True)
class Window:
    """So many tokens of its sequence before a token, and so many behind it; None: all. Itself it always sees."""

    left: int | None = None
    right: int | None = None

    @property
    def full(self) -> bool:
        """Whether every token sees its whole sequence."""
        return self.left is None and self.right is None

    @property
    def causal(self) -> bool:
        """Whether every token sees all that has come, and nothing that is to come."""
        return self.left is None and self.right == 0

    @property
    def sizes(self) -> tuple[int, int]:
        """For kernels: -1 stands for all."""
        return -1 if self.left is None else self.left, -1 if self.right is None else self.right

    def mask(self, queries: int, keys: int, device: torch.device | None = None) -> Bool[Tensor, "queries keys"]:
        """Which keys each query sees, both counted from the same first token."""
        ahead = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None]
        seen = torch.ones_like(ahead, dtype=torch.bool)
        if self.right is not None:
            seen &= ahead <= self.right
        if self.left is not None:
            seen &= -ahead <= self.left
        return seen


FULL = Window()
CAUSAL = Window(right=0)
