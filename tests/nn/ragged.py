"""Shared by the tests of our Triton attention kernels: the formula in float64, and where a test runs.

Every test of a kernel runs twice: on a CUDA device in bfloat16, and on a CPU in float32 under Triton's interpreter. The
interpreter is chosen by the environment before Triton is imported, so those tests run in another process, which
`test_interpreted.py` starts.
"""

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bertsmith.nn.window import FULL, Window

Attend = Callable[..., Tensor]  # `short_attention` or `long_attention`

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    from nn.interpreter import speed_up

    speed_up()
NOT_INTERPRETED = pytest.mark.skipif(INTERPRETED, reason="not for the interpreter")
INTERPRETER_ONLY = pytest.mark.skipif(not INTERPRETED, reason="test_interpreted.py runs it in another process")
CPU, CUDA = pytest.param("cpu", marks=INTERPRETER_ONLY), pytest.param("cuda", marks=pytest.mark.gpu)
WINDOWS = [Window(right=0), Window(64, 64), Window(5, 3), Window(left=40)]
HEADS = {"cpu": 1, "cuda": 2}  # where the number does not matter: the interpreter takes its time for each
everywhere = pytest.mark.parametrize("device", [CPU, CUDA])


def bounds_of(lengths: list[int], device: str) -> Tensor:
    return torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)


def make_qkv(lengths: list[int], device: str, heads: int = 2, width: int = 32, seed: int = 0) -> Tensor:
    """Query, key and value in one tensor, as a layer computes them."""
    drawn = torch.randn(sum(lengths), 3, heads, width, generator=torch.Generator().manual_seed(seed))
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    return drawn.to(device, dtype).requires_grad_()


def formula(qkv: Tensor, lengths: list[int], masks: list[Tensor] | None = None, window: Window = FULL) -> Tensor:
    """Attention in float64; `masks` are dropout masks of each sequence (H L L, already scaled)."""
    outputs = []
    for number, part in enumerate(torch.split(qkv.double(), lengths)):
        query, key, value = part.permute(1, 2, 0, 3)  # H L K
        scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
        visible = window.mask(lengths[number], lengths[number], qkv.device)
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        outputs.append(((weights if masks is None else weights * masks[number]) @ value).transpose(0, 1))
    return torch.cat(outputs)


def random_weights(found: Tensor) -> Tensor:
    return torch.randn(found.shape, generator=torch.Generator().manual_seed(1)).to(found)


def gradient_of(found: Tensor, qkv: Tensor) -> Tensor:
    [gradient] = torch.autograd.grad((found * random_weights(found)).sum(), qkv)
    return gradient


def assert_near(found: Tensor, true: Tensor) -> None:
    found, true = found.double(), true.double()
    if found.device.type == "cpu":
        torch.testing.assert_close(found, true, rtol=0, atol=5e-6)
    else:
        assert (found - true).norm() < 2e-2 * true.norm()
        torch.testing.assert_close(found, true, rtol=5e-2, atol=5e-2)


def masks_of(attend: Attend, lengths: list[int], heads: int, width: int, dropout: float, seed: Tensor) -> list[Tensor]:
    """The dropout mask of each sequence, found with queries of 0 and values that pick one key each."""
    device, bounds = str(seed.device), bounds_of(lengths, str(seed.device))
    zeros = torch.zeros(sum(lengths), heads, width, device=device)
    starts = bounds[:-1].repeat_interleave(bounds.diff())
    positions = torch.arange(sum(lengths), device=device) - starts
    masks_by_key = []
    for first in range(0, max(lengths), width):
        value = (positions[:, None] == first + torch.arange(width, device=device)).float()[:, None].expand_as(zeros)
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        parts = (part.to(dtype) for part in (zeros, zeros, value))
        masks_by_key.append(attend(*parts, bounds, max(lengths), dropout, seed))
    masks = torch.split(torch.cat(masks_by_key, 2), lengths)
    return [
        (part[:, :, :length] * length * (1 - dropout)).round().transpose(0, 1).double() / (1 - dropout)
        for part, length in zip(masks, lengths, strict=True)
    ]
