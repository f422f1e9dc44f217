"""GELU in one pass against the plain one in double precision. Where each test runs, `ragged.py` says."""

import pytest
import torch
import torch.nn.functional as F
from nn.ragged import INSIDE, INTERPRETED, assert_near, everywhere, mixture
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

from bertsmith.nn.kernels import bias_gelu as module
from bertsmith.nn.kernels.bias_gelu import bias_gelu

shapes = pytest.mark.parametrize(("tokens", "width"), [(1, 8), (9, 256), (20, 300)])
kinds = pytest.mark.parametrize(
    ("biased", "gated", "tanh"), [(True, False, False), (False, True, False), (True, True, False), (True, False, True)]
)


def plain(wide: Tensor, bias: Tensor | None, gated: bool, tanh: bool) -> Tensor:
    numbers, shape = wide if bias is None else wide + bias, "tanh" if tanh else "none"
    if not gated:
        return F.gelu(numbers, approximate=shape)
    bent, passed = numbers.chunk(2, 1)
    return F.gelu(bent, approximate=shape) * passed


def drawn(tokens: int, width: int, device: str) -> tuple[Tensor, Tensor]:
    chance, dtype = torch.Generator().manual_seed(tokens), torch.float32 if device == "cpu" else torch.bfloat16
    wide, bias = 2 * torch.randn(tokens, width, generator=chance), torch.randn(width, generator=chance)
    return wide.to(device, dtype).requires_grad_(), bias.to(device, dtype).requires_grad_()


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs them one after the other."""
    if INTERPRETED:
        monkeypatch.setattr(module, "SPLITS", 2)


@everywhere
@shapes
@kinds
def test_it_is_the_plain_one_with_its_gradients(
    device: str, tokens: int, width: int, biased: bool, gated: bool, tanh: bool
) -> None:
    wide, bias = drawn(tokens, width, device)
    given = [wide, bias] if biased else [wide]
    exact = [part.detach().double().requires_grad_() for part in given]
    found = bias_gelu(wide, bias if biased else None, gated=gated, tanh=tanh)
    true = plain(exact[0], exact[1] if biased else None, gated, tanh)
    assert (found.dtype, found.shape) == (wide.dtype, true.shape)
    assert_near(found, true)
    slopes = torch.autograd.grad((found * mixture(found)).sum(), given)
    true_slopes = torch.autograd.grad((true * mixture(found).double()).sum(), exact)
    assert_near(slopes[0], true_slopes[0])
    if biased:
        assert (slopes[1] - true_slopes[1]).norm() < (1e-5 if device == "cpu" else 1e-2) * true_slopes[1].norm()


@INSIDE
@pytest.mark.parametrize("tanh", [False, True])
def test_every_number_of_half_precision_is_bent_as_exactly_as_it_can_be_written(tanh: bool) -> None:
    """Curve and slope are off by less than half precision rounds, wherever the curve has not run out to nought."""
    numbers = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(torch.bfloat16).float()
    wide = numbers[numbers.abs() < 10][None].requires_grad_()  # beyond, all of it passes or nothing
    exact = wide.detach().double().requires_grad_()
    found, true = bias_gelu(wide, None, tanh=tanh), plain(exact, None, False, tanh)
    slope, true_slope = (torch.autograd.grad(bent.sum(), given)[0] for bent, given in ((found, wide), (true, exact)))
    for one, other in ((found, true), (slope, true_slope)):
        off = (one.double() - other).abs()
        assert (off <= 2.0**-11 * other.abs() + 1e-6).all()


@everywhere
def test_what_is_added_up_is_added_up_in_one_order(device: str) -> None:
    wide, bias = drawn(300, 40, device)
    found = [torch.autograd.grad(bias_gelu(wide, bias).sum(), bias)[0] for _ in range(2)]
    assert torch.equal(*found)


@INSIDE
def test_rows_are_dealt_to_programs_without_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, bias = drawn(150, 24, "cpu")
    true = torch.autograd.grad(bias_gelu(wide, bias).sum(), [wide, bias])
    for strips in (1, 3, 20):
        monkeypatch.setattr(module, "SPLITS", strips)
        torch.testing.assert_close(torch.autograd.grad(bias_gelu(wide, bias).sum(), [wide, bias]), true)
