"""Linear cross-entropy whose gradients overwrite the logits against the plain one in float64."""

import sys

import pytest
import scripts
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.nn.kernels import linear_cross_entropy_cpu


def drawn(
    positions: int, vocabulary: int, width: int, dtype: torch.dtype = torch.float32
) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(positions)
    parts = [
        torch.randn(shape, generator=generator) for shape in ((positions, width), (vocabulary, width), (vocabulary,))
    ]
    targets = torch.randint(vocabulary, (positions,), generator=generator)
    targets[torch.rand(positions, generator=generator) < 0.2] = -100
    return [part.to(dtype).requires_grad_() for part in parts], targets


def assert_alike(given: list[Tensor], targets: Tensor, most: float) -> None:
    """The loss and its gradients, with a factor, as the mean over many predictions has one."""
    exact = [part.detach().double().requires_grad_() for part in given]
    true = F.cross_entropy(F.linear(*exact), targets, reduction="sum", ignore_index=-100)
    found = linear_cross_entropy_cpu.linear_cross_entropy(
        given[0], given[1], given[2] if len(given) > 2 else None, targets
    )
    assert found.dtype == torch.promote_types(given[0].dtype, torch.float32)
    torch.testing.assert_close(found.double(), true, rtol=most, atol=most)
    for part, one, other in zip(
        given, torch.autograd.grad(found / 7, given), torch.autograd.grad(true / 7, exact), strict=True
    ):
        assert (one.shape, one.dtype) == (part.shape, part.dtype)
        assert (one.double() - other).norm() <= most * other.norm()


@pytest.mark.parametrize("chunk", [1, 700, 2**24])
@pytest.mark.parametrize("in_cache", [1, 250, 2**20])
@pytest.mark.parametrize(("positions", "vocabulary", "width"), [(1, 2, 4), (7, 100, 8), (12, 5000, 16)])
def test_loss_and_gradients_are_those_of_the_plain_one_for_any_chunk(
    positions: int, vocabulary: int, width: int, chunk: int, in_cache: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_cross_entropy_cpu, "CHUNK", chunk)
    monkeypatch.setattr(linear_cross_entropy_cpu, "IN_CACHE", in_cache)
    assert_alike(*drawn(positions, vocabulary, width), most=1e-5)


def test_float64_stays_float64() -> None:
    assert_alike(*drawn(9, 60, 8, torch.float64), most=1e-13)


def test_bfloat16_loses_no_more_than_its_rounding() -> None:
    assert_alike(*drawn(40, 300, 16, torch.bfloat16), most=2e-2)


def test_products_follow_autocast() -> None:
    """As those of `F.linear` do, with nearly the same rounding."""
    given, targets = drawn(40, 300, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear_cross_entropy_cpu.available(given[0], given[1])
        assert linear_cross_entropy_cpu.available(given[0].bfloat16(), given[1])
        found = linear_cross_entropy_cpu.linear_cross_entropy(*given, targets)  # type: ignore[arg-type]
        true = F.cross_entropy(F.linear(*given).float(), targets, reduction="sum", ignore_index=-100)
    full = F.cross_entropy(F.linear(*given), targets, reduction="sum", ignore_index=-100)
    torch.testing.assert_close(found, true, rtol=3e-3, atol=0)
    assert not torch.allclose(found, full, rtol=1e-5, atol=0)
    for one, other in zip(torch.autograd.grad(found, given), torch.autograd.grad(true, given), strict=True):
        assert one.dtype == other.dtype == torch.float32
        assert (one - other).norm() <= 2e-2 * other.norm()


def test_a_table_without_a_bias() -> None:
    given, targets = drawn(9, 60, 8)
    assert_alike(given[:2], targets, most=1e-5)


def test_without_targets_the_loss_is_zero() -> None:
    given, targets = drawn(5, 20, 4)
    total = linear_cross_entropy_cpu.linear_cross_entropy(*given, torch.full_like(targets, -100))  # type: ignore[arg-type]
    assert total == 0
    assert not any(gradient.any() for gradient in torch.autograd.grad(total, given))


def test_without_positions_the_loss_is_zero() -> None:
    given, targets = drawn(0, 20, 4)
    total = linear_cross_entropy_cpu.linear_cross_entropy(*given, targets)  # type: ignore[arg-type]
    assert total == 0
    assert not any(gradient.any() for gradient in torch.autograd.grad(total, given))


def test_large_logits_have_a_finite_loss() -> None:
    (hidden, table, bias), targets = drawn(6, 50, 4)
    assert_alike([(300 * hidden).detach().requires_grad_(), table, bias], targets, most=1e-5)


def test_the_callback_gets_every_probability_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_cross_entropy_cpu, "CHUNK", 300)
    monkeypatch.setattr(linear_cross_entropy_cpu, "IN_CACHE", 100)
    given, targets = drawn(11, 50, 4)
    seen = torch.zeros(11, 50)

    def add(chunk: slice, probabilities: Tensor) -> None:
        seen[chunk] += probabilities

    linear_cross_entropy_cpu.linear_cross_entropy(*given, targets, add)  # type: ignore[arg-type]
    torch.testing.assert_close(seen, F.linear(*given).detach().softmax(1))


@pytest.mark.slow("it measures memory in a process")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not report the peak memory of a process")
def test_the_logits_of_all_positions_never_exist_at_once() -> None:
    scripts.run(__file__, "linear_cross_entropy_memory.py", "less_than_all_logits")


def test_it_is_available_in_training_on_a_cpu_only() -> None:
    hidden, table = torch.zeros(2, 4), torch.zeros(3, 4)
    assert linear_cross_entropy_cpu.available(hidden, table)
    assert not linear_cross_entropy_cpu.available(hidden, table.bfloat16())
    assert not linear_cross_entropy_cpu.available(hidden.to("meta"), table.to("meta"))
    with torch.no_grad():
        assert not linear_cross_entropy_cpu.available(hidden, table)
