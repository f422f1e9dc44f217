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


class Rotary(nn.Module):
    """Queries and keys are turned by angles that grow with the place, so that only distances tell. Su et al. 2021.

    The first half of a head's numbers are one side of the pairs that turn together, the second half the other.
    """

    def __init__(self, head_width: int, base: float) -> None:
        super().__init__()
        self.head_width, self.base = head_width, base

    def forward(self, positions: Int[Tensor, "T"]) -> tuple[Float[Tensor, "T 1 K"], Float[Tensor, "T 1 K"]]:
        """The cosine and the sine of each place's angles, for every head alike."""
        # In full precision, whatever the weights are in: half of it cannot tell the places of a long text apart.
        steps = torch.arange(0, self.head_width, 2, dtype=torch.float32, device=positions.device)
        angles = positions[:, None].float() * (1.0 / self.base ** (steps / self.head_width))
        angles = torch.cat((angles, angles), 1)[:, None]
        return angles.cos(), angles.sin()


def turned(
    vectors: Float[Tensor, "*any K"], turn: tuple[Float[Tensor, "*any_1 K"], Float[Tensor, "*any_1 K"]]
) -> Float[Tensor, "*any K"]:
    """Vectors turned by the angles of their places."""
    cosine, sine = turn
    left, right = vectors.float().chunk(2, -1)
    return (vectors * cosine + torch.cat((-right, left), -1) * sine).to(vectors.dtype)


def waves(length: int, width: int) -> Float[Tensor, "L D"]:
    """sin(place / 10000^(2i/D)) in column 2i, the cosine of the same in column 2i + 1."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)[:, :width].float()
