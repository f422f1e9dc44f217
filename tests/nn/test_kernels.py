"""Our own kernels are compiled for a GPU that is not there: all but to run them needs none.

Triton's interpreter, by which their numbers are tested on a CPU, knows no types. A compiled step hands whole numbers to
a kernel in 32 bits and others in 64, whatever they were: inductor does so for a float, and a sum in a loop may not
change its type. What is launched is told by the operations themselves; nothing is computed.
"""

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from nn.ragged import OUTSIDE, bounds_of, product
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bertsmith.nn.dropout import draw_keys
from bertsmith.nn.kernels import (
    attention_bias,
    attention_long,
    attention_short,
    bias_gelu,
    linear_cross_entropy,
    residual_layer_norm,
)

HOPPER = GPUTarget("cuda", 90, 32)
TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32", torch.int64: "*i64"}
OPTIONS = ("num_warps", "num_stages")
pytestmark = OUTSIDE

Launch = tuple[Any, dict[str, Any]]  # a kernel and what it is told


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """Every launch in these modules, which is noted down instead."""
    seen: list[Launch] = []

    class Noted:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, programs: tuple[int, ...]) -> Callable[..., None]:
            assert all(count > 0 for count in programs)
            names = self.kernel.arg_names
            return lambda *given, **told: seen.append((self.kernel, dict(zip(names, given, strict=False)) | told))

    for module in (bias_gelu, residual_layer_norm, attention_short, attention_bias, attention_long):
        monkeypatch.setattr(module, "wrap_triton", Noted)
    monkeypatch.setattr(linear_cross_entropy, "_logit_gradients", Noted(linear_cross_entropy._logit_gradients))
    return seen


def compiled(kernel: Any, told: dict[str, Any]) -> str:
    """As a compiled step would have it. Returns the program."""
    signature, known = {}, {}
    for parameter in kernel.params:
        value = told[parameter.name]
        if parameter.is_constexpr:
            signature[parameter.name], known[parameter.name] = "constexpr", value
        elif isinstance(value, Tensor):
            signature[parameter.name] = TYPES[value.dtype]
        else:
            signature[parameter.name] = "fp64" if isinstance(value, float) else "i32"
    options = {name: told[name] for name in OPTIONS if name in told} | {"enable_fp_fusion": True}
    found: str = triton.compile(ASTSource(kernel, signature, known), target=HOPPER, options=options).asm["ptx"]
    return found


def half(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, requires_grad=True)


def bend() -> Tensor:
    return bias_gelu.bias_gelu(half(20, 512), half(512), gated=True)


def join() -> Tensor:
    return residual_layer_norm.residual_layer_norm(
        half(20, 768), half(768), half(20, 768), half(768), half(768), 1e-12, 0.1, draw_keys(torch.device("cpu"))
    )


def guess() -> Tensor:
    return linear_cross_entropy.linear_cross_entropy(half(6, 32), half(40, 32), half(40), torch.arange(6))


def attend(module: ModuleType, longest: int) -> Tensor:
    lengths = [longest, 5, 0]
    whole = product(lengths, "cpu", width=64).detach().bfloat16().requires_grad_()
    found: Tensor = module.qkv_attention(whole, bounds_of(lengths, "cpu"), longest, 0.1, torch.tensor(7))
    return found


def relate() -> Tensor:
    lengths = [120, 5, 0]
    whole = product(lengths, "cpu", width=64).detach().bfloat16().requires_grad_()
    bounds, bias = bounds_of(lengths, "cpu"), half(2, 120, 120)
    return attention_bias.biased_attention(*whole.unbind(1), bias, bounds, 120, 0.1, torch.tensor(7))


@pytest.mark.parametrize(
    ("work", "kernels"),
    [
        (bend, {"_gelu_forward", "_gelu_backward"}),
        (join, {"_norm_forward", "_norm_backward"}),
        (guess, {"_logit_gradients"}),
        (lambda: attend(attention_short, 128), {"short_forward", "short_backward"}),
        (relate, {"short_forward", "short_backward", "_bias_backward"}),
        (lambda: attend(attention_long, 300), {"long_forward", "long_backward_queries", "long_backward_keys"}),
    ],
    ids=["gelu", "norm", "entropy", "short", "biased", "long"],
)
def test_a_kernel_is_compiled_with_what_a_compiled_step_hands_it(
    work: Callable[[], Tensor], kernels: set[str], launched: list[Launch]
) -> None:
    found = work()
    found.backward(torch.ones_like(found))
    assert {kernel.__name__ for kernel, _ in launched} == kernels
    for kernel, told in launched:
        program = compiled(kernel, told)
        assert "sm_90" in program
        assert not re.search(r"(add|sub|mul|fma|div)\S*\.f64", program), kernel.__name__  # in double precision
