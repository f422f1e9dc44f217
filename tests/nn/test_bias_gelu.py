"""Fused bias and GELU against the plain ones in float64; `ragged.py` says where each test runs."""

import pytest
import torch
import torch.nn.functional as F
from nn.ragged import INTERPRETED, INTERPRETER_ONLY, assert_near, everywhere, random_weights
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
    gate, value = numbers.chunk(2, 1)
    return F.gelu(gate, approximate=shape) * value


def drawn(tokens: int, width: int, device: str) -> tuple[Tensor, Tensor]:
    generator, dtype = torch.Generator().manual_seed(tokens), torch.float32 if device == "cpu" else torch.bfloat16
    wide, bias = 2 * torch.randn(tokens, width, generator=generator), torch.randn(width, generator=generator)
    return wide.to(device, dtype).requires_grad_(), bias.to(device, dtype).requires_grad_()


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs them one after the other."""
    if INTERPRETED:
        monkeypatch.setattr(module, "SPLITS", 2)


@everywhere
@shapes
@kinds
def test_output_and_gradients_are_those_of_the_plain_gelu(
    device: str, tokens: int, width: int, biased: bool, gated: bool, tanh: bool
) -> None:
    wide, bias = drawn(tokens, width, device)
    given = [wide, bias] if biased else [wide]
    exact = [part.detach().double().requires_grad_() for part in given]
    found = bias_gelu(wide, bias if biased else None, gated=gated, tanh=tanh)
    true = plain(exact[0], exact[1] if biased else None, gated, tanh)
    assert (found.dtype, found.shape) == (wide.dtype, true.shape)
    assert_near(found, true)
    gradients = torch.autograd.grad((found * random_weights(found)).sum(), given)
    true_gradients = torch.autograd.grad((true * random_weights(found).double()).sum(), exact)
    assert_near(gradients[0], true_gradients[0])
    if biased:
        assert (gradients[1] - true_gradients[1]).norm() < (1e-5 if device == "cpu" else 1e-2) * true_gradients[
            1
        ].norm()


@INTERPRETER_ONLY
@pytest.mark.parametrize("tanh", [False, True])
def test_gelu_and_its_derivative_are_exact_to_bfloat16_at_every_bfloat16_number(tanh: bool) -> None:
    """Value and derivative are off by less than the rounding of half precision, except where both are nearly 0."""
    numbers = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(torch.bfloat16).float()
    wide = numbers[numbers.abs() < 10][None].requires_grad_()  # beyond, GELU is x or 0
    exact = wide.detach().double().requires_grad_()
    found, true = bias_gelu(wide, None, tanh=tanh), plain(exact, None, False, tanh)
    gradient, true_gradient = (
        torch.autograd.grad(output.sum(), given)[0] for output, given in ((found, wide), (true, exact))
    )
    for one, other in ((found, true), (gradient, true_gradient)):
        off = (one.double() - other).abs()
        assert (off <= 2.0**-11 * other.abs() + 1e-6).all()


@everywhere
def test_the_bias_gradient_is_deterministic(device: str) -> None:
    wide, bias = drawn(300, 40, device)
    found = [torch.autograd.grad(bias_gelu(wide, bias).sum(), bias)[0] for _ in range(2)]
    assert torch.equal(*found)


@INTERPRETER_ONLY
def test_any_number_of_splits_covers_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, bias = drawn(150, 24, "cpu")
    true = torch.autograd.grad(bias_gelu(wide, bias).sum(), [wide, bias])
    for splits in (1, 3, 20):
        monkeypatch.setattr(module, "SPLITS", splits)
        torch.testing.assert_close(torch.autograd.grad(bias_gelu(wide, bias).sum(), [wide, bias]), true)
