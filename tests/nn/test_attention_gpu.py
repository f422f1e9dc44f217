"""Flash attention of variable length against the formula, on a CUDA device."""

import pytest
import torch
from torch import Tensor

from bertsmith.nn.attention import Eager, Kernel, Sequences
from bertsmith.nn.kernel_choice import KernelName, self_attention
from bertsmith.nn.padded import Padded
from bertsmith.nn.varlen import Varlen

LENGTHS = [128, 3, 77, 1, 128, 64, 90, 0, 0]  # trailing empty sequences, as packing leaves them

pytestmark = pytest.mark.gpu


def bounds_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)


def kernel_of(name: KernelName, lengths: list[int]) -> Kernel:
    return self_attention(name, Sequences(bounds_of(lengths), max(lengths), sum(lengths)))


def inputs(dtype: torch.dtype, lengths: list[int]) -> tuple[Tensor, ...]:
    """Query, key and value as a layer computes them: three views of one tensor."""
    torch.manual_seed(0)
    joined = torch.randn(sum(lengths), 3, 4, 64, device="cuda", dtype=dtype)
    return tuple(part.requires_grad_() for part in joined.unbind(1))


def assert_near(found: Tensor, true: Tensor) -> None:
    assert (found.float() - true).norm() / true.norm() < 2e-2
    torch.testing.assert_close(found.float(), true, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_varlen_equals_eager_with_gradients(dtype: torch.dtype) -> None:
    parts = inputs(dtype, LENGTHS)
    exact = tuple(part.detach().float().requires_grad_() for part in parts)
    found = kernel_of("varlen", LENGTHS).attend(*parts)
    true = Eager(LENGTHS, LENGTHS).attend(*exact)
    assert found.dtype == dtype
    assert_near(found, true)
    mixture = torch.randn_like(true)
    gradients = torch.autograd.grad((found.float() * mixture).sum(), parts)
    for gradient, other in zip(gradients, torch.autograd.grad((true * mixture).sum(), exact), strict=True):
        assert_near(gradient, other)


def test_cross_attention_is_the_formula() -> None:
    """Also where one of the two texts is empty, as padding at the end of a batch leaves them."""
    read, written = [100, 7, 33, 64, 5, 20, 0, 0], [30, 1, 12, 9, 0, 3, 8, 0]
    (query, _, _), (_, key, value) = inputs(torch.bfloat16, written), inputs(torch.bfloat16, read)
    parts = (query, key, value)
    queries, keys = (Sequences(bounds_of(each), max(each), sum(each)) for each in (written, read))
    exact = tuple(part.detach().float().requires_grad_() for part in parts)
    found = Varlen(queries, keys).attend(*parts)
    true = Padded.of(queries, keys).attend(*exact)
    keyless = slice(sum(written[:6]), sum(written))  # queries without keys: any finite output will do
    assert found.isfinite().all()
    mixture = torch.randn_like(true)
    mixture[keyless] = 0
    assert_near(found[: keyless.start], true[: keyless.start])
    gradients = torch.autograd.grad((found.float() * mixture).sum(), parts)
    for gradient, other in zip(gradients, torch.autograd.grad((true * mixture).sum(), exact), strict=True):
        assert gradient.isfinite().all()
        assert_near(gradient, other)


def test_grouped_and_dense_equal_eager_in_float32() -> None:
    tried: list[tuple[KernelName, list[int]]] = [("grouped", LENGTHS), ("dense", [64] * 9)]
    for name, lengths in tried:
        parts = inputs(torch.float32, lengths)
        found = kernel_of(name, lengths).attend(*parts)
        true = Eager(lengths, lengths).attend(*parts)
        torch.testing.assert_close(found, true, rtol=0, atol=1e-5)
        for one, other in zip(
            torch.autograd.grad(found.square().sum(), parts),
            torch.autograd.grad(true.square().sum(), parts),
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


def test_other_sequences_do_not_change_a_varlen_output() -> None:
    parts = tuple(part.detach() for part in inputs(torch.bfloat16, LENGTHS))
    together = kernel_of("varlen", LENGTHS).attend(*parts)
    alone = kernel_of("varlen", [77]).attend(*(part[131:208] for part in parts))
    assert torch.equal(together[131:208], alone)


def test_varlen_dropout_keeps_the_mean_and_follows_the_seed() -> None:
    parts = tuple(part.detach() for part in inputs(torch.bfloat16, [64] * 64))
    kernel = kernel_of("varlen", [64] * 64)
    whole = kernel.attend(*parts).float()
    drawn = []
    for seed in [*range(200), 0]:
        torch.manual_seed(seed)
        drawn.append(kernel.attend(*parts, 0.1).float())
    assert torch.equal(drawn[0], drawn[-1])
    assert not torch.equal(drawn[0], drawn[1])
    assert (torch.stack(drawn).mean(0) - whole).abs().mean() < 0.01


def test_varlen_dropout_has_the_same_mask_backwards() -> None:
    """The backward pass must drop the same weights as the forward pass."""
    query, key, value = inputs(torch.bfloat16, [64] * 8)
    mixture = torch.randn(512, 4, 64, device="cuda", dtype=torch.bfloat16)
    torch.manual_seed(3)
    attended = kernel_of("varlen", [64] * 8).attend(query, key, value, 0.3)
    [gradient] = torch.autograd.grad((attended.float() * mixture.float()).sum(), [value])
    # The output is linear in the values, so <gradient, value> must be the sum itself.
    total = (attended.float() * mixture.float()).sum()
    assert abs((gradient.float() * value.float()).sum() - total) < 0.02 * total.abs() + 5
