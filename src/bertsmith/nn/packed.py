"""Packed layers: a trained layer for inference on a CPU, its weights in the order the matrix units read them.

A processor with AMX multiplies half-precision matrices about ten times faster than full ones, but only when the
weights have been laid out for it beforehand, and only when it has met the number of tokens before: oneDNN compiles a
kernel for each, which takes longer than the product. Whoever calls should keep to a few numbers of tokens.
"""

import copy
import platform
from functools import cache
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.nn.attention import Layout, attend
from bertsmith.nn.layers import ACTIVATIONS, Activation, Layer, only
from bertsmith.nn.lora import Lora
from bertsmith.nn.positions import turned

# What oneDNN calls its own versions of them.
ALGORITHMS: dict[Activation, str] = {"gelu": "none", "gelu_tanh": "tanh"}
# Its bend by tanh is fast on x86 alone: on ARM it takes two hundred times as long as the product and a bend behind it.
AT_ONCE = set(ALGORITHMS) if platform.machine() in ("x86_64", "AMD64") else {"gelu"}

M = TypeVar("M", bound=nn.Module)


class PackedLinear(nn.Module):
    """A matrix product with what comes after it, a bend or a sum, in one pass over the memory. No gradients."""

    def __init__(self, linear: nn.Module, dtype: torch.dtype, activation: Activation | None = None) -> None:
        super().__init__()
        self.activation = activation
        linear = linear.merged() if isinstance(linear, Lora) else linear
        assert type(linear) is nn.Linear, f"a {type(linear).__name__} cannot be packed"
        weight = linear.weight.detach().to("cpu", dtype)
        self.bias = None if linear.bias is None else linear.bias.detach().to("cpu", dtype)
        self.fused = fuses(dtype)
        # Neither parameter nor buffer: its bytes mean nothing to anyone but oneDNN.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight) if self.fused else weight

    def forward(self, hidden: Float[Tensor, "T _"], added: Float[Tensor, "T _"] | None = None) -> Float[Tensor, "T _"]:
        """The product, bent if an activation was given, plus `added`."""
        if not self.fused:
            return self._plain(hidden, added)
        product = torch.ops.mkldnn._linear_pointwise
        if self.activation is not None:
            if self.activation in AT_ONCE:
                bent: Tensor = product(hidden, self.weight, self.bias, "gelu", [], ALGORITHMS[self.activation])
            else:
                bent = ACTIVATIONS[self.activation](product(hidden, self.weight, self.bias, "none", [], ""))
            return bent if added is None else bent + added
        if added is None:
            return cast(Tensor, product(hidden, self.weight, self.bias, "none", [], ""))
        return cast(Tensor, product.binary(hidden, added, self.weight, self.bias, "add"))

    def _plain(self, hidden: Tensor, added: Tensor | None) -> Tensor:
        product = F.linear(hidden, self.weight, self.bias)
        bent = product if self.activation is None else ACTIVATIONS[self.activation](product)
        return bent if added is None else bent + added


class PackedLayer(nn.Module):
    """`Layer` for inference on a CPU: the same sums in fewer passes. Norms count in full precision.

    With the norm before each sublayer, what the layers add up grows from layer to layer, and stays in full precision.
    """

    def __init__(self, layer: Layer, activation: Activation, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.before = dtype, layer.before
        self.heads = layer.attention.heads
        self.project = PackedLinear(layer.attention.project, dtype)
        self.output = PackedLinear(layer.attention.output, dtype)
        self.widen = PackedLinear(layer.feed_forward.widen, dtype, activation)
        self.narrow = PackedLinear(layer.feed_forward.narrow, dtype)
        self.attention_norm, self.feed_forward_norm = (
            copy.deepcopy(norm).to("cpu", torch.float32) for norm in (layer.attention_norm, layer.feed_forward_norm)
        )

    def forward(
        self, hidden: Float[Tensor, "T D"], layout: Layout, read: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        if self.before:
            hidden = hidden.float()
            attended = self._attend(_norm(self.attention_norm, hidden).to(self.dtype), layout, read)
            hidden = self._sum(self.output, attended, only(hidden, read))
            return self._sum(self.narrow, self.widen(_norm(self.feed_forward_norm, hidden).to(self.dtype)), hidden)
        hidden = hidden.to(self.dtype)
        attended = self._attend(hidden, layout, read)
        hidden = _norm(self.attention_norm, self.output(attended, only(hidden, read)))
        return _norm(self.feed_forward_norm, self.narrow(self.widen(hidden), hidden))

    def _attend(self, hidden: Tensor, layout: Layout, read: Tensor | None) -> Tensor:
        product = self.project(hidden).unflatten(1, (3, self.heads, -1))  # T 3 H K
        if layout.turn is not None:
            product = turned(product, layout.turn)
        query, key, value = product.unbind(1)
        return only(attend(query, key, value, layout).flatten(1), read)

    def _sum(self, product: nn.Module, hidden: Tensor, added: Tensor) -> Tensor:
        summed: Tensor = product(hidden, added) if self.dtype == added.dtype else product(hidden) + added
        return summed


def packed(trunk: M, dtype: torch.dtype = torch.bfloat16) -> M:
    """A copy of a transformer on the CPU whose layers are packed; it shares the tables of its embedding.

    In bfloat16 the vectors are within a cosine of 0.999 of those in full precision; in float32 they are the same.
    """
    whole: Any = trunk
    light = copy.copy(whole)
    # Copies of the modules, so that eval() stays here; not of their tables, and not of layers that are thrown away.
    light._modules = {name: copy.copy(part) for name, part in whole.named_children() if name != "layers"}
    if any(part.device.type != "cpu" for part in light.parameters()):
        light = copy.deepcopy(light).cpu()
    if packs(trunk):
        light.layers = nn.ModuleList(PackedLayer(layer, whole.config.activation, dtype) for layer in whole.layers)
        light.last_norm = copy.deepcopy(whole.last_norm).to("cpu", torch.float32)
    else:
        light.layers = copy.deepcopy(whole.layers).cpu()  # exact, and slower
    return cast(M, light.eval())


def products_packed(network: M, dtype: torch.dtype = torch.float32) -> M:
    """A copy on the CPU of a network whose layers have no packed form: their products are packed one by one."""
    light = copy.deepcopy(network).to("cpu", dtype).eval()
    parts = [part for layer in light.modules() if isinstance(layer, Layer) for part in layer.modules()]
    for part in parts:
        for name, product in part.named_children():
            if isinstance(product, nn.Linear | Lora):
                setattr(part, name, PackedLinear(product, dtype))
    return light


def packs(trunk: nn.Module) -> bool:
    """Whether its layers have a packed form: no gates, no looks at another text, and norms that take off the mean."""
    whole: Any = trunk
    bends = whole.config.activation in ALGORITHMS
    return bends and all(
        not layer.feed_forward.gated
        and not layer.crossed
        and layer.attention.factor == 1
        and isinstance(layer.feed_forward_norm, nn.LayerNorm)
        for layer in whole.layers
    )


@cache
def fuses(dtype: torch.dtype) -> bool:
    """Whether this processor and this build of torch can pack weights of a precision."""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    if not torch._C._has_mkldnn or not all(hasattr(torch.ops.mkldnn, name) for name in names):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _norm(norm: nn.Module, hidden: Tensor) -> Tensor:
    if isinstance(norm, nn.Identity):  # the tables have normed what the first layer gets
        return hidden
    assert isinstance(norm, nn.LayerNorm)
    # A processor's kernel takes half-precision vectors and full weights, and counts in full precision.
    return F.layer_norm(hidden, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
