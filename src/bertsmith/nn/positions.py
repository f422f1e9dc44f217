"""Position embeddings: sinusoidal positions, learned positions, and rotary position embedding (RoPE)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class LearnedPositions(nn.Module):
    """A table of vectors, one per place, learned like any other weight. Devlin et al. 2018, figure 2.

    RoBERTa's begins behind the number of its padding piece, so that a few rows are never read.
    """

    def __init__(self, length: int, width: int, offset: int = 0) -> None:
        super().__init__()
        self.offset = offset
        self.weight = nn.Parameter(torch.empty(length + offset, width).normal_(std=0.02))

    def forward(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
        return F.embedding(positions + self.offset if self.offset else positions, self.weight)


class SinusoidalPositions(nn.Module):
    """Fixed waves, slower from one pair of columns to the next. Vaswani et al. 2017, section 3.5.

    Or in `halves`, all sines before all cosines, as the authors' code had them and translators of today have.
    """

    weight: Tensor

    def __init__(self, length: int, width: int, *, halves: bool = False) -> None:
        super().__init__()
        # Saved with the weights, so that a folder can hand it to readers who only know a learned table.
        self.register_buffer("weight", sinusoids(length, width, halves=halves))

    def forward(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
        return F.embedding(positions, self.weight)


class RotaryPositions(nn.Module):
    """Queries and keys are turned by angles that grow with the place, so that only distances tell. Su et al. 2021.

    The first half of a head's numbers are one side of the pairs that turn together, the second half the other.
    """

    def __init__(self, head_width: int, base: float) -> None:
        super().__init__()
        self.head_width, self.base = head_width, base

    def forward(self, positions: Int[Tensor, "T"]) -> tuple[Float[Tensor, "T 3 1 R"], Float[Tensor, "T 3 1 R"]]:
        """The cosine and the sine of each place's angles for query, key and value, and for every head alike."""
        cosine, sine = _angles(positions, self.head_width, self.base)
        still, nought = torch.ones_like(cosine), torch.zeros_like(sine)  # values are not turned
        return torch.stack((cosine, cosine, still), 1)[:, :, None], torch.stack((sine, sine, nought), 1)[:, :, None]


# An operation of its own, so that a compiler does not compute powers and waves anew for every head of every layer.
@torch.library.custom_op("bertsmith::angles", mutates_args=())
def _angles(positions: Tensor, head_width: int, base: float) -> tuple[Tensor, Tensor]:
    # In full precision, whatever the weights are in: half of it cannot tell the places of a long text apart.
    steps = torch.arange(0, head_width, 2, dtype=torch.float32, device=positions.device)
    angles = positions[:, None].float() * (1.0 / base ** (steps / head_width))
    return angles.cos(), angles.sin()


@_angles.register_fake
def _(positions: Tensor, head_width: int, base: float) -> tuple[Tensor, Tensor]:
    empty = positions.new_empty((len(positions), head_width // 2), dtype=torch.float32)
    return empty, torch.empty_like(empty)


def apply_rotary(
    qkv: Float[Tensor, "T 3 H K"], rotary: tuple[Float[Tensor, "T 3 1 R"], Float[Tensor, "T 3 1 R"]]
) -> Float[Tensor, "T 3 H K"]:
    """Query, key and value turned by the angles of their places, side by side as they were."""
    cosine, sine = rotary
    left, right = torch.unflatten(qkv.float(), 3, (2, -1)).unbind(3)
    return torch.stack((left * cosine - right * sine, right * cosine + left * sine), 3).flatten(3).to(qkv.dtype)


def sinusoids(length: int, width: int, *, halves: bool = False) -> Float[Tensor, "L D"]:
    """sin(place / 10000^(2i/D)) in column 2i, the cosine of the same in column 2i + 1; or one half behind the other."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    if halves:
        return torch.cat((angles.sin(), angles.cos()), 1)[:, :width].float()
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)[:, :width].float()
