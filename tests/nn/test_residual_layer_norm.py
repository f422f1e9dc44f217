"""Fused residual sum and layer norm against the plain ones in float64; `ragged.py` says where each test runs."""

import pytest
import torch
import torch.nn.functional as F
from nn.ragged import INTERPRETED, INTERPRETER_ONLY, assert_near, everywhere, random_weights
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

from bertsmith.nn.dropout import draw_keys, dropout_by_keys
from bertsmith.nn.kernels import residual_layer_norm as module
from bertsmith.nn.kernels.residual_layer_norm import residual_layer_norm

shapes = pytest.mark.parametrize(("tokens", "width"), [(1, 8), (9, 256), (50, 300), (7, 1024)])
NAMES = ("product", "bias", "residual", "weight", "norm_bias")
EPS = 1e-12


def given(tokens: int, width: int, device: str) -> list[Tensor]:
    """Product, bias, residual, norm weight and norm bias."""
    generator, dtype = torch.Generator().manual_seed(tokens), torch.float32 if device == "cpu" else torch.bfloat16
    rows = [2 * torch.randn(tokens, width, generator=generator) + 0.5 for _ in range(2)]
    bias, norm_bias = (torch.randn(width, generator=generator) / 2 for _ in range(2))
    weight = (0.5 + torch.rand(width, generator=generator)) * torch.randn(width, generator=generator).sign()
    parts = (rows[0], bias, rows[1], weight, norm_bias)
    return [part.to(device, dtype).requires_grad_() for part in parts]


def plain(parts: list[Tensor], dropout: float, keys: Tensor) -> Tensor:
    product, bias, residual, weight, norm_bias = parts
    return F.layer_norm(residual + dropout_by_keys(product + bias, dropout, keys), weight.shape, weight, norm_bias, EPS)


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs them one after the other."""
    if INTERPRETED:
        monkeypatch.setattr(module, "FORWARD", module.FORWARD._replace(rows=8))
        monkeypatch.setattr(module, "BACKWARD", module.BACKWARD._replace(programs=3))


@everywhere
@shapes
@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.5])
def test_output_and_gradients_are_those_of_the_plain_norm(device: str, tokens: int, width: int, dropout: float) -> None:
    parts, keys = given(tokens, width, device), draw_keys(torch.device(device))
    exact = [part.detach().double().requires_grad_() for part in parts]
    found, true = residual_layer_norm(*parts, EPS, dropout, keys), plain(exact, dropout, keys)
    assert (found.dtype, found.shape) == (parts[0].dtype, true.shape)
    assert_near(found, true)
    gradients = torch.autograd.grad((found * random_weights(found)).sum(), parts)
    true_gradients = torch.autograd.grad((true * random_weights(found).double()).sum(), exact)
    for name, gradient, other in zip(NAMES, gradients, true_gradients, strict=True):
        off = (gradient.double() - other).norm() / other.norm()
        assert off < (2e-5 if device == "cpu" else 2e-2), (name, float(off))


@everywhere
def test_dropout_drops_its_share_and_other_keys_give_another_mask(device: str) -> None:
    product, bias, residual, weight, norm_bias = (part.detach() for part in given(32, 512, device))
    ones = torch.ones_like(weight)
    gradients = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        keys = draw_keys(torch.device(device))
        leaf = product.clone().requires_grad_()
        found = residual_layer_norm(leaf, bias, residual, ones, norm_bias, EPS, 0.25, keys)
        gradients.append(torch.autograd.grad((found * random_weights(found)).sum(), leaf)[0] != 0)
    assert all(0.73 < float(mask.float().mean()) < 0.77 for mask in gradients)
    assert 0.55 < float((gradients[0] == gradients[1]).float().mean()) < 0.7  # 0.75 ** 2 + 0.25 ** 2


@everywhere
def test_gradients_are_deterministic(device: str) -> None:
    parts, keys = given(40 if device == "cpu" else 5000, 40, device), draw_keys(torch.device(device))
    first, second = (torch.autograd.grad(residual_layer_norm(*parts, EPS, 0.1, keys).sum(), parts) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@everywhere
def test_a_norm_weight_of_zero_leaves_every_other_gradient_right(device: str) -> None:
    parts, keys = given(20, 64, device), draw_keys(torch.device(device))
    with torch.no_grad():
        parts[3][5] = 0.0
    exact = [part.detach().double().requires_grad_() for part in parts]
    found, true = residual_layer_norm(*parts, EPS, 0.0, keys), plain(exact, 0.0, keys)
    gradients = torch.autograd.grad((found * random_weights(found)).sum(), parts)
    true_gradients = torch.autograd.grad((true * random_weights(found).double()).sum(), exact)
    others = torch.arange(64, device=found.device) != 5
    for name, gradient, other in zip(NAMES, gradients, true_gradients, strict=True):
        assert gradient.isfinite().all()
        off = (gradient.double() - other)[..., others].norm() / other[..., others].norm()
        assert off < (2e-5 if device == "cpu" else 2e-2), (name, float(off))


@INTERPRETER_ONLY
def test_any_number_of_programs_covers_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, keys = given(31, 24, "cpu"), draw_keys(torch.device("cpu"))
    true = torch.autograd.grad(residual_layer_norm(*parts, EPS, 0.1, keys).sum(), parts)
    for programs in (1, 4, 40):
        monkeypatch.setattr(module, "BACKWARD", module.BACKWARD._replace(programs=programs))
        torch.testing.assert_close(torch.autograd.grad(residual_layer_norm(*parts, EPS, 0.1, keys).sum(), parts), true)
