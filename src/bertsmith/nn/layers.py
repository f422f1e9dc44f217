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
    """Every token looks at its own sequence through several heads. Vaswani et al. 2017, section 3.2.2."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float,
        biases: bool = True,
        inner: int | None = None,
        scale_scores: bool = True,
    ) -> None:
        """`inner` is the width of all heads together; without `scaled`, scores are not divided by a head's root."""
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
        """What all heads have taken, before it is projected once more."""
        product = self.qkv(hidden).unflatten(1, (3, self.heads, -1))  # T 3 H K
        dropout = self.dropout if self.training else 0.0
        if layout.rotary is not None:
            product = apply_rotary(product, layout.rotary)
        if self.query_scale != 1:
            query, key, value = product.unbind(1)
            attended = attend(query * self.query_scale, key, value, layout, dropout)
        else:
            attended = attend_qkv(product, layout, dropout)
        return take(attended.flatten(1), selected)


class CrossAttention(nn.Module):
    """Every token of one text looks at all of another, the memory. Vaswani et al. 2017, section 3.2.3."""

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
        """The keys and values of the other text."""
        key, value = self.kv(memory).unflatten(1, (2, self.heads, -1)).unbind(1)
        return key, value


class FeedForward(nn.Module):
    """The same small network at every token: widen, bend, narrow. Vaswani et al. 2017, section 3.3.

    A gated one is widened twice, and what is bent says how much of the other half passes. Shazeer 2020.
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
        narrowed: Tensor = self.down(self.activated(hidden))
        return narrowed

    def activated(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        """Widened and bent, before it is narrowed."""
        return self._fused(hidden) if self._can_fuse(hidden) else self._activate(self.up(hidden))

    def _activate(self, wide: Float[Tensor, "T W"]) -> Float[Tensor, "T F"]:
        if not self.gated:
            return self.activation(wide)
        gate, passed = wide.chunk(2, -1)
        return self.activation(gate) * passed

    def _can_fuse(self, hidden: Tensor) -> bool:
        """Whether our own kernel can widen and bend at once."""
        return self.is_gelu and _can_fuse(hidden, self.up)

    def _fused(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        from bertsmith.nn.kernels.bias_gelu import bias_gelu  # needs Triton

        wide, bias = F.linear(hidden, self.up.weight), self.up.bias
        if wide.dtype == torch.float32:  # whose last bits the kernel does not have
            return self._activate(wide if bias is None else wide + bias)
        return bias_gelu(wide, bias, gated=self.gated, tanh=self.tanh_approximation)


class Layer(nn.Module):
    """One layer. The norm comes after each sum, as in Vaswani et al. 2017, section 3.1, or before each sublayer.

    With the norm before, what is added up passes untouched from the first layer to the last, so that deep networks
    learn at high rates. Xiong et al. 2020. The `first` such layer may find its input normed already.
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
        """The vectors after this layer, or only those of the `selected` tokens: the others are not computed."""
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
        """The product of what is given, added to what is beside it, and normed."""
        half = skip.dtype == hidden.dtype == torch.bfloat16  # full precision has more bits than our kernel keeps
        biased = isinstance(norm, nn.LayerNorm) and norm.bias is not None
        if half and biased and _can_fuse(hidden, linear):
            return self._fused_residual(skip, hidden, cast(nn.Linear, linear), cast(nn.LayerNorm, norm))
        summed: Tensor = norm(skip + self.dropout(linear(hidden)))
        return summed

    def _fused_residual(self, skip: Tensor, hidden: Tensor, linear: nn.Linear, norm: nn.LayerNorm) -> Tensor:
        from bertsmith.nn.kernels.residual_layer_norm import residual_layer_norm as joined  # needs Triton

        share, keys = self.dropout.probability if self.training else 0.0, draw_keys(skip.device)
        wide = F.linear(hidden, linear.weight)  # the bias comes with the sum
        return joined(wide, linear.bias, skip, norm.weight, norm.bias, norm.eps, share, keys)

    def _cross_attention(self, hidden: Tensor, layout: Layout) -> Tensor:
        if self.pre_norm:
            looked: Tensor = self.dropout(self.cross_attention(self.cross_attention_norm(hidden), layout))
            return hidden + looked
        after: Tensor = self.cross_attention_norm(hidden + self.dropout(self.cross_attention(hidden, layout)))
        return after


def _can_fuse(hidden: Tensor, linear: nn.Module) -> bool:
    """Whether a kernel of ours can take what stands around a product: as with attention, in compiled steps on a GPU."""
    plain = type(linear) is nn.Linear  # and not one that learns by LoRA
    return torch.compiler.is_compiling() and hidden.is_cuda and plain and kernels_unavailable(hidden.device) is None


def make_norm(width: int, eps: float, biases: bool, rms: bool) -> nn.Module:
    """A norm: of mean nought and deviation one; or by the `root` of the mean square alone. Zhang and Sennrich 2019."""
    return nn.RMSNorm(width, eps) if rms else nn.LayerNorm(width, eps, bias=biases)


def take(vectors: Float[Tensor, "T D"], selected: Int[Tensor, "N"] | None) -> Float[Tensor, "_ D"]:
    """The vectors of some tokens, or all of them."""
    return vectors if selected is None else vectors.index_select(0, selected)
