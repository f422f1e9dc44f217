"""The attention window: how many tokens to the left and to the right each token attends to.

BERT attends to everything, GPT is causal; most layers of ModernBERT have sliding-window attention, 64 tokens each way.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Window:
    """Tokens to the left and to the right that a token attends to, besides itself; None: all."""

    left: int | None = None
    right: int | None = None

    @property
    def full(self) -> bool:
        """Whether every token attends to its whole sequence."""
        return self.left is None and self.right is None

    @property
    def causal(self) -> bool:
        """Whether every token attends to all tokens before it and to none after it."""
        return self.left is None and self.right == 0

    @property
    def sizes(self) -> tuple[int, int]:
        """Left and right, with -1 for all, as kernels take them."""
        return -1 if self.left is None else self.left, -1 if self.right is None else self.right

    def mask(self, queries: int, keys: int, device: torch.device | None = None) -> Bool[Tensor, "queries keys"]:
        """True where a query may attend to a key, both counted from the same first token."""
        return self.visible(torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None])

    def visible(self, ahead: Int[Tensor, "*N"]) -> Bool[Tensor, "*N"]:
        """True where a query may attend to a key that is so many tokens ahead of it."""
        visible = torch.ones_like(ahead, dtype=torch.bool)
        if self.right is not None:
            visible &= ahead <= self.right
        if self.left is not None:
            visible &= -ahead <= self.left
        return visible


FULL = Window()
CAUSAL = Window(right=0)
