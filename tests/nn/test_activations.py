import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.nn import activations
from bertsmith.nn.activations import ACTIVATIONS, gelu


def test_the_two_gelus_are_near_but_not_the_same() -> None:
    points = torch.linspace(-4, 4, 101)
    difference = (ACTIVATIONS["gelu"](points) - ACTIVATIONS["gelu_tanh"](points)).abs().max()
    assert 1e-5 < difference < 1e-3


@pytest.fixture(params=[True, False], ids=["x86", "elsewhere"])
def points(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    monkeypatch.setattr(activations, "X86", request.param)
    far = torch.tensor([-1e30, -40.0, -14.0, -0.0, 0.0, 14.0, 40.0, 1e30])
    return torch.cat([torch.linspace(-9, 9, 3001), far]).requires_grad_()


def test_gelu_is_torchs_bit_for_bit(points: Tensor) -> None:
    assert torch.equal(gelu(points), F.gelu(points))
    with torch.no_grad():
        assert torch.equal(gelu(points), F.gelu(points))


def test_its_gradient_is_that_of_float64(points: Tensor) -> None:
    weights = torch.linspace(-3, 3, len(points))
    [found] = torch.autograd.grad(gelu(points), points, weights)
    exact = points.detach().double().requires_grad_()
    [true] = torch.autograd.grad(F.gelu(exact), exact, weights.double())
    torch.testing.assert_close(found, true.float(), rtol=1e-6, atol=1e-6)


def test_nan_stays_nan(points: Tensor) -> None:
    bad = torch.tensor([float("nan"), 1.0], requires_grad=True)
    [found] = torch.autograd.grad(gelu(bad).sum(), bad)
    assert found.isnan().tolist() == [True, False]


def test_gradients_in_bfloat16_are_bfloat16(points: Tensor) -> None:
    half = points.detach().bfloat16().requires_grad_()
    [found] = torch.autograd.grad(gelu(half).sum(), half)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), torch.autograd.grad(gelu(points).sum(), points)[0], rtol=0.02, atol=0.02)
