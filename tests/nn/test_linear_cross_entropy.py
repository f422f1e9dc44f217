"""Chunked linear cross-entropy against the plain one in float64; `ragged.py` says where each test runs."""

import pytest
import scripts
import torch
import torch.nn.functional as F
from nn.ragged import INTERPRETER_ONLY, everywhere
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

from bertsmith.nn.heads import pad_vocabulary
from bertsmith.nn.kernels import linear_cross_entropy as module
from bertsmith.nn.kernels.linear_cross_entropy import linear_cross_entropy


def drawn(positions: int, vocabulary: int, width: int, device: str) -> tuple[list[Tensor], Tensor]:
    generator, dtype = torch.Generator().manual_seed(positions), torch.float32 if device == "cpu" else torch.bfloat16
    parts = [
        torch.randn(shape, generator=generator) for shape in ((positions, width), (vocabulary, width), (vocabulary,))
    ]
    targets = torch.randint(vocabulary, (positions,), generator=generator)
    targets[torch.rand(positions, generator=generator) < 0.2] = -100
    return [part.to(device, dtype).requires_grad_() for part in parts], targets.to(device)


def plain(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, stored: torch.dtype) -> Tensor:
    """In float64, except that logits are rounded to the precision they are stored in."""
    logits = F.linear(hidden, table, bias)
    rounded = logits + (logits.to(stored).double() - logits).detach()
    return F.cross_entropy(rounded, targets, reduction="sum", ignore_index=-100)


def assert_alike(given: list[Tensor], targets: Tensor) -> None:
    """The loss and its gradients, with a factor, as the mean over many predictions has one."""
    exact = [part.detach().double().requires_grad_() for part in given]
    found, true = linear_cross_entropy(*given, targets), plain(*exact, targets, given[0].dtype)
    assert (found.shape, found.dtype) == ((), torch.float32)
    most = 1e-5 if given[0].device.type == "cpu" else 1e-2
    torch.testing.assert_close(found.double(), true, rtol=most, atol=most)
    gradients, true_gradients = torch.autograd.grad(found / 7, given), torch.autograd.grad(true / 7, exact)
    for mine, other in zip(gradients, true_gradients, strict=True):
        assert (mine.double() - other).norm() <= most * other.norm()


@everywhere
@pytest.mark.parametrize("chunk", [1, 700, 2**28])
@pytest.mark.parametrize(("positions", "vocabulary", "width"), [(1, 2, 4), (7, 100, 8), (12, 5000, 16)])
def test_loss_and_gradients_are_those_of_the_plain_one_for_any_chunk(
    device: str, positions: int, vocabulary: int, width: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    assert_alike(*drawn(positions, vocabulary, width, device))


@everywhere
def test_padding_of_the_vocabulary_has_no_probability(device: str) -> None:
    (hidden, table, _), targets = drawn(9, 100, 8, device)
    zeros = table.new_zeros(100)
    wide, narrow = (
        linear_cross_entropy(hidden, *pad_vocabulary(table, zeros), targets),
        linear_cross_entropy(hidden, table, zeros, targets),
    )
    torch.testing.assert_close(wide, narrow)
    for mine, other in zip(*(torch.autograd.grad(total, (hidden, table)) for total in (wide, narrow)), strict=True):
        torch.testing.assert_close(mine, other)


@everywhere
def test_without_targets_the_loss_is_zero(device: str) -> None:
    given, targets = drawn(5, 20, 4, device)
    total = linear_cross_entropy(*given, torch.full_like(targets, -100))
    assert total == 0
    assert not any(gradient.any() for gradient in torch.autograd.grad(total, given))


@everywhere
def test_large_logits_have_a_finite_loss(device: str) -> None:
    (hidden, table, bias), targets = drawn(6, 50, 4, device)
    given = [(300 * hidden).detach().requires_grad_(), table, bias]
    assert torch.isfinite(linear_cross_entropy(*given, targets))
    assert_alike(given, targets)


@INTERPRETER_ONLY
def test_the_fake_operation_has_the_true_shapes() -> None:
    given, targets = drawn(7, 30, 4, "cpu")
    torch.library.opcheck(
        module._loss_and_gradients, (*given, targets, True), test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.gpu
def test_compiled_it_takes_less_memory() -> None:
    scripts.run(__file__, "linear_cross_entropy_graphs.py", "on_a_device")
