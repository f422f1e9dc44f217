"""Reach: how far a token looks, before itself and behind itself. BERT's look everywhere, GPT's only back."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor


@dataclass(frozen=True)
class Reach:
    """So many tokens of its sequence before a token, and so many behind it; None: all. Itself it always sees."""

    before: int | None = None
    behind: int | None = None

    @property
    def whole(self) -> bool:
        """Whether every token sees its whole sequence."""
        return self.before is None and self.behind is None

    @property
    def causal(self) -> bool:
        """Whether every token sees all that has come, and nothing that is to come."""
        return self.before is None and self.behind == 0

    @property
    def numbers(self) -> tuple[int, int]:
        """For kernels: -1 stands for all."""
        return -1 if self.before is None else self.before, -1 if self.behind is None else self.behind

    def seen(self, queries: int, keys: int, device: torch.device | None = None) -> Bool[Tensor, "queries keys"]:
        """Which keys each query sees, both counted from the same first token."""
        ahead = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None]
        seen = torch.ones_like(ahead, dtype=torch.bool)
        if self.behind is not None:
            seen &= ahead <= self.behind
        if self.before is not None:
            seen &= -ahead <= self.before
        return seen


ALL = Reach()
BACK = Reach(behind=0)
