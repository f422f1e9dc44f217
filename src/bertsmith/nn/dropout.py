"""Dropout: in training a share of the numbers is forgotten, and the rest made larger for it. Srivastava et al. 2014."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

RESOLUTION = 1 << 16  # of chance: the share is met to within one of them
GOLDEN_RATIO = 0x9E3779B1 - (1 << 32)  # neighbours multiplied by it lie far apart
GOLDEN_RATIO_INVERSE = 0x0E8B2F51  # multiplied by both, a number of thirty-two bits is what it was


class Dropout(nn.Module):
    """Forgets a share of what passes through while the network learns."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return dropout(numbers, self.probability) if self.training else numbers


def dropout(numbers: Float[Tensor, "..."], probability: float) -> Float[Tensor, "..."]:
    """Each number forgotten with this probability, by the device's own chance."""
    if probability == 0:
        return numbers
    if numbers.device.type != "cpu":
        return (
            hashed_dropout(numbers, probability) if torch.compiler.is_compiling() else F.dropout(numbers, probability)
        )
    # A processor draws numbers one after the other, and torch one for each element: a sixth of a small training step.
    # One draw of sixty-four bits is enough for four elements.
    draws = torch.empty((numbers.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    chances = draws.view(torch.int16)[: numbers.numel()].view(numbers.shape)
    forgotten = round(probability * RESOLUTION)
    kept = (chances >= forgotten - RESOLUTION // 2).to(numbers.dtype)
    return numbers * (kept * (RESOLUTION / (RESOLUTION - forgotten)))


def hashed_dropout(numbers: Float[Tensor, "... D"], probability: float) -> Float[Tensor, "... D"]:
    """The same by two numbers drawn for all: for a compiler, which computes the rest on the way.

    A compiler draws ten rounds of Philox for each number, which takes a GPU three times as long as to read and write
    it. Here each row has a number and each column, and the upper bits of their product decide, as in `program.kept`.
    """
    return dropout_by_keys(numbers, probability, draw_keys(numbers.device))


def draw_keys(device: torch.device) -> Int[Tensor, "2"]:
    """Two numbers by the device's own chance."""
    return torch.randint(-(1 << 31), 1 << 31, (2,), device=device, dtype=torch.int64).int()


def dropout_by_keys(
    numbers: Float[Tensor, "... D"], probability: float, keys: Int[Tensor, "2"]
) -> Float[Tensor, "... D"]:
    """What is left of the numbers, by two numbers drawn for all."""
    columns = numbers.shape[-1]
    counts = numbers.numel() // columns, columns
    rows, others = (_hash_bits(count, key) for count, key in zip(counts, keys.unbind(), strict=True))
    bits = (rows[:, None] * others).view(numbers.shape)
    forgotten = round(probability * (1 << 32))
    kept = (bits >= forgotten - (1 << 31)).to(numbers.dtype)
    return numbers * (kept * ((1 << 32) / ((1 << 32) - forgotten)))


def _hash_bits(count: int, seed: Int[Tensor, ""]) -> Int[Tensor, "L"]:
    """So many numbers of thirty-two bits, well mixed."""
    # Places times SPREAD, plus the key, as in `program.lots_of`: but places alone a compiler takes for an address. What
    # they are multiplied by it writes down in more bits than thirty-two, where it adds up rows in parts, and that does
    # not compile.
    places = torch.arange(count, device=seed.device, dtype=torch.int32) + seed * GOLDEN_RATIO_INVERSE
    bits = places * GOLDEN_RATIO
    return (bits ^ (bits >> 15 & 0x1FFFF)) * (0x846CA68B - (1 << 32))  # a shift repeats the sign, the mask takes it off
