"""Dropout: in training a share of the numbers is forgotten, and the rest made larger for it. Srivastava et al. 2014."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

STEPS = 1 << 16  # of chance: the share is met to within one of them


class Dropout(nn.Module):
    """Forgets a share of what passes through while the network learns."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return dropout(numbers, self.share) if self.training else numbers


def dropout(numbers: Float[Tensor, "..."], share: float) -> Float[Tensor, "..."]:
    """Each number forgotten with this probability, by the device's own chance."""
    if share == 0:
        return numbers
    if numbers.device.type != "cpu":
        return F.dropout(numbers, share)
    # A processor draws numbers one after the other, and torch one for each element: a sixth of a small training step.
    # One draw of sixty-four bits is enough for four elements.
    draws = torch.empty((numbers.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    chances = draws.view(torch.int16)[: numbers.numel()].view(numbers.shape)
    forgotten = round(share * STEPS)
    kept = (chances >= forgotten - STEPS // 2).to(numbers.dtype)
    return numbers * (kept * (STEPS / (STEPS - forgotten)))
