"""Short attention with relative positions against the formula. Where each test runs, `ragged.py` says."""

from dataclasses import replace

import pytest
import torch
from nn.ragged import INSIDE, OUTSIDE, assert_near, bounds_of, everywhere, masks_of, mixture, product
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

from bertsmith.nn.attention import attend, attend_qkv
from bertsmith.nn.kernels.attention_bias import biased_attention
from bertsmith.nn.kernels.attention_short import short_attention
from bertsmith.nn.layout import Layout, Sequences
from bertsmith.nn.window import FULL, Window

LENGTHS = [17, 5, 0, 30, 1, 0, 0]


def bias_of(longest: int, device: str, heads: int = 2) -> Tensor:
    drawn = torch.randn(heads, longest, longest, generator=torch.Generator().manual_seed(5))
    return drawn.to(device, torch.float32 if device == "cpu" else torch.bfloat16).requires_grad_()


def formula(
    whole: Tensor, bias: Tensor, lengths: list[int], reach: Window = FULL, masks: list[Tensor] | None = None
) -> Tensor:
    """In float64: the scores, what is added to them, softmax, what is forgotten of it, and the values."""
    taken = []
    for place, part in enumerate(torch.split(whole.double(), lengths)):
        query, key, value = part.permute(1, 2, 0, 3)  # H L K
        size = len(part)
        scores = query @ key.mT / query.shape[-1] ** 0.5 + bias.double()[:, :size, :size]
        weights = scores.masked_fill(~reach.mask(size, size, whole.device), -torch.inf).softmax(-1)
        taken.append(((weights if masks is None else weights * masks[place]) @ value).transpose(0, 1))
    return torch.cat(taken)


def slopes(found: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad((found * mixture(found)).sum(), given)


@everywhere
@pytest.mark.parametrize("reach", [FULL, Window(right=0)])
@pytest.mark.parametrize(("lengths", "width"), [(LENGTHS, 64), ([127, 128, 64, 0, 65, 1], 32), ([256, 129, 3], 16)])
def test_it_is_the_formula_with_all_its_gradients(device: str, lengths: list[int], width: int, reach: Window) -> None:
    if device == "cpu":
        lengths = [length // 2 for length in lengths]  # the interpreter is slow
    whole, bias = product(lengths, device, width=width), bias_of(max(lengths), device)
    exact, true_bias = (part.detach().double().requires_grad_() for part in (whole, bias))
    found = biased_attention(*whole.unbind(1), bias, bounds_of(lengths, device), max(lengths), window=reach)
    true = formula(exact, true_bias, lengths, reach)
    assert_near(found, true)
    for one, other in zip(slopes(found, whole, bias), slopes(true, exact, true_bias), strict=True):
        assert_near(one, other)


@everywhere
def test_dropout_has_the_gradient_of_the_formula_with_the_same_mask(device: str) -> None:
    lengths, seed = [40, 0, 64, 20], torch.tensor(11, device=device)
    whole, bias = product(lengths, device), bias_of(64, device)
    masks = masks_of(short_attention, lengths, 2, 32, 0.25, seed)
    exact, true_bias = (part.detach().double().requires_grad_() for part in (whole, bias))
    found = biased_attention(*whole.unbind(1), bias, bounds_of(lengths, device), 64, 0.25, seed)
    true = formula(exact, true_bias, lengths, masks=masks)
    assert_near(found, true)
    for one, other in zip(slopes(found, whole, bias), slopes(true, exact, true_bias), strict=True):
        assert_near(one, other)


@everywhere
def test_many_sequences_are_shared_out_and_added_up(device: str) -> None:
    lengths = [3, 0, 7, 1, 5] * 4
    whole, bias = product(lengths, device), bias_of(9, device)  # with room for longer ones
    exact, true_bias = (part.detach().double().requires_grad_() for part in (whole, bias))
    found, true = (
        biased_attention(*whole.unbind(1), bias, bounds_of(lengths, device), 7),
        formula(exact, true_bias, lengths),
    )
    (gradient,), (true_gradient,) = slopes(found, bias), slopes(true, true_bias)
    assert_near(gradient, true_gradient)
    assert not gradient[:, 7:].any()
    assert not gradient[:, :, 7:].any()


@everywhere
def test_gradients_are_the_same_every_time(device: str) -> None:
    whole, bias, bounds = product(LENGTHS, device), bias_of(30, device), bounds_of(LENGTHS, device)
    first, second = (slopes(biased_attention(*whole.unbind(1), bias, bounds, 30), whole, bias) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@everywhere
def test_nothing_added_is_short_attention(device: str) -> None:
    whole, bounds = product(LENGTHS, device), bounds_of(LENGTHS, device)
    nought = torch.zeros_like(bias_of(30, device))
    assert torch.equal(
        biased_attention(*whole.unbind(1), nought, bounds, 30), short_attention(*whole.unbind(1), bounds, 30)
    )


@everywhere
def test_attention_calls_it_by_its_name(device: str) -> None:
    whole, bias = product(LENGTHS, device), bias_of(30, device)
    own = Sequences(bounds_of(LENGTHS, device), 30, sum(LENGTHS))
    layout = replace(Layout.of(own.bounds, own.longest, "short"), bias=bias)
    exact = formula(whole.detach(), bias.detach(), LENGTHS)
    assert_near(attend(*whole.unbind(1), layout), exact)
    assert_near(attend_qkv(whole, layout), exact)
    rectangle = Layout.between(own, own, "padded", bias=bias)
    assert_near(attend(*whole.unbind(1), rectangle), exact)


@INSIDE
def test_half_precision_is_near_the_formula() -> None:
    """Not bfloat16: the interpreter multiplies its bits as if they were whole numbers."""
    whole, bias = (part.detach().half().requires_grad_() for part in (product([17, 5], "cpu"), bias_of(17, "cpu")))
    exact, true_bias = (part.detach().double().requires_grad_() for part in (whole, bias))
    found = biased_attention(*whole.unbind(1), bias, bounds_of([17, 5], "cpu"), 17)
    true = formula(exact, true_bias, [17, 5])
    for one, other in zip(slopes(found, whole, bias), slopes(true, exact, true_bias), strict=True):
        assert one.dtype == torch.float16
        assert (one.double() - other).norm() < 2e-3 * other.norm()


@OUTSIDE
def test_shapes_are_known_without_running_anything() -> None:
    """As torch.compile asks for them."""
    whole = torch.empty(100, 3, 12, 64, device="meta", dtype=torch.bfloat16, requires_grad=True)
    bias = torch.empty(12, 120, 120, device="meta", dtype=torch.bfloat16, requires_grad=True)
    bounds, seed = (torch.empty(9, device="meta", dtype=torch.int32), torch.empty((), device="meta", dtype=torch.int64))
    found = biased_attention(*whole.unbind(1), bias, bounds, 120, 0.1, seed)
    assert found.shape == (100, 12, 64)
    gradients = torch.autograd.grad(found.sum(), (whole, bias))
    assert [(part.shape, part.dtype) for part in gradients] == [(part.shape, part.dtype) for part in (whole, bias)]
