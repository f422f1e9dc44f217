"""What the tests of our own attention kernels have in common: the formula, and where a test runs.

Every test that runs a kernel stands once and runs twice: on a CUDA device in bfloat16, and on a CPU in float32 under
Triton's interpreter. The interpreter is chosen by the environment before Triton is imported, so those tests have a
process of their own, which `test_interpreted.py` starts.
"""

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bertsmith.nn.window import FULL, Window

Attend = Callable[..., Tensor]  # `short` or `long`

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    from nn.interpreter import quicken

    quicken()
OUTSIDE = pytest.mark.skipif(INTERPRETED, reason="not for the interpreter")
INSIDE = pytest.mark.skipif(not INTERPRETED, reason="test_interpreted.py runs it in a process of its own")
CPU, CUDA = pytest.param("cpu", marks=INSIDE), pytest.param("cuda", marks=pytest.mark.gpu)
REACHES = [Window(right=0), Window(64, 64), Window(5, 3), Window(left=40)]
everywhere = pytest.mark.parametrize("device", [CPU, CUDA])


def bounds_of(lengths: list[int], device: str) -> Tensor:
    return torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)


def product(lengths: list[int], device: str, heads: int = 2, width: int = 32, seed: int = 0) -> Tensor:
    """Query, key and value as a layer makes them, side by side."""
    drawn = torch.randn(sum(lengths), 3, heads, width, generator=torch.Generator().manual_seed(seed))
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    return drawn.to(device, dtype).requires_grad_()


def formula(whole: Tensor, lengths: list[int], masks: list[Tensor] | None = None, reach: Window = FULL) -> Tensor:
    """Softmax, then the mask of each sequence (H L L, already scaled), then the values. In float64."""
    taken = []
    for place, part in enumerate(torch.split(whole.double(), lengths)):
        query, key, value = part.permute(1, 2, 0, 3)  # H L K
        scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
        seen = reach.mask(lengths[place], lengths[place], whole.device)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        taken.append(((weights if masks is None else weights * masks[place]) @ value).transpose(0, 1))
    return torch.cat(taken)


def mixture(found: Tensor) -> Tensor:
    return torch.randn(found.shape, generator=torch.Generator().manual_seed(1)).to(found)


def slope(found: Tensor, whole: Tensor) -> Tensor:
    [gradient] = torch.autograd.grad((found * mixture(found)).sum(), whole)
    return gradient


def assert_near(found: Tensor, true: Tensor) -> None:
    found, true = found.double(), true.double()
    if found.device.type == "cpu":
        torch.testing.assert_close(found, true, rtol=0, atol=5e-6)
    else:
        assert (found - true).norm() < 2e-2 * true.norm()
        torch.testing.assert_close(found, true, rtol=5e-2, atol=5e-2)


def masks_of(attend: Attend, lengths: list[int], heads: int, width: int, dropout: float, seed: Tensor) -> list[Tensor]:
    """What each weight was multiplied by, sequence by sequence: by queries of nought and values that pick one key."""
    device, bounds = str(seed.device), bounds_of(lengths, str(seed.device))
    nought = torch.zeros(sum(lengths), heads, width, device=device)
    starts = bounds[:-1].repeat_interleave(bounds.diff())
    places = torch.arange(sum(lengths), device=device) - starts
    picked = []
    for first in range(0, max(lengths), width):
        value = (places[:, None] == first + torch.arange(width, device=device)).float()[:, None].expand_as(nought)
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        parts = (part.to(dtype) for part in (nought, nought, value))
        picked.append(attend(*parts, bounds, max(lengths), dropout, seed))
    every = torch.split(torch.cat(picked, 2), lengths)
    return [
        (part[:, :, :length] * length * (1 - dropout)).round().transpose(0, 1).double() / (1 - dropout)
        for part, length in zip(every, lengths, strict=True)
    ]
