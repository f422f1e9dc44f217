"""Muon's kernels against the same sums by torch; `ragged.py` says where each test runs."""

import pytest
import torch
from nn.ragged import everywhere
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

from bertsmith.nn.kernels import muon as kernels
from bertsmith.train import muon
from bertsmith.train.polar_express import polar_express

SHAPES = [(1, 8, 8), (3, 40, 24), (2, 24, 100)]  # within one program, and over several
shapes = pytest.mark.parametrize("shape", SHAPES)


def drawn(shape: tuple[int, ...], device: str, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


@everywhere
@shapes
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_average_and_direction_are_those_of_the_formula(
    device: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    gradient, average = drawn(shape, device), drawn(shape, device, 1)
    direction = torch.empty(shape, dtype=dtype, device=device)
    after = 0.95 * average + 0.05 * gradient
    kernels.nesterov_momentum(gradient, average, direction, torch.tensor(1.0, device=device), 0.95)
    torch.testing.assert_close(average, after, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(direction, (0.95 * after + 0.05 * gradient).to(dtype), rtol=1e-2, atol=1e-6)


@everywhere
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_bad_gradient_leaves_the_average_and_goes_nowhere(device: str, broken: float) -> None:
    gradient, average = torch.full((1, 4, 6), broken, device=device), drawn((1, 4, 6), device)
    direction, before = torch.ones_like(average), average.clone()
    kernels.nesterov_momentum(gradient, average, direction, torch.tensor(0.0, device=device), 0.95)
    assert torch.equal(average, before)
    assert torch.equal(direction, torch.zeros_like(before))


@everywhere
@shapes
@pytest.mark.parametrize("by_row", [True, False])
def test_every_weight_gets_the_scale_of_its_row_or_column(device: str, shape: tuple[int, ...], by_row: bool) -> None:
    weight, update = drawn(shape, device), drawn(shape, device, 1).bfloat16()
    scales = drawn((shape[0], shape[1], 1) if by_row else (shape[0], 1, shape[2]), device, 2)
    expected = 0.9 * weight + update.float() * scales
    kernels.apply_update(weight, update, scales, torch.tensor(0.9, device=device))
    torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("beta", [0.0, 0.9])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (48, 192), (192, 48)])
def test_steps_by_kernels_are_those_by_torch(
    rows: int, columns: int, beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Muon's twin: the same three steps, with the kernels and without; the products are bfloat16's in both."""
    ends = []
    for has_kernels in (True, False):
        monkeypatch.setattr(muon, "_has_kernels", lambda tensor, has=has_kernels: has)
        weights = [drawn((count, rows, columns), "cuda", count) for count in (3, 1)]
        momenta = [torch.zeros_like(weight) for weight in weights]
        thin = (rows, 1) if rows >= columns else (1, columns)
        moments = [torch.zeros(count, *thin, device="cuda") for count in (3, 1)] if beta else []
        for turn in range(3):
            gradients = [drawn((count, rows, columns), "cuda", 10 * turn + count) for count in (3, 1)]
            bad = torch.tensor(turn == 1, device="cuda")
            options = {"momentum": 0.9, "weight_decay": 0.1, "second_moments": moments, "beta": beta}
            rate = torch.tensor(0.1, device="cuda")
            muon.step(weights, gradients, momenta, rate, bad, iterations=polar_express(5), **options)
        ends.append((torch.cat(weights), torch.cat(momenta)))
    (weights_by_kernels, momenta_by_kernels), (weights_by_torch, momenta_by_torch) = ends
    torch.testing.assert_close(momenta_by_kernels, momenta_by_torch, rtol=1e-5, atol=1e-6)
    # The direction is rounded to bfloat16 before its norm is taken, and not after it.
    assert float((weights_by_kernels - weights_by_torch).norm() / weights_by_torch.norm()) < 2e-3
