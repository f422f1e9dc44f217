"""Muon against its definition by singular values, one matrix at a time in double precision, and against PyTorch's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bertsmith.train.muon import COEFFICIENTS, EPSILON, NEWTON_SCHULZ_STEPS, orthogonalise, step, update_scale

LEAST, MOST = 0.68, 1.21  # where singular values end that were at least 1 / 500 of the matrix's length
SHAPES = [(8, 8), (4, 12), (12, 4), (1, 5), (5, 1), (1, 1)]
GOOD, BAD = torch.tensor(False), torch.tensor(True)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def conditioned(rows: int, columns: int, condition: float, seed: int = 0) -> Tensor:
    """A matrix whose largest singular value is so many times its smallest."""
    left, _, right = torch.linalg.svd(drawn(rows, columns, seed=seed), full_matrices=False)
    return left * torch.logspace(0, -torch.tensor(condition).log10(), min(rows, columns), dtype=torch.float64) @ right


def bent(values: Tensor) -> Tensor:
    """What the rounds do to singular values."""
    for _ in range(NEWTON_SCHULZ_STEPS):
        values = sum(weight * values**power for weight, power in zip(COEFFICIENTS, (1, 3, 5), strict=True))
    return values


def by_singular_values(matrix: Tensor) -> Tensor:
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return left * bent(values / values.square().sum().sqrt().clamp(min=EPSILON)) @ right


@settings(deadline=None, max_examples=60)
@given(rows=st.integers(1, 24), columns=st.integers(1, 24), count=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_singular_vectors_stay_and_singular_values_follow_the_polynomial(
    rows: int, columns: int, count: int, seed: int
) -> None:
    matrices = drawn(count, rows, columns, seed=seed)
    expected = torch.stack([by_singular_values(matrix) for matrix in matrices])
    torch.testing.assert_close(orthogonalise(matrices), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("condition", [1.0, 10.0, 300.0, 1e6])
@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (16, 64), (64, 16), (96, 8)])
def test_singular_values_end_near_one(rows: int, columns: int, condition: float, dtype: torch.dtype) -> None:
    matrix = conditioned(rows, columns, condition).to(dtype)
    before = torch.linalg.svdvals(matrix)
    before = before / before.norm()
    after = torch.linalg.svdvals(orthogonalise(matrix[None])[0])
    large = before >= 1 / 500
    assert large.any()
    assert bool((after[: int(large.sum())] >= LEAST).all())
    assert float(after.max()) <= MOST
    assert bool((by_singular_values(matrix.double()).norm() - after.norm()).abs() < 1e-3)


def test_the_stated_band_is_that_of_the_polynomial() -> None:
    values = bent(torch.linspace(1 / 500, 1, 1_000_001, dtype=torch.float64))
    assert pytest.approx((LEAST, MOST), abs=0.01) == (float(values.min()), float(values.max()))
    small = torch.logspace(-9, -3, 1000, dtype=torch.float64)
    assert bool((bent(small) <= 485 * small).all())


def test_half_precision_keeps_the_values_near_one() -> None:
    """As on a GPU: products of bfloat16. The band is a few roundings wider."""
    after = torch.linalg.svdvals(orthogonalise(drawn(3, 64, 192, dtype=torch.bfloat16)).float())
    assert float(after.min()) >= LEAST - 0.05
    assert float(after.max()) <= MOST + 0.05


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_a_zero_matrix_stays_zero_in_a_stack(rows: int, columns: int) -> None:
    matrices = drawn(3, rows, columns, dtype=torch.float32)
    matrices[1] = 0
    result = orthogonalise(matrices)
    assert torch.equal(result[1], torch.zeros(rows, columns))
    torch.testing.assert_close(result[::2].double(), orthogonalise(matrices[::2].double()), rtol=0, atol=1e-4)


@pytest.mark.parametrize("length", [1e-30, 1e-10, 1e-3, 1e6])
def test_only_next_to_nothing_depends_on_the_length(length: float) -> None:
    matrix = drawn(1, 6, 9, dtype=torch.float32)
    matrix /= matrix.norm()
    result = orthogonalise(matrix * length)
    assert bool(torch.isfinite(result).all())
    if length > EPSILON:
        torch.testing.assert_close(result, orthogonalise(matrix), rtol=0, atol=1e-4)
    else:
        assert float(result.norm()) <= 485 * length / EPSILON


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_a_transposed_matrix_gives_the_transposed_answer(rows: int, columns: int) -> None:
    matrices = drawn(2, rows, columns)
    torch.testing.assert_close(orthogonalise(matrices.mT), orthogonalise(matrices).mT, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_a_batch_equals_its_sequences_one_by_one(rows: int, columns: int) -> None:
    matrices = drawn(5, rows, columns, dtype=torch.float32)
    alone = torch.cat([orthogonalise(matrix[None]) for matrix in matrices])
    torch.testing.assert_close(orthogonalise(matrices), alone, rtol=0, atol=2e-5)


def plain(weight: Tensor, gradients: list[Tensor], *, rate: float, momentum: float, decay: float) -> Tensor:
    """Muon as its papers write it, for one matrix: B = m B + G; W = W - r d W - r s O(G + m B)."""
    kept = torch.zeros_like(weight)
    for gradient in gradients:
        kept = momentum * kept + gradient
        direction = by_singular_values(gradient + momentum * kept)
        taller = max(1.0, weight.shape[0] / weight.shape[1])
        weight = weight - rate * decay * weight - rate * taller**0.5 * direction
    return weight


@pytest.mark.parametrize("momentum", [0.0, 0.95])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_a_batched_step_is_the_plain_one_for_every_matrix(rows: int, columns: int, momentum: float) -> None:
    counts = (3, 1, 2)
    weights = [drawn(count, rows, columns, seed=count) for count in counts]
    before = torch.cat(weights)
    momenta = [torch.zeros_like(weight) for weight in weights]
    gradients = [[drawn(count, rows, columns, seed=9 * turn + count) for count in counts] for turn in range(1, 4)]
    for given_now in gradients:
        rate = torch.tensor(0.03, dtype=torch.float64)
        step(weights, given_now, momenta, rate, GOOD, momentum=momentum, weight_decay=0.2)
    together = [torch.cat(given_now) for given_now in gradients]
    for index, after in enumerate(torch.cat(weights)):
        own = [given_now[index] for given_now in together]
        expected = plain(before[index], own, rate=0.03, momentum=momentum, decay=0.2)
        torch.testing.assert_close(after, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (16, 4), (4, 16)])
def test_it_is_pytorchs_own_in_full_precision(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = torch.nn.Parameter(drawn(rows, columns, dtype=torch.float32))
    optimizer = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, momentum=0.9)
    ours, kept = theirs.detach().clone()[None], torch.zeros(1, rows, columns)
    # PyTorch's always works in half precision; so that all digits can be compared, it is made not to.
    monkeypatch.setattr(Tensor, "bfloat16", Tensor.clone)
    for turn in range(5):
        gradient = drawn(rows, columns, seed=turn + 1, dtype=torch.float32)
        theirs.grad = gradient.clone()
        optimizer.step()
        step([ours], [gradient[None]], [kept], torch.tensor(0.02), GOOD, momentum=0.9, weight_decay=0.1)
    torch.testing.assert_close(ours[0], theirs.detach(), rtol=0, atol=2e-6)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_bad_step_leaves_every_bit_and_the_next_goes_on(broken: float) -> None:
    weights, momenta = [drawn(2, 4, 6, dtype=torch.float32)], [drawn(2, 4, 6, seed=1, dtype=torch.float32)]
    before, kept = weights[0].clone(), momenta[0].clone()
    gradient = drawn(2, 4, 6, seed=2, dtype=torch.float32)
    spoilt = gradient.clone()
    spoilt[1, 2, 3] = broken
    step(weights, [spoilt], momenta, torch.tensor(0.1), BAD, momentum=0.95, weight_decay=0.3)
    assert torch.equal(weights[0].view(torch.int32), before.view(torch.int32))
    assert torch.equal(momenta[0].view(torch.int32), kept.view(torch.int32))
    step(weights, [gradient], momenta, torch.tensor(0.1), GOOD, momentum=0.95, weight_decay=0.3)
    assert bool(torch.isfinite(weights[0]).all())
    assert not torch.equal(weights[0], before)


def test_weight_decay_is_decoupled() -> None:
    weights, nothing = [drawn(2, 4, 6)], [torch.zeros(2, 4, 6, dtype=torch.float64)]
    before = weights[0].clone()
    step(weights, nothing, [torch.zeros_like(before)], torch.tensor(0.1), GOOD, momentum=0.95, weight_decay=0.3)
    torch.testing.assert_close(weights[0], before * (1 - 0.1 * 0.3), rtol=1e-7, atol=0)


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(1, 12), columns=st.integers(1, 12), rate=st.floats(1e-4, 1), seed=st.integers(0, 2**31))
def test_an_update_is_never_larger_than_the_learning_rate_allows(
    rows: int, columns: int, rate: float, seed: int
) -> None:
    weight = torch.zeros(1, rows, columns, dtype=torch.float64)
    gradient = drawn(1, rows, columns, seed=seed)
    step([weight], [gradient], [torch.zeros_like(weight)], torch.tensor(rate), GOOD, momentum=0.95, weight_decay=0.0)
    assert float(torch.linalg.svdvals(weight[0]).max()) <= MOST * rate * update_scale(rows, columns) * (1 + 1e-6)


def test_a_gradient_is_read_and_not_written() -> None:
    gradient = drawn(1, 3, 4)
    before = gradient.clone()
    step([drawn(1, 3, 4)], [gradient], [drawn(1, 3, 4)], torch.tensor(0.1), GOOD, momentum=0.9, weight_decay=0.0)
    assert torch.equal(gradient, before)


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (48, 192), (192, 48)])
def test_on_a_gpu_half_precision_stays_near_the_exact_answer(rows: int, columns: int) -> None:
    matrices = drawn(4, rows, columns)
    result = orthogonalise(matrices.float().cuda())
    assert result.dtype == torch.bfloat16
    values = torch.linalg.svdvals(result.float())
    assert float(values.max()) <= MOST + 0.05
    exact = torch.stack([by_singular_values(matrix) for matrix in matrices])
    assert float((result.cpu().double() - exact).norm() / exact.norm()) < 0.03  # 0.017 with the same products on a CPU
