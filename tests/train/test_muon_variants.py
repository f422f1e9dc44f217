"""Variants of Muon, each against its definition: Polar Express and NorMuon."""

from pathlib import Path

import pytest
import torch
from tiny import assert_same, fail_at, prepared, recipe
from torch import Tensor

from bertsmith.commands import pretrain
from bertsmith.train.muon import orthogonalise, step
from bertsmith.train.polar_express import optimal_quintics, polar_express

GOOD = torch.tensor(False)
RATE = torch.tensor(0.1, dtype=torch.float64)
PUBLISHED = [  # Amsel et al. 2025, algorithm 1, before the safety factor
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
]
ALL = ("optimizer.newton_schulz=polar_express", "optimizer.normuon_beta=0.9", "optimizer.hidden_optimizer=muon")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_polynomials_are_the_published_ones() -> None:
    for ours, theirs in zip(optimal_quintics(8, 1e-3), PUBLISHED, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    for ours, theirs in zip(polar_express(5), PUBLISHED[:5], strict=True):
        assert ours == pytest.approx([number / 1.01**power for number, power in zip(theirs, (1, 3, 5), strict=True)])


@pytest.mark.parametrize(("steps", "smallest"), [(3, 0.016), (4, 0.004), (5, 0.001), (6, 0.00025)])
def test_singular_values_end_near_one(steps: int, smallest: float) -> None:
    values = torch.linspace(smallest, 1, 100_001, dtype=torch.float64)
    for a, b, c in polar_express(steps):
        values = a * values + b * values**3 + c * values**5
    assert 0.83 <= float(values.min()) <= 0.87
    assert 1.1 <= float(values.max()) <= 1.15


@pytest.mark.parametrize("steps", [4, 5])
@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (16, 64), (64, 16)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_matrix_is_nearer_to_orthogonal_than_by_jordans(
    steps: int, rows: int, columns: int, dtype: torch.dtype
) -> None:
    matrices = drawn(3, rows, columns).to(dtype)
    polar, jordan = (
        torch.linalg.svdvals(orthogonalise(matrices, *how).float()) for how in ([polar_express(steps)], [])
    )
    large = torch.linalg.svdvals(matrices.float()) / matrices.float().norm(dim=(1, 2))[:, None] >= 0.005
    assert float((polar - 1)[large].abs().max()) < 0.2
    assert float((polar - 1)[large].square().mean()) < float((jordan - 1)[large].square().mean())


def run(weight: Tensor, gradients: list[Tensor], **options: object) -> tuple[Tensor, list[Tensor]]:
    """The weights after some steps of Muon without momentum, and the second moments."""
    weights, momenta = [weight.clone()], [torch.zeros_like(weight)]
    rows, columns = weight.shape[1:]
    shape = (rows, 1) if rows >= columns else (1, columns)
    moments = [torch.zeros(len(weight), *shape, dtype=weight.dtype)] if "beta" in options else []
    for gradient in gradients:
        step(weights, [gradient], momenta, RATE, GOOD, momentum=0.0, second_moments=moments, **options)
    return weights[0], moments


@pytest.mark.parametrize(("rows", "columns"), [(12, 4), (6, 6), (4, 12)])
def test_normuon_is_its_definition(rows: int, columns: int) -> None:
    """O / sqrt(v), with v the running mean of the squares in a row, and then the norm of O again."""
    gradients = [drawn(2, rows, columns, seed=seed) for seed in (1, 2, 3)]
    moved, (kept,) = run(torch.zeros(2, rows, columns).double(), gradients, weight_decay=0.0, beta=0.8)
    dimension, scale = (-1 if rows >= columns else -2), max(1, rows / columns) ** 0.5
    expected, running = torch.zeros(2, rows, columns).double(), 0.0
    for gradient in gradients:
        update = orthogonalise(gradient)
        running = 0.8 * running + 0.2 * update.square().mean(dimension, keepdim=True)
        scaled = update / running.sqrt()
        norms = [torch.linalg.matrix_norm(each, keepdim=True) for each in (update, scaled)]
        expected -= 0.1 * scale * scaled * norms[0] / norms[1]
    torch.testing.assert_close(moved, expected)
    torch.testing.assert_close(kept, running)


def test_normuon_evens_out_the_rows_and_keeps_the_norm() -> None:
    gradient = drawn(1, 12, 4)
    gradient[:, 0] *= 100  # a neuron whose gradient outweighs the others
    zero = torch.zeros(1, 12, 4).double()
    plain, _ = run(zero, [gradient], weight_decay=0.0)
    even, _ = run(zero, [gradient], weight_decay=0.0, beta=0.9)
    assert float(plain.norm(dim=2).std()) > 0.01
    assert float(even.norm(dim=2).std()) < 1e-9
    torch.testing.assert_close(even.norm(), plain.norm())


def test_a_zero_gradient_moves_nothing_with_normuon() -> None:
    moved, _ = run(torch.ones(1, 4, 3).double(), [torch.zeros(1, 4, 3).double()], weight_decay=0.0, beta=0.9)
    assert torch.equal(moved, torch.ones(1, 4, 3).double())


@pytest.mark.slow("trains")
def test_a_run_with_all_of_them_learns_and_resumes_exactly(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    changes = (*ALL, "train.steps=30", "train.evaluations=0")
    first = pretrain.pretrain(recipe(data, tmp_path / "none", *ALL, "train.steps=1", "train.evaluations=0"))
    last = pretrain.pretrain(recipe(data, tmp_path / "whole", *changes))
    assert last["masked_loss"] < first["masked_loss"] - 0.3
    fail_at(17, recipe(data, tmp_path / "broken", *changes))
    pretrain.pretrain(recipe(data, tmp_path / "broken", *changes))
    assert_same(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.gpu
def test_a_captured_run_learns_the_same_as_an_eager_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, seen = prepared(tmp_path), []
    for name in ("captured", "eager"):
        if name == "eager":
            monkeypatch.setattr(pretrain, "should_capture", lambda *_: False)
        changes = (*ALL, "train.steps=30", "train.precision=auto")
        seen.append(pretrain.pretrain(recipe(data, tmp_path / name, *changes))["masked_loss"])
    assert seen[0] == pytest.approx(seen[1], rel=1e-2)
