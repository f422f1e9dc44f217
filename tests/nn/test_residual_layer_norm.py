"""Sum and norm in one pass against the plain way in double precision. Where each test runs, `ragged.py` says."""

import pytest
import torch
import torch.nn.functional as F
from nn.ragged import INSIDE, INTERPRETED, assert_near, everywhere, mixture
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

from bertsmith.nn.dropout import draw_keys, dropout_by_keys
from bertsmith.nn.kernels import residual_layer_norm as module
from bertsmith.nn.kernels.residual_layer_norm import residual_layer_norm

shapes = pytest.mark.parametrize(("tokens", "width"), [(1, 8), (9, 256), (50, 300), (7, 1024)])
NAMES = ("product", "bias", "beside", "weight", "shift")
EPS = 1e-12


def given(tokens: int, width: int, device: str) -> list[Tensor]:
    """Product, bias, what is beside, weight and shift."""
    chance, dtype = torch.Generator().manual_seed(tokens), torch.float32 if device == "cpu" else torch.bfloat16
    rows = [2 * torch.randn(tokens, width, generator=chance) + 0.5 for _ in range(2)]
    bias, shift = (torch.randn(width, generator=chance) / 2 for _ in range(2))
    weight = (0.5 + torch.rand(width, generator=chance)) * torch.randn(width, generator=chance).sign()
    parts = (rows[0], bias, rows[1], weight, shift)
    return [part.to(device, dtype).requires_grad_() for part in parts]


def plain(parts: list[Tensor], share: float, keys: Tensor) -> Tensor:
    product, bias, beside, weight, shift = parts
    return F.layer_norm(beside + dropout_by_keys(product + bias, share, keys), weight.shape, weight, shift, EPS)


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs them one after the other."""
    if INTERPRETED:
        monkeypatch.setattr(module, "FORWARD", module.FORWARD._replace(rows=8))
        monkeypatch.setattr(module, "BACKWARD", module.BACKWARD._replace(programs=3))


@everywhere
@shapes
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_it_is_the_plain_one_with_its_gradients(device: str, tokens: int, width: int, share: float) -> None:
    parts, keys = given(tokens, width, device), draw_keys(torch.device(device))
    exact = [part.detach().double().requires_grad_() for part in parts]
    found, true = residual_layer_norm(*parts, EPS, share, keys), plain(exact, share, keys)
    assert (found.dtype, found.shape) == (parts[0].dtype, true.shape)
    assert_near(found, true)
    slopes = torch.autograd.grad((found * mixture(found)).sum(), parts)
    true_slopes = torch.autograd.grad((true * mixture(found).double()).sum(), exact)
    for name, slope, other in zip(NAMES, slopes, true_slopes, strict=True):
        off = (slope.double() - other).norm() / other.norm()
        assert off < (2e-5 if device == "cpu" else 2e-2), (name, float(off))


@everywhere
def test_the_share_is_forgotten_and_another_one_by_other_keys(device: str) -> None:
    product, bias, beside, weight, shift = (part.detach() for part in given(32, 512, device))
    ones = torch.ones_like(weight)
    slopes = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        keys = draw_keys(torch.device(device))
        asked = product.clone().requires_grad_()
        found = residual_layer_norm(asked, bias, beside, ones, shift, EPS, 0.25, keys)
        slopes.append(torch.autograd.grad((found * mixture(found)).sum(), asked)[0] != 0)
    assert all(0.73 < float(kept.float().mean()) < 0.77 for kept in slopes)
    assert 0.55 < float((slopes[0] == slopes[1]).float().mean()) < 0.7  # 0.75 ** 2 + 0.25 ** 2


@everywhere
def test_what_is_added_up_is_added_up_in_one_order(device: str) -> None:
    parts, keys = given(40 if device == "cpu" else 5000, 40, device), draw_keys(torch.device(device))
    first, second = (torch.autograd.grad(residual_layer_norm(*parts, EPS, 0.1, keys).sum(), parts) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@everywhere
def test_a_weight_of_nought_leaves_every_other_gradient_right(device: str) -> None:
    parts, keys = given(20, 64, device), draw_keys(torch.device(device))
    with torch.no_grad():
        parts[3][5] = 0.0
    exact = [part.detach().double().requires_grad_() for part in parts]
    found, true = residual_layer_norm(*parts, EPS, 0.0, keys), plain(exact, 0.0, keys)
    slopes = torch.autograd.grad((found * mixture(found)).sum(), parts)
    true_slopes = torch.autograd.grad((true * mixture(found).double()).sum(), exact)
    others = torch.arange(64, device=found.device) != 5
    for name, slope, other in zip(NAMES, slopes, true_slopes, strict=True):
        assert slope.isfinite().all()
        off = (slope.double() - other)[..., others].norm() / other[..., others].norm()
        assert off < (2e-5 if device == "cpu" else 2e-2), (name, float(off))


@INSIDE
def test_rows_are_dealt_to_programs_without_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, keys = given(31, 24, "cpu"), draw_keys(torch.device("cpu"))
    true = torch.autograd.grad(residual_layer_norm(*parts, EPS, 0.1, keys).sum(), parts)
    for programs in (1, 4, 40):
        monkeypatch.setattr(module, "BACKWARD", module.BACKWARD._replace(programs=programs))
        torch.testing.assert_close(torch.autograd.grad(residual_layer_norm(*parts, EPS, 0.1, keys).sum(), parts), true)
