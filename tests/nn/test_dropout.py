"""Dropout has the distribution of torch's own, on a CPU with fewer draws, in a compiled step by hashing two keys."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from bertsmith.nn.dropout import GOLDEN_RATIO, GOLDEN_RATIO_INVERSE, Dropout, _hash_bits, dropout, hashed_dropout

Function = Callable[[Tensor, float], Tensor]
both = pytest.mark.parametrize("function", [dropout, hashed_dropout])


@both
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_share_is_dropped_and_the_mean_stays(function: Function, probability: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    found = function(torch.ones(1000, 1001, dtype=dtype), probability).float()
    assert (found == 0).float().mean().item() == pytest.approx(probability, abs=2e-3)
    assert found.mean().item() == pytest.approx(1, abs=2e-2)
    assert found.unique().tolist() == pytest.approx([0, 1 / (1 - probability)], rel=1e-2)


@both
def test_neighbours_are_dropped_independently(function: Function) -> None:
    torch.manual_seed(1)
    kept = (function(torch.ones(400_000), 0.3) != 0).float() - 0.7
    for distance in (1, 2, 3, 4, 5, 64, 768, 1024, 4096):
        assert (kept[:-distance] * kept[distance:]).mean().abs() < 2e-3


@both
def test_no_two_rows_or_columns_are_correlated(function: Function) -> None:
    torch.manual_seed(4)
    kept = (function(torch.ones(512, 768), 0.1) != 0).float()
    for lines in (kept - kept.mean(), (kept - kept.mean()).T):
        count, length = lines.shape
        correlation = (lines @ lines.T / lines.norm(dim=1) / lines.norm(dim=1)[:, None]).fill_diagonal_(0) * length**0.5
        assert abs(correlation.square().sum() / (count * (count - 1)) - 1) < 0.05
        assert correlation.abs().max() < 9


@both
def test_two_masks_are_independent(function: Function) -> None:
    torch.manual_seed(3)
    one, other = ((function(torch.ones(400_000), 0.3) != 0).float() - 0.7 for _ in range(2))
    for distance in (0, 1, 2, 1000):
        assert (one[:390_000] * other[distance : distance + 390_000]).mean().abs() < 2e-3


@both
def test_the_seed_determines_the_mask_and_the_gradient_has_the_same(function: Function) -> None:
    numbers = torch.randn(37, 5, requires_grad=True)
    torch.manual_seed(2)
    one = function(numbers, 0.4)
    torch.manual_seed(2)
    assert torch.equal(function(numbers, 0.4), one)
    assert not torch.equal(function(numbers, 0.4), one)
    one.sum().backward()
    assert torch.equal(numbers.grad != 0, one != 0)
    torch.testing.assert_close(
        numbers.grad[one != 0], torch.full_like(numbers.grad[one != 0], 1 / 0.6), rtol=1e-4, atol=0
    )


def test_there_is_no_dropout_in_evaluation_or_with_probability_zero() -> None:
    numbers = torch.randn(8)
    assert dropout(numbers, 0.0) is numbers
    assert Dropout(0.5).eval()(numbers) is numbers
    assert (Dropout(0.5).train()(torch.ones(100)) == 0).any()


def test_inductor_finds_no_address_in_the_hash_of_a_position() -> None:
    """It would write the factor of an address with more than 32 bits, which a GPU's compiler refuses."""
    assert GOLDEN_RATIO_INVERSE * GOLDEN_RATIO % (1 << 32) == 1
    nodes = make_fx(lambda key: _hash_bits(10, key))(torch.tensor(7, dtype=torch.int32)).graph.nodes
    [product] = [node for node in nodes if node.target == torch.ops.aten.mul.Tensor and GOLDEN_RATIO in node.args]
    assert product.args[0].target == torch.ops.aten.add.Tensor  # of positions and seed
