"""Positions: a vector for each place in a sequence, since attention alone cannot tell places apart."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class Learned(nn.Module):
    """A table of vectors, one per place, learned like any other weight. Devlin et al. 2018, figure 2."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, width).normal_(std=0.02))

    def forward(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
        return F.embedding(positions, self.weight)


class Sinusoidal(nn.Module):
    """Fixed waves, slower from one pair of columns to the next. Vaswani et al. 2017, section 3.5."""

    weight: Tensor

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        # Saved with the weights, so that a folder can hand it to readers who only know a learned table.
        self.register_buffer("weight", waves(length, width))

    def forward(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
        return F.embedding(positions, self.weight)


def waves(length: int, width: int) -> Float[Tensor, "L D"]:
    """sin(place / 10000^(2i/D)) in column 2i, the cosine of the same in column 2i + 1."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)[:, :width].float()
