"""Our Triton kernels compile for a GPU, which needs no GPU.

Triton's interpreter, which tests their results on a CPU, knows no types. Inductor passes integers to a kernel in 32
bits and floats in 64, and the type of a sum in a loop may not change. The launches are those of the operations
themselves; nothing is computed.
"""

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from nn.ragged import NOT_INTERPRETED, bounds_of, make_qkv
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
    muon,
    residual_layer_norm,
)

HOPPER = GPUTarget("cuda", 90, 32)
TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32", torch.int64: "*i64"}
OPTIONS = ("num_warps", "num_stages")
pytestmark = NOT_INTERPRETED

Launch = tuple[Any, dict[str, Any]]  # a kernel and its arguments


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """Every launch in these modules, recorded instead of run."""
    launches: list[Launch] = []

    class Recorded:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, programs: tuple[int, ...]) -> Callable[..., None]:
            assert all(count > 0 for count in programs)
            names = self.kernel.arg_names
            return lambda *args, **kwargs: launches.append((self.kernel, dict(zip(names, args, strict=False)) | kwargs))

    for module in (bias_gelu, residual_layer_norm, attention_short, attention_bias, attention_long):
        monkeypatch.setattr(module, "wrap_triton", Recorded)
    monkeypatch.setattr(linear_cross_entropy, "_logit_gradients", Recorded(linear_cross_entropy._logit_gradients))
    for name in ("_nesterov_momentum", "_apply_update"):
        monkeypatch.setattr(muon, name, Recorded(getattr(muon, name)))
    return launches


def compile_ptx(kernel: Any, arguments: dict[str, Any]) -> str:
    """The PTX of a kernel with the types of a compiled step."""
    signature, constants = {}, {}
    for parameter in kernel.params:
        value = arguments[parameter.name]
        if parameter.is_constexpr:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        elif isinstance(value, Tensor):
            signature[parameter.name] = TYPES[value.dtype]
        else:
            signature[parameter.name] = "fp64" if isinstance(value, float) else "i32"
    options = {name: arguments[name] for name in OPTIONS if name in arguments} | {"enable_fp_fusion": True}
    source = ASTSource(kernel, signature, constants)
    ptx: str = triton.compile(source, target=HOPPER, options=options).asm["ptx"]
    return ptx


def bfloat16(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, requires_grad=True)


def gelu() -> Tensor:
    return bias_gelu.bias_gelu(bfloat16(20, 512), bfloat16(512), gated=True)


def norm() -> Tensor:
    return residual_layer_norm.residual_layer_norm(
        bfloat16(20, 768),
        bfloat16(768),
        bfloat16(20, 768),
        bfloat16(768),
        bfloat16(768),
        1e-12,
        0.1,
        draw_keys(torch.device("cpu")),
    )


def cross_entropy() -> Tensor:
    return linear_cross_entropy.linear_cross_entropy(bfloat16(6, 32), bfloat16(40, 32), bfloat16(40), torch.arange(6))


def attend(module: ModuleType, longest: int) -> Tensor:
    lengths = [longest, 5, 0]
    qkv = make_qkv(lengths, "cpu", width=64).detach().bfloat16().requires_grad_()
    found: Tensor = module.qkv_attention(qkv, bounds_of(lengths, "cpu"), longest, 0.1, torch.tensor(7))
    return found


def biased() -> Tensor:
    lengths = [120, 5, 0]
    qkv = make_qkv(lengths, "cpu", width=64).detach().bfloat16().requires_grad_()
    bounds, bias = bounds_of(lengths, "cpu"), bfloat16(2, 120, 120)
    return attention_bias.biased_attention(*qkv.unbind(1), bias, bounds, 120, 0.1, torch.tensor(7))


@pytest.mark.slow("compiles")
@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize(
    ("work", "kernels"),
    [
        (gelu, {"_gelu_forward", "_gelu_backward"}),
        (norm, {"_norm_forward", "_norm_backward"}),
        (cross_entropy, {"_logit_gradients"}),
        (lambda: attend(attention_short, 128), {"short_forward", "short_backward"}),
        (biased, {"short_forward", "short_backward", "_bias_backward"}),
        (lambda: attend(attention_long, 300), {"long_forward", "long_backward_queries", "long_backward_keys"}),
    ],
    ids=["gelu", "norm", "entropy", "short", "biased", "long"],
)
def test_a_kernel_compiles_with_the_types_of_a_compiled_step(
    work: Callable[[], Tensor], kernels: set[str], launched: list[Launch]
) -> None:
    found = work()
    found.backward(torch.ones_like(found))
    assert {kernel.__name__ for kernel, _ in launched} == kernels
    for kernel, arguments in launched:
        ptx = compile_ptx(kernel, arguments)
        assert "sm_90" in ptx
        assert not re.search(r"(add|sub|mul|fma|div)\S*\.f64", ptx), kernel.__name__  # in double precision


@pytest.mark.slow("Triton compiles")
def test_the_kernels_of_muon_compile(launched: list[Launch]) -> None:
    matrices, factor = torch.randn(2, 48, 64), torch.tensor(0.9)
    muon.nesterov_momentum(matrices, matrices.clone(), matrices.bfloat16(), factor, 0.95)
    for scales in (torch.ones(2, 48, 1), torch.ones(2, 1, 64)):
        muon.apply_update(matrices, matrices.bfloat16(), scales, factor)
    assert [kernel.__name__ for kernel, _ in launched] == ["_nesterov_momentum", "_apply_update", "_apply_update"]
    for kernel, arguments in launched:
        assert "sm_90" in compile_ptx(kernel, arguments)
