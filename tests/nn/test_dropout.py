"""Dropout on a CPU: the same law as torch's own, by fewer draws."""

import pytest
import torch

from bertsmith.nn.dropout import Dropout, dropout


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_share_is_forgotten_and_the_mean_stays(share: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    found = dropout(torch.ones(1000, 1001, dtype=dtype), share).float()
    assert (found == 0).float().mean().item() == pytest.approx(share, abs=2e-3)
    assert found.mean().item() == pytest.approx(1, abs=2e-2)
    assert found.unique().tolist() == pytest.approx([0, 1 / (1 - share)], rel=1e-2)


def test_neighbours_are_forgotten_independently() -> None:
    torch.manual_seed(1)
    kept = (dropout(torch.ones(400_000), 0.3) != 0).float() - 0.7
    for distance in (1, 2, 3, 4, 5):
        assert (kept[:-distance] * kept[distance:]).mean().abs() < 2e-3


def test_the_seed_decides_and_the_gradient_follows_what_was_kept() -> None:
    numbers = torch.randn(37, 5, requires_grad=True)
    torch.manual_seed(2)
    one = dropout(numbers, 0.4)
    torch.manual_seed(2)
    assert torch.equal(dropout(numbers, 0.4), one)
    assert not torch.equal(dropout(numbers, 0.4), one)
    one.sum().backward()
    assert torch.equal(numbers.grad != 0, one != 0)
    torch.testing.assert_close(
        numbers.grad[one != 0], torch.full_like(numbers.grad[one != 0], 1 / 0.6), rtol=1e-4, atol=0
    )


def test_nothing_is_forgotten_out_of_training_or_without_a_share() -> None:
    numbers = torch.randn(8)
    assert dropout(numbers, 0.0) is numbers
    assert Dropout(0.5).eval()(numbers) is numbers
    assert (Dropout(0.5).train()(torch.ones(100)) == 0).any()
