"""Padded attention against the formula: relative position bias, cross-attention, empty rows."""

import pytest
import torch
from torch import Tensor

from bertsmith.nn.attention import Eager, Sequences
from bertsmith.nn.kernel_choice import self_attention
from bertsmith.nn.padded import Padded
from bertsmith.nn.window import FULL, Window

RAGGED = [5, 17, 1, 20, 0, 16, 3, 0, 0]
OTHERS = [2, 1, 30, 4, 0, 9, 12, 0, 0]
windows = pytest.mark.parametrize("window", [FULL, Window(right=0), Window(3, 2)])


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def sequences(lengths: list[int]) -> Sequences:
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return Sequences(bounds, max(lengths), sum(lengths))


def run(
    kernel: type[Eager] | type[Padded], parts: list[Tensor], lengths: list[list[int]], window: Window = FULL
) -> list[Tensor]:
    """The output, and the gradients of a fixed weighted sum of it; a fourth part is the bias."""
    rows = [sequences(each) for each in lengths]
    queries, keys = (rows[0], rows[0]) if len(rows) == 1 else rows
    query, key, value, *bias = parts
    if kernel is Padded:
        attended = Padded.of(queries, keys, window, *bias).attend(query, key, value)
    else:
        attended = Eager(queries.lengths, keys.lengths, *bias, window=window).attend(query, key, value)
    mixture = torch.randn(attended.shape, generator=torch.Generator().manual_seed(1))
    return [attended, *torch.autograd.grad((attended * mixture).sum(), parts)]


def assert_alike(first: list[Tensor], second: list[Tensor]) -> None:
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@windows
def test_output_and_gradients_with_a_bias_are_those_of_the_formula(window: Window) -> None:
    parts = [drawn(sum(RAGGED), 3, 8, seed=seed) for seed in range(3)] + [drawn(3, 20, 20, seed=3)]
    assert_alike(run(Padded, parts, [RAGGED], window), run(Eager, parts, [RAGGED], window))


def test_cross_attention_is_the_formula() -> None:
    parts = [drawn(sum(lengths), 3, 8, seed=seed) for seed, lengths in enumerate((RAGGED, OTHERS, OTHERS))]
    assert_alike(run(Padded, parts, [RAGGED, OTHERS]), run(Eager, parts, [RAGGED, OTHERS]))


def test_without_a_bias_it_equals_the_grouped_kernel() -> None:
    parts = [drawn(sum(RAGGED), 3, 8, seed=seed) for seed in range(3)]
    rows = sequences(RAGGED)
    grouped = self_attention("grouped", rows).attend(*parts)
    torch.testing.assert_close(run(Padded, parts, [RAGGED])[0], grouped, rtol=0, atol=1e-5)


def test_dropout_scales_the_weights_it_keeps() -> None:
    """With values of 1 the output is the sum of the kept weights, 1 on average."""
    query, key = (drawn(4000, 2, 8, seed=seed) for seed in range(2))
    rows = sequences([40] * 100)
    torch.manual_seed(0)
    attended = Padded.of(rows, rows).attend(query, key, torch.ones_like(query), 0.5)
    assert attended.mean().item() == pytest.approx(1, abs=0.01)
    assert attended.std().item() > 0.1
