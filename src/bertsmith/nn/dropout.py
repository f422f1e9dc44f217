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
        return mixed(numbers, share) if torch.compiler.is_compiling() else F.dropout(numbers, share)
    # A processor draws numbers one after the other, and torch one for each element: a sixth of a small training step.
    # One draw of sixty-four bits is enough for four elements.
    draws = torch.empty((numbers.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    chances = draws.view(torch.int16)[: numbers.numel()].view(numbers.shape)
    forgotten = round(share * STEPS)
    kept = (chances >= forgotten - STEPS // 2).to(numbers.dtype)
    return numbers * (kept * (STEPS / (STEPS - forgotten)))


def mixed(numbers: Float[Tensor, "..."], share: float) -> Float[Tensor, "..."]:
    """The same by two numbers drawn for all, mixed with each one's place: for a compiler, which computes it on the way.

    A compiler draws ten rounds of Philox for each number, which takes a GPU three times as long as to read and write
    it. These are two rounds of xor-shift and multiply, with constants from Wellons' search for the least bias. Places
    beyond thirty-two bits come round again.
    """
    one, other = torch.randint(-(1 << 31), 1 << 31, (2,), device=numbers.device, dtype=torch.int64).int().unbind()
    bits = torch.arange(numbers.numel(), device=numbers.device, dtype=torch.int32).view(numbers.shape) + one
    bits = (bits ^ (bits >> 16 & 0xFFFF)) * 0x7FEB352D  # a shift repeats the sign, and the mask takes it off again
    bits = (bits ^ (bits >> 15 & 0x1FFFF) ^ other) * (0x846CA68B - (1 << 32))
    forgotten = round(share * (1 << 32))
    kept = (bits >= forgotten - (1 << 31)).to(numbers.dtype)
    return numbers * (kept * ((1 << 32) / ((1 << 32) - forgotten)))
