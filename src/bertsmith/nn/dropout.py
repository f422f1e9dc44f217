"""Dropout: in training some numbers are set to zero and the rest scaled up. Srivastava et al. 2014."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

RESOLUTION = 1 << 16  # of the random bits: the probability is met to within one part in 2**16
GOLDEN_RATIO = 0x9E3779B1 - (1 << 32)  # multiplicative hashing: spreads consecutive positions over 32 bits
GOLDEN_RATIO_INVERSE = 0x0E8B2F51  # modulo 2**32


class Dropout(nn.Module):
    """Dropout as a module: active in training only."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return dropout(numbers, self.probability) if self.training else numbers


def dropout(numbers: Float[Tensor, "..."], probability: float) -> Float[Tensor, "..."]:
    """Set each number to zero with this probability, by the device's random generator."""
    if probability == 0:
        return numbers
    if numbers.device.type != "cpu":
        return (
            hashed_dropout(numbers, probability) if torch.compiler.is_compiling() else F.dropout(numbers, probability)
        )
    # A CPU draws random numbers one by one, and torch one for each element: a sixth of a small training step. A draw
    # of 64 bits is enough for four elements.
    draws = torch.empty((numbers.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    bits = draws.view(torch.int16)[: numbers.numel()].view(numbers.shape)
    threshold = round(probability * RESOLUTION)
    keep = (bits >= threshold - RESOLUTION // 2).to(numbers.dtype)
    return numbers * (keep * (RESOLUTION / (RESOLUTION - threshold)))


def hashed_dropout(numbers: Float[Tensor, "... D"], probability: float) -> Float[Tensor, "... D"]:
    """Dropout by hashing, for compiled code: two random keys are drawn, and the mask is computed from them.

    A compiler would run ten rounds of Philox for each number, which takes a GPU three times as long as to read and
    write it. Here each row and each column has hashed bits, and their product decides, as in `kernels/shared.py`.
    """
    return dropout_by_keys(numbers, probability, draw_keys(numbers.device))


def draw_keys(device: torch.device) -> Int[Tensor, "2"]:
    """The two random keys of a mask, drawn by the device's generator."""
    return torch.randint(-(1 << 31), 1 << 31, (2,), device=device, dtype=torch.int64).int()


def dropout_by_keys(
    numbers: Float[Tensor, "... D"], probability: float, keys: Int[Tensor, "2"]
) -> Float[Tensor, "... D"]:
    """Dropout whose mask is a function of two random keys."""
    columns = numbers.shape[-1]
    counts = numbers.numel() // columns, columns
    row_bits, column_bits = (_hash_bits(count, key) for count, key in zip(counts, keys.unbind(), strict=True))
    bits = (row_bits[:, None] * column_bits).view(numbers.shape)
    threshold = round(probability * (1 << 32))
    keep = (bits >= threshold - (1 << 31)).to(numbers.dtype)
    return numbers * (keep * ((1 << 32) / ((1 << 32) - threshold)))


def _hash_bits(count: int, seed: Int[Tensor, ""]) -> Int[Tensor, "L"]:
    """32 hashed bits for each of `count` positions."""
    # position * GOLDEN_RATIO + seed, as in `kernels/shared.py`, but in another order: inductor takes a plain arange for
    # an address, and writes its factor with more than 32 bits where it splits a sum over rows, which does not compile.
    positions = torch.arange(count, device=seed.device, dtype=torch.int32) + seed * GOLDEN_RATIO_INVERSE
    bits = positions * GOLDEN_RATIO
    return (bits ^ (bits >> 15 & 0x1FFFF)) * (0x846CA68B - (1 << 32))  # the mask removes the shift's sign bits
