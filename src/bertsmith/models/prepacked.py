"""Prepacked layers: transformer layers for inference on a CPU, with weights reordered for oneDNN.

A CPU with AMX multiplies bfloat16 matrices about ten times faster than float32, but only with weights that were
reordered beforehand, and only for a number of tokens that it has seen before: oneDNN compiles a kernel for each, which
takes longer than the product. Callers should keep to a few numbers of tokens.

For one token, as in generation of one text, products are bound by the memory bandwidth of the weights, and Python's
overhead counts: prepacked layers make as few calls as possible and are no torch modules, whose calls cost a token more
than its sums. In float32 one token is multiplied by the original weights, which is faster; without `reorder` all are.
"""

import copy
from functools import cache, partial
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.models.layers import AttentionInputs, CrossAttention, EncodedMemory, Layer, take
from bertsmith.nn.activations import ACTIVATIONS, X86, Activation
from bertsmith.nn.kv_cache import LayerCache
from bertsmith.nn.lora import Lora
from bertsmith.nn.positions import apply_rotary

# oneDNN's names.
ALGORITHMS: dict[Activation, str] = {"gelu": "none", "gelu_tanh": "tanh"}
# Its tanh approximation is fast on x86 only: on ARM it takes two hundred times as long as the product and torch's GELU.
FUSED_ACTIVATIONS = set(ALGORITHMS) if X86 else {"gelu"}

M = TypeVar("M", bound=nn.Module)


class PrepackedLinear:
    """A linear layer fused with the activation or the residual sum after it. No gradients."""

    def __init__(
        self, linear: nn.Module, dtype: torch.dtype, activation: Activation | None = None, *, reorder: bool = True
    ) -> None:
        self.activation = activation
        linear = linear.merged() if isinstance(linear, Lora) else linear
        assert type(linear) is nn.Linear, f"a {type(linear).__name__} cannot be prepacked"
        weight = linear.weight.detach().to("cpu", dtype)
        self.bias = None if linear.bias is None else linear.bias.detach().to("cpu", dtype)
        # `reordered` is in oneDNN's own format; `weight` is shared with the network, and takes no memory.
        self.reordered = torch.ops.mkldnn._reorder_linear_weight(weight) if reorder and can_prepack(dtype) else None
        self.weight = weight if self.reordered is None or dtype == torch.float32 else None

    def __call__(self, hidden: Float[Tensor, "T _"], added: Float[Tensor, "T _"] | None = None) -> Float[Tensor, "T _"]:
        """The product, after the activation if there is one, plus `added`."""
        if self.reordered is None or (self.weight is not None and len(hidden) == 1):
            return self._plain(hidden, added)
        product = torch.ops.mkldnn._linear_pointwise
        if self.activation is not None:
            if self.activation in FUSED_ACTIVATIONS:
                activated: Tensor = product(hidden, self.reordered, self.bias, "gelu", [], ALGORITHMS[self.activation])
            else:
                activated = ACTIVATIONS[self.activation](product(hidden, self.reordered, self.bias, "none", [], ""))
            return activated if added is None else activated + added
        if added is None:
            return cast(Tensor, product(hidden, self.reordered, self.bias, "none", [], ""))
        return cast(Tensor, product.binary(hidden, added, self.reordered, self.bias, "add"))

    def _plain(self, hidden: Tensor, added: Tensor | None) -> Tensor:
        assert self.weight is not None
        if self.bias is None and self.activation is None and added is not None:
            return torch.addmm(added, hidden, self.weight.t())  # one call instead of two
        product = F.linear(hidden, self.weight, self.bias)
        activated = product if self.activation is None else ACTIVATIONS[self.activation](product)
        return activated if added is None else activated + added


class PrepackedCrossAttention:
    """`CrossAttention` without its output projection."""

    def __init__(self, cross: CrossAttention, dtype: torch.dtype, reorder: bool) -> None:
        self.dtype, self.heads, self.query_scale = dtype, cross.heads, cross.query_scale
        self.query, self.kv = (PrepackedLinear(part, dtype, reorder=reorder) for part in (cross.query, cross.kv))

    def __call__(self, hidden: Float[Tensor, "T D"], memory: EncodedMemory | LayerCache) -> Float[Tensor, "T _"]:
        query = torch.unflatten(self.query(hidden), 1, (self.heads, -1)) * self.query_scale  # T H K
        if isinstance(memory, LayerCache):  # keys and values of the memory never change
            return memory.attend(query).flatten(1)
        return memory.kernel.attend(query, *self.key_value(memory.vectors)).flatten(1)

    def key_value(self, memory: Float[Tensor, "S D"]) -> tuple[Float[Tensor, "S H K"], Float[Tensor, "S H K"]]:
        """The keys and values of the memory."""
        key, value = torch.unflatten(self.kv(memory.to(self.dtype)), 1, (2, self.heads, -1)).unbind(1)
        return key, value


class PrepackedLayer:
    """`Layer` for inference on a CPU: the same result in fewer passes. Norms compute in float32.

    With pre-norm the residual stream grows from layer to layer, and stays in float32.
    """

    def __init__(self, layer: Layer, dtype: torch.dtype, reorder: bool) -> None:
        self.dtype, self.pre_norm = dtype, layer.pre_norm
        self.heads, self.query_scale = layer.attention.heads, layer.attention.query_scale
        product = partial(PrepackedLinear, dtype=dtype, reorder=reorder)
        self.qkv, self.output = product(layer.attention.qkv), product(layer.attention.output)
        self.attention_norm = _float32_norm(layer.attention_norm)
        self.cross_attention = (
            PrepackedCrossAttention(layer.cross_attention, dtype, reorder) if layer.has_cross_attention else None
        )
        if layer.has_cross_attention:
            self.cross_output, self.cross_attention_norm = (
                product(layer.cross_attention.output),
                _float32_norm(layer.cross_attention_norm),
            )
        activation = layer.feed_forward.activation
        self.gate = ACTIVATIONS[activation] if layer.feed_forward.gated else None
        self.up = product(layer.feed_forward.up, activation=None if self.gate else activation)
        self.down = product(layer.feed_forward.down)
        self.feed_forward_norm = _float32_norm(layer.feed_forward_norm)

    def __call__(
        self, hidden: Float[Tensor, "T D"], inputs: AttentionInputs, selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        hidden = hidden.to(torch.float32 if self.pre_norm else self.dtype)
        cross, later = self.cross_attention, None
        if cross is not None:
            selected, later = None, selected  # selected after cross-attention instead
        attended = take(self._self_attention(self._sublayer_input(hidden, self.attention_norm), inputs), selected)
        hidden = self._residual(attended, self.output, take(hidden, selected), self.attention_norm)
        if cross is not None:
            assert inputs.memory is not None
            attended = take(cross(self._sublayer_input(hidden, self.cross_attention_norm), inputs.memory), later)
            hidden = self._residual(attended, self.cross_output, take(hidden, later), self.cross_attention_norm)
        activated = self._activated(self._sublayer_input(hidden, self.feed_forward_norm))
        return self._residual(activated, self.down, hidden, self.feed_forward_norm)

    def _sublayer_input(self, hidden: Tensor, norm: "nn.Module | FastRMSNorm") -> Tensor:
        """The input of a sublayer, after the norm in pre-norm layers."""
        return _apply_norm(norm, hidden).to(self.dtype) if self.pre_norm else hidden

    def _residual(
        self, hidden: Tensor, linear: PrepackedLinear, skip: Tensor, norm: "nn.Module | FastRMSNorm"
    ) -> Tensor:
        """Residual connection, with the norm after it in post-norm layers."""
        summed = linear(hidden, skip) if self.dtype == skip.dtype else linear(hidden) + skip
        return summed if self.pre_norm else _apply_norm(norm, summed)

    def _self_attention(self, hidden: Tensor, inputs: AttentionInputs) -> Tensor:
        qkv = torch.unflatten(self.qkv(hidden), 1, (3, self.heads, -1))  # T 3 H K
        if inputs.rotation is not None:
            qkv = apply_rotary(qkv, inputs.rotation)
        query, key, value = qkv.unbind(1)
        return inputs.kernel.attend(query if self.query_scale == 1 else query * self.query_scale, key, value).flatten(1)

    def _activated(self, hidden: Tensor) -> Tensor:
        wide = self.up(hidden)
        if self.gate is None:
            return wide
        gate, value = wide.chunk(2, -1)
        return self.gate(gate) * value


def prepack(trunk: M, dtype: torch.dtype = torch.bfloat16, *, reorder: bool = True) -> M:
    """A copy of a transformer on the CPU with prepacked layers; it shares the embedding tables.

    In bfloat16 the vectors are within a cosine of 0.999 of those in float32; in float32 they are the same.
    """
    whole: Any = trunk
    light = copy.copy(whole)
    # Copies of the modules, so that eval() does not reach the original; not of their tables, nor of the layers.
    others = (pair for pair in whole.named_children() if pair[0] not in ("layers", "final_norm"))
    light._modules = {name: copy.copy(part) for name, part in others}
    if any(part.device.type != "cpu" for part in light.parameters()):
        light = copy.deepcopy(light).cpu()
    light.layers = [PrepackedLayer(layer, dtype, reorder) for layer in whole.layers]
    light.final_norm = _float32_norm(whole.final_norm)
    return cast(M, light.eval())


@cache
def can_prepack(dtype: torch.dtype) -> bool:
    """Whether this CPU and this build of torch can reorder weights of a precision."""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    if not torch._C._has_mkldnn or not all(hasattr(torch.ops.mkldnn, name) for name in names):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


class FastRMSNorm:
    """`nn.RMSNorm` in four calls instead of torch's dozen on a CPU, each of which costs a token more than its sums."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        (width,), weight = norm.normalized_shape, norm.weight.detach().to("cpu", torch.float32)
        eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
        # The root mean square is the L2 norm over sqrt(width): that factor is in the weight and in eps.
        self.weight: Tensor = weight * width**0.5
        self.eps = torch.tensor((width * eps) ** 0.5)

    def __call__(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        length = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True, dtype=torch.float32)
        return (hidden * self.weight).div_(length.hypot_(self.eps)).to(hidden.dtype)


def _float32_norm(norm: nn.Module) -> nn.Module | FastRMSNorm:
    """A copy of a norm that computes in float32."""
    return FastRMSNorm(norm) if isinstance(norm, nn.RMSNorm) else copy.deepcopy(norm).to("cpu", torch.float32)


def _apply_norm(norm: nn.Module | FastRMSNorm, hidden: Tensor) -> Tensor:
    if isinstance(norm, nn.LayerNorm):
        # A CPU's kernel takes bfloat16 vectors with float32 weights, and computes in float32.
        return F.layer_norm(hidden, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    normed: Tensor = norm(hidden)  # or the identity: the first layer's input is normalised already
    return normed
