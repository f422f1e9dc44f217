"""GELU by the short formula against the library's own."""

import torch
import torch.nn.functional as F

from bertsmith.nn.activations import Gelu


def numbers() -> torch.Tensor:
    around = torch.linspace(-12, 12, 100_001)
    return torch.cat([around, torch.tensor([0.0, -0.0, 1e-30, -1e-30, 60.0, -60.0, 1e4, -1e4])])


def test_the_short_formula_is_gelu_and_so_is_its_slope() -> None:
    short, exact = numbers().requires_grad_(), numbers().double().requires_grad_()
    found, true = Gelu.apply(short), F.gelu(exact)
    torch.testing.assert_close(found.double(), true, rtol=3e-7, atol=5e-7)
    above = torch.randn(found.shape, generator=torch.Generator().manual_seed(0))
    [slope] = torch.autograd.grad(found, short, above)
    [true_slope] = torch.autograd.grad(true, exact, above.double())
    torch.testing.assert_close(slope.double(), true_slope, rtol=3e-7, atol=2e-6)


def test_half_precision_goes_in_and_comes_out() -> None:
    short = numbers().bfloat16().requires_grad_()
    found = Gelu.apply(short)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, F.gelu(short.float()).bfloat16(), rtol=8e-3, atol=5e-7)
    [slope] = torch.autograd.grad(found.sum(), short)
    assert slope.dtype == torch.bfloat16
