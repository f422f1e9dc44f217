"""Transformer layers: multi-head attention and a feed-forward network, each with a residual connection.

A decoder's layers have cross-attention to the encoder's output as well. Layer normalisation (LayerNorm, or RMSNorm)
stands after each sum (post-norm), as in BERT, or before each sublayer (pre-norm), as in GPT-2 and T5.
"""

from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.nn.activations import ACTIVATIONS, Activation
from bertsmith.nn.attention import attend, attend_cached, attend_qkv
from bertsmith.nn.dropout import Dropout, draw_keys
from bertsmith.nn.layout import Layout, kernels_unavailable
from bertsmith.nn.positions import apply_rotary

NormPosition = Literal["post", "pre"]


class Attention(nn.Module):
    """Multi-head self-attention within each sequence. Vaswani et al. 2017, section 3.2.2."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float,
        biases: bool = True,
        inner: int | None = None,
        scale_scores: bool = True,
    ) -> None:
        """`inner` is the width of all heads; without `scale_scores`, as in T5, scores are not divided by sqrt(K)."""
        super().__init__()
        inner = inner or width
        self.heads, self.dropout = heads, dropout
        self.query_scale = 1.0 if scale_scores else (inner // heads) ** 0.5  # kernels divide by it
        self.qkv = nn.Linear(width, 3 * inner, biases)  # query, key and value in one product
        self.output = nn.Linear(inner, width, biases)

    def forward(
        self, hidden: Float[Tensor, "T D"], layout: Layout, selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        projected: Tensor = self.output(self.attended(hidden, layout, selected))
        return projected

    def attended(self, hidden: Float[Tensor, "T D"], layout: Layout, selected: Int[Tensor, "N"] | None) -> Tensor:
        """The output of all heads, before the output projection."""
        qkv = self.qkv(hidden).unflatten(1, (3, self.heads, -1))  # T 3 H K
        dropout = self.dropout if self.training else 0.0
        if layout.rotary is not None:
            qkv = apply_rotary(qkv, layout.rotary)
        if self.query_scale != 1:
            query, key, value = qkv.unbind(1)
            attended = attend(query * self.query_scale, key, value, layout, dropout)
        else:
            attended = attend_qkv(qkv, layout, dropout)
        return take(attended.flatten(1), selected)


class CrossAttention(nn.Module):
    """Cross-attention of a decoder to the encoder's output, the memory. Vaswani et al. 2017, section 3.2.3."""

    def __init__(self, width: int, heads: int, dropout: float, biases: bool, inner: int, scale_scores: bool) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query_scale = 1.0 if scale_scores else (inner // heads) ** 0.5  # kernels divide by it
        self.query = nn.Linear(width, inner, biases)
        self.kv = nn.Linear(width, 2 * inner, biases)  # key and value in one product
        self.output = nn.Linear(inner, width, biases)

    def forward(self, hidden: Float[Tensor, "T D"], layout: Layout) -> Float[Tensor, "T D"]:
        query = self.query(hidden).unflatten(1, (self.heads, -1)) * self.query_scale  # T H K
        if layout.kernel == "cached":  # keys and values of the memory never change
            attended = attend_cached(query, layout)
        else:
            assert layout.memory is not None
            attended = attend(query, *self.key_value(layout.memory), layout, self.dropout if self.training else 0.0)
        projected: Tensor = self.output(attended.flatten(1))
        return projected

    def key_value(self, memory: Float[Tensor, "S D"]) -> tuple[Float[Tensor, "S H K"], Float[Tensor, "S H K"]]:
        """The keys and values of the memory."""
        key, value = self.kv(memory).unflatten(1, (2, self.heads, -1)).unbind(1)
        return key, value


class FeedForward(nn.Module):
    """The feed-forward network of each token: up projection, activation, down projection. Vaswani et al. 2017, 3.3.

    With a gate the up projection is twice as wide, and its activated half is multiplied with the other. Shazeer 2020.
    """

    def __init__(
        self, width: int, feed_forward: int, activation: Activation, gated: bool = False, biases: bool = True
    ) -> None:
        super().__init__()
        self.activation, self.gated = ACTIVATIONS[activation], gated
        self.is_gelu, self.tanh_approximation = activation != "relu", activation == "gelu_tanh"
        self.up = nn.Linear(width, 2 * feed_forward if gated else feed_forward, biases)
        self.down = nn.Linear(feed_forward, width, biases)

    def forward(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        projected: Tensor = self.down(self.activated(hidden))
        return projected

    def activated(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        """The activations, before the down projection."""
        return self._fused(hidden) if self._can_fuse(hidden) else self._activate(self.up(hidden))

    def _activate(self, wide: Float[Tensor, "T W"]) -> Float[Tensor, "T F"]:
        if not self.gated:
            return self.activation(wide)
        gate, value = wide.chunk(2, -1)
        return self.activation(gate) * value

    def _can_fuse(self, hidden: Tensor) -> bool:
        """Whether our fused kernel of bias and GELU can be used."""
        return self.is_gelu and _can_fuse(hidden, self.up)

    def _fused(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        from bertsmith.nn.kernels.bias_gelu import bias_gelu  # needs Triton

        wide, bias = F.linear(hidden, self.up.weight), self.up.bias
        if wide.dtype == torch.float32:  # the kernel's GELU is exact to half precision only
            return self._activate(wide if bias is None else wide + bias)
        return bias_gelu(wide, bias, gated=self.gated, tanh=self.tanh_approximation)


class Layer(nn.Module):
    """A transformer layer: attention and feed-forward network, each with a residual connection and a norm.

    Post-norm normalises each sum (Vaswani et al. 2017, section 3.1), pre-norm the input of each sublayer: its residual
    stream is untouched from the first layer to the last, so that deep networks train at high learning rates (Xiong et
    al. 2020). The `first` pre-norm layer may get an input that is normalised already.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feed_forward: int,
        activation: Activation,
        norm_eps: float,
        dropout: float,
        attention_dropout: float,
        norm_position: NormPosition = "post",
        gated: bool = False,
        biases: bool = True,
        first: bool = False,
        inner: int | None = None,
        scale_scores: bool = True,
        rms: bool = False,
        cross_attention: bool = False,
    ) -> None:
        super().__init__()
        self.pre_norm, self.has_cross_attention = norm_position == "pre", cross_attention
        self.attention = Attention(width, heads, attention_dropout, biases, inner, scale_scores)
        bare = self.pre_norm and first
        self.attention_norm = nn.Identity() if bare else make_norm(width, norm_eps, biases, rms)
        if cross_attention:
            self.cross_attention = CrossAttention(width, heads, attention_dropout, biases, inner or width, scale_scores)
            self.cross_attention_norm = make_norm(width, norm_eps, biases, rms)
        self.feed_forward = FeedForward(width, feed_forward, activation, gated, biases)
        self.feed_forward_norm = make_norm(width, norm_eps, biases, rms)
        self.dropout = Dropout(dropout)

    def forward(
        self, hidden: Float[Tensor, "T D"], layout: Layout, selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """The hidden vectors after this layer, of all tokens or of the `selected` ones only."""
        if layout.cross is not None:
            hidden = self._cross_attention(self._self_attention(hidden, layout, None), layout.cross)
            hidden = take(hidden, selected)
        else:
            hidden = self._self_attention(hidden, layout, selected)
        if self.pre_norm:
            summed: Tensor = hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
            return summed
        return self._residual(
            hidden, self.feed_forward.activated(hidden), self.feed_forward.down, self.feed_forward_norm
        )

    def _self_attention(self, hidden: Tensor, layout: Layout, selected: Tensor | None) -> Tensor:
        if self.pre_norm:
            attended: Tensor = self.dropout(self.attention(self.attention_norm(hidden), layout, selected))
            return take(hidden, selected) + attended
        attended = self.attention.attended(hidden, layout, selected)
        return self._residual(take(hidden, selected), attended, self.attention.output, self.attention_norm)

    def _residual(self, skip: Tensor, hidden: Tensor, linear: nn.Module, norm: nn.Module) -> Tensor:
        """Post-norm residual connection: norm(skip + dropout(linear(hidden)))."""
        bfloat16 = skip.dtype == hidden.dtype == torch.bfloat16  # our kernel recomputes the sum from its rounded output
        biased = isinstance(norm, nn.LayerNorm) and norm.bias is not None
        if bfloat16 and biased and _can_fuse(hidden, linear):
            return self._fused_residual(skip, hidden, cast(nn.Linear, linear), cast(nn.LayerNorm, norm))
        summed: Tensor = norm(skip + self.dropout(linear(hidden)))
        return summed

    def _fused_residual(self, skip: Tensor, hidden: Tensor, linear: nn.Linear, norm: nn.LayerNorm) -> Tensor:
        from bertsmith.nn.kernels.residual_layer_norm import residual_layer_norm  # needs Triton

        probability, keys = self.dropout.probability if self.training else 0.0, draw_keys(skip.device)
        product = F.linear(hidden, linear.weight)  # the kernel adds the bias
        return residual_layer_norm(product, linear.bias, skip, norm.weight, norm.bias, norm.eps, probability, keys)

    def _cross_attention(self, hidden: Tensor, layout: Layout) -> Tensor:
        if self.pre_norm:
            attended: Tensor = self.dropout(self.cross_attention(self.cross_attention_norm(hidden), layout))
            return hidden + attended
        normed: Tensor = self.cross_attention_norm(hidden + self.dropout(self.cross_attention(hidden, layout)))
        return normed


def _can_fuse(hidden: Tensor, linear: nn.Module) -> bool:
    """Whether our kernels can fuse the operations around a linear layer: in compiled steps on a GPU."""
    plain = type(linear) is nn.Linear  # not LoRA's
    return torch.compiler.is_compiling() and hidden.is_cuda and plain and kernels_unavailable(hidden.device) is None


def make_norm(width: int, eps: float, biases: bool, rms: bool) -> nn.Module:
    """LayerNorm, or RMSNorm, which subtracts no mean (Zhang and Sennrich 2019)."""
    return nn.RMSNorm(width, eps) if rms else nn.LayerNorm(width, eps, bias=biases)


def take(vectors: Float[Tensor, "T D"], selected: Int[Tensor, "N"] | None) -> Float[Tensor, "_ D"]:
    """The vectors of the selected tokens, or all of them."""
    return vectors if selected is None else vectors.index_select(0, selected)
