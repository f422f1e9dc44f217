"""Cross-entropy some places at a time against the plain one in double precision. `ragged.py` says where a test runs."""

import pytest
import scripts
import torch
import torch.nn.functional as F
from nn.ragged import INSIDE, everywhere
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

from bertsmith.nn.heads import pad_vocabulary
from bertsmith.nn.kernels import linear_cross_entropy as module
from bertsmith.nn.kernels.linear_cross_entropy import linear_cross_entropy


def drawn(places: int, words: int, width: int, device: str) -> tuple[list[Tensor], Tensor]:
    dice, dtype = torch.Generator().manual_seed(places), torch.float32 if device == "cpu" else torch.bfloat16
    made = [torch.randn(shape, generator=dice) for shape in ((places, width), (words, width), (words,))]
    targets = torch.randint(words, (places,), generator=dice)
    targets[torch.rand(places, generator=dice) < 0.2] = -100
    return [part.to(device, dtype).requires_grad_() for part in made], targets.to(device)


def plain(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, kept: torch.dtype) -> Tensor:
    """In double precision, but for one thing: scores are rounded to the precision that they are kept in."""
    scores = F.linear(hidden, table, bias)
    rounded = scores + (scores.to(kept).double() - scores).detach()
    return F.cross_entropy(rounded, targets, reduction="sum", ignore_index=-100)


def assert_alike(given: list[Tensor], targets: Tensor) -> None:
    """The sum and its slopes, asked for with a factor, as the mean of many guesses has one."""
    exact = [part.detach().double().requires_grad_() for part in given]
    found, true = linear_cross_entropy(*given, targets), plain(*exact, targets, given[0].dtype)
    assert (found.shape, found.dtype) == ((), torch.float32)
    most = 1e-5 if given[0].device.type == "cpu" else 1e-2
    torch.testing.assert_close(found.double(), true, rtol=most, atol=most)
    slopes, true_slopes = torch.autograd.grad(found / 7, given), torch.autograd.grad(true / 7, exact)
    for mine, other in zip(slopes, true_slopes, strict=True):
        assert (mine.double() - other).norm() <= most * other.norm()


@everywhere
@pytest.mark.parametrize("at_once", [1, 700, 2**28])
@pytest.mark.parametrize(("places", "words", "width"), [(1, 2, 4), (7, 100, 8), (12, 5000, 16)])
def test_sum_and_slopes_are_those_of_the_plain_one_however_many_at_once(
    device: str, places: int, words: int, width: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", at_once)
    assert_alike(*drawn(places, words, width, device))


@everywhere
def test_filler_is_never_likely(device: str) -> None:
    (hidden, table, _), targets = drawn(9, 100, 8, device)
    nought = table.new_zeros(100)
    wide, narrow = (
        linear_cross_entropy(hidden, *pad_vocabulary(table, nought), targets),
        linear_cross_entropy(hidden, table, nought, targets),
    )
    torch.testing.assert_close(wide, narrow)
    for mine, other in zip(*(torch.autograd.grad(total, (hidden, table)) for total in (wide, narrow)), strict=True):
        torch.testing.assert_close(mine, other)


@everywhere
def test_nothing_asked_costs_nothing(device: str) -> None:
    given, targets = drawn(5, 20, 4, device)
    total = linear_cross_entropy(*given, torch.full_like(targets, -100))
    assert total == 0
    assert not any(slope.any() for slope in torch.autograd.grad(total, given))


@everywhere
def test_large_scores_stay_numbers(device: str) -> None:
    (hidden, table, bias), targets = drawn(6, 50, 4, device)
    given = [(300 * hidden).detach().requires_grad_(), table, bias]
    assert torch.isfinite(linear_cross_entropy(*given, targets))
    assert_alike(given, targets)


@INSIDE
def test_the_compiler_is_told_the_truth_about_shapes() -> None:
    given, targets = drawn(7, 30, 4, "cpu")
    torch.library.opcheck(
        module._loss_and_gradients, (*given, targets, True), test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.gpu
def test_compiled_it_takes_less_room() -> None:
    scripts.run(__file__, "linear_cross_entropy_graphs.py", "on_a_device")
