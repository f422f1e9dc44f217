"""Position embeddings: sinusoidal positions, learned positions, and rotary position embedding (RoPE)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

Rotation = tuple[Float[Tensor, "T 3 1 R"], Float[Tensor, "T 3 1 R"]]  # cosines and sines of RoPE's angles


class LearnedPositions(nn.Module):
    """Learned positions: a table with a vector for each position. Devlin et al. 2018, figure 2.

    RoBERTa's begins after the id of its padding token, so that the first rows are never used.
    """

    def __init__(self, length: int, width: int, offset: int = 0) -> None:
        super().__init__()
        self.offset = offset
        self.weight = nn.Parameter(torch.empty(length + offset, width).normal_(std=0.02))

    def forward(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
        return F.embedding(positions + self.offset if self.offset else positions, self.weight)


class SinusoidalPositions(nn.Module):
    """Sinusoidal positions: fixed waves, slower from one pair of columns to the next. Vaswani et al. 2017, section 3.5.

    With `halves` all sines stand before all cosines, as in the authors' code and in Marian.
    """

    weight: Tensor

    def __init__(self, length: int, width: int, *, halves: bool = False) -> None:
        super().__init__()
        # Saved with the weights, for other libraries that only read a learned table.
        self.register_buffer("weight", sinusoids(length, width, halves=halves))

    def forward(self, positions: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
        return F.embedding(positions, self.weight)


class RotaryPositions(nn.Module):
    """Rotary position embedding (RoPE): queries and keys are rotated by angles that grow with the position, so that
    scores depend on distances only. Su et al. 2021.

    The first half of a head's dimensions holds one side of the rotated pairs, the second half the other.
    """

    def __init__(self, head_width: int, base: float) -> None:
        super().__init__()
        self.head_width, self.base = head_width, base

    def forward(self, positions: Int[Tensor, "T"]) -> Rotation:
        """Cosines and sines of each position's angles for query, key and value; all heads share them."""
        # An exported graph is made of operations that other runtimes know.
        angles = rotary_angles if torch.compiler.is_exporting() else _opaque_rotary_angles
        cosine, sine = angles(positions, self.head_width, self.base)
        one, zero = torch.ones_like(cosine), torch.zeros_like(sine)  # values are not rotated
        return torch.stack((cosine, cosine, one), 1)[:, :, None], torch.stack((sine, sine, zero), 1)[:, :, None]


def rotary_angles(positions: Tensor, head_width: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of each position's angles, one for each pair of a head's dimensions."""
    # In float32, whatever the weights are in: half precision cannot distinguish the positions of a long text.
    steps = torch.arange(0, head_width, 2, dtype=torch.float32, device=positions.device)
    angles = positions[:, None].float() * (1.0 / base ** (steps / head_width))
    return angles.cos(), angles.sin()


# An opaque operation: a compiler would compute powers, sines and cosines again for every head of every layer.
@torch.library.custom_op("bertsmith::rotary_angles", mutates_args=())
def _opaque_rotary_angles(positions: Tensor, head_width: int, base: float) -> tuple[Tensor, Tensor]:
    return rotary_angles(positions, head_width, base)


@_opaque_rotary_angles.register_fake
def _(positions: Tensor, head_width: int, base: float) -> tuple[Tensor, Tensor]:
    empty = positions.new_empty((len(positions), head_width // 2), dtype=torch.float32)
    return empty, torch.empty_like(empty)


def apply_rotary(qkv: Float[Tensor, "T 3 H K"], rotation: Rotation) -> Float[Tensor, "T 3 H K"]:
    """Query, key and value in one tensor, with query and key rotated by the angles of their positions."""
    cosine, sine = rotation
    left, right = torch.unflatten(qkv.float(), 3, (2, -1)).unbind(3)
    return torch.stack((left * cosine - right * sine, right * cosine + left * sine), 3).flatten(3).to(qkv.dtype)


def sinusoids(length: int, width: int, *, halves: bool = False) -> Float[Tensor, "L D"]:
    """sin(position / 10000^(2i/D)) in column 2i, its cosine in column 2i + 1; with `halves` all sines first."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    if halves:
        return torch.cat((angles.sin(), angles.cos()), 1)[:, :width].float()
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)[:, :width].float()
