"""Short attention with relative position bias against the formula; `ragged.py` says where each test runs."""

import pytest
import torch
from nn.ragged import (
    INTERPRETER_ONLY,
    NOT_INTERPRETED,
    assert_near,
    bounds_of,
    everywhere,
    make_qkv,
    masks_of,
    random_weights,
)
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

from bertsmith.nn.attention import Sequences
from bertsmith.nn.kernel_choice import self_attention
from bertsmith.nn.kernels.attention_bias import biased_attention
from bertsmith.nn.kernels.attention_short import short_attention
from bertsmith.nn.padded import Padded
from bertsmith.nn.varlen import Biased
from bertsmith.nn.window import FULL, Window

LENGTHS = [17, 5, 0, 30, 1, 0, 0]


def bias_of(longest: int, device: str, heads: int = 2) -> Tensor:
    drawn = torch.randn(heads, longest, longest, generator=torch.Generator().manual_seed(5))
    return drawn.to(device, torch.float32 if device == "cpu" else torch.bfloat16).requires_grad_()


def formula(
    qkv: Tensor, bias: Tensor, lengths: list[int], window: Window = FULL, masks: list[Tensor] | None = None
) -> Tensor:
    """In float64: scores plus bias, softmax, dropout masks, and the values."""
    outputs = []
    for number, part in enumerate(torch.split(qkv.double(), lengths)):
        query, key, value = part.permute(1, 2, 0, 3)  # H L K
        size = len(part)
        scores = query @ key.mT / query.shape[-1] ** 0.5 + bias.double()[:, :size, :size]
        weights = scores.masked_fill(~window.mask(size, size, qkv.device), -torch.inf).softmax(-1)
        outputs.append(((weights if masks is None else weights * masks[number]) @ value).transpose(0, 1))
    return torch.cat(outputs)


def gradients_of(found: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad((found * random_weights(found)).sum(), given)


@everywhere
@pytest.mark.parametrize("window", [FULL, Window(right=0)])
@pytest.mark.parametrize(("lengths", "width"), [(LENGTHS, 64), ([127, 128, 64, 0, 65, 1], 32), ([256, 129, 3], 16)])
def test_output_and_all_gradients_are_those_of_the_formula(
    device: str, lengths: list[int], width: int, window: Window
) -> None:
    if device == "cpu":
        lengths = [length // 2 for length in lengths]  # the interpreter is slow
    qkv, bias = make_qkv(lengths, device, width=width), bias_of(max(lengths), device)
    exact, true_bias = (part.detach().double().requires_grad_() for part in (qkv, bias))
    found = biased_attention(*qkv.unbind(1), bias, bounds_of(lengths, device), max(lengths), window=window)
    true = formula(exact, true_bias, lengths, window)
    assert_near(found, true)
    for one, other in zip(gradients_of(found, qkv, bias), gradients_of(true, exact, true_bias), strict=True):
        assert_near(one, other)


@everywhere
def test_dropout_has_the_gradient_of_the_formula_with_the_same_mask(device: str) -> None:
    lengths, seed = [40, 0, 64, 20], torch.tensor(11, device=device)
    qkv, bias = make_qkv(lengths, device), bias_of(64, device)
    masks = masks_of(short_attention, lengths, 2, 32, 0.25, seed)
    exact, true_bias = (part.detach().double().requires_grad_() for part in (qkv, bias))
    found = biased_attention(*qkv.unbind(1), bias, bounds_of(lengths, device), 64, 0.25, seed)
    true = formula(exact, true_bias, lengths, masks=masks)
    assert_near(found, true)
    for one, other in zip(gradients_of(found, qkv, bias), gradients_of(true, exact, true_bias), strict=True):
        assert_near(one, other)


@everywhere
def test_the_bias_gradient_sums_over_all_splits_of_the_sequences(device: str) -> None:
    lengths = [3, 0, 7, 1, 5] * 4
    qkv, bias = make_qkv(lengths, device), bias_of(9, device)  # larger than the longest sequence
    exact, true_bias = (part.detach().double().requires_grad_() for part in (qkv, bias))
    found, true = (
        biased_attention(*qkv.unbind(1), bias, bounds_of(lengths, device), 7),
        formula(exact, true_bias, lengths),
    )
    (gradient,), (expected_gradient,) = gradients_of(found, bias), gradients_of(true, true_bias)
    assert_near(gradient, expected_gradient)
    assert not gradient[:, 7:].any()
    assert not gradient[:, :, 7:].any()


@everywhere
def test_gradients_are_deterministic(device: str) -> None:
    qkv, bias, bounds = make_qkv(LENGTHS, device), bias_of(30, device), bounds_of(LENGTHS, device)
    first, second = (gradients_of(biased_attention(*qkv.unbind(1), bias, bounds, 30), qkv, bias) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@everywhere
def test_a_bias_of_zero_is_short_attention(device: str) -> None:
    qkv, bounds = make_qkv(LENGTHS, device), bounds_of(LENGTHS, device)
    zeros = torch.zeros_like(bias_of(30, device))
    assert torch.equal(biased_attention(*qkv.unbind(1), zeros, bounds, 30), short_attention(*qkv.unbind(1), bounds, 30))


@everywhere
def test_the_kernel_is_made_by_its_name(device: str) -> None:
    qkv, bias = make_qkv(LENGTHS, device), bias_of(30, device)
    own = Sequences(bounds_of(LENGTHS, device), 30, sum(LENGTHS))
    kernel = self_attention("short", own, bias=bias)
    assert isinstance(kernel, Biased)
    exact = formula(qkv.detach(), bias.detach(), LENGTHS)
    assert_near(kernel.attend(*qkv.unbind(1)), exact)
    assert_near(kernel.attend_qkv(qkv), exact)
    assert_near(Padded.of(own, own, bias=bias).attend(*qkv.unbind(1)), exact)


@INTERPRETER_ONLY
def test_float16_is_near_the_formula() -> None:
    """Not bfloat16: the interpreter multiplies its bits as integers."""
    qkv, bias = (part.detach().half().requires_grad_() for part in (make_qkv([17, 5], "cpu"), bias_of(17, "cpu")))
    exact, true_bias = (part.detach().double().requires_grad_() for part in (qkv, bias))
    found = biased_attention(*qkv.unbind(1), bias, bounds_of([17, 5], "cpu"), 17)
    true = formula(exact, true_bias, [17, 5])
    for one, other in zip(gradients_of(found, qkv, bias), gradients_of(true, exact, true_bias), strict=True):
        assert one.dtype == torch.float16
        assert (one.double() - other).norm() < 2e-3 * other.norm()


@NOT_INTERPRETED
def test_shapes_are_known_on_the_meta_device() -> None:
    """As torch.compile needs them."""
    qkv = torch.empty(100, 3, 12, 64, device="meta", dtype=torch.bfloat16, requires_grad=True)
    bias = torch.empty(12, 120, 120, device="meta", dtype=torch.bfloat16, requires_grad=True)
    bounds, seed = (torch.empty(9, device="meta", dtype=torch.int32), torch.empty((), device="meta", dtype=torch.int64))
    found = biased_attention(*qkv.unbind(1), bias, bounds, 120, 0.1, seed)
    assert found.shape == (100, 12, 64)
    gradients = torch.autograd.grad(found.sum(), (qkv, bias))
    assert [(part.shape, part.dtype) for part in gradients] == [(part.shape, part.dtype) for part in (qkv, bias)]
