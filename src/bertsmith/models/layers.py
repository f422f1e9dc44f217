"""Transformer layers: multi-head attention and a feed-forward network, each with a residual connection.

A decoder's layers have cross-attention to the encoder's output as well. Layer normalisation (LayerNorm, or RMSNorm)
stands after each sum (post-norm), as in BERT, or before each sublayer (pre-norm), as in GPT-2 and T5.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.activations import ACTIVATIONS
from bertsmith.nn.attention import Kernel
from bertsmith.nn.dropout import Dropout, draw_keys
from bertsmith.nn.init import CustomInit
from bertsmith.nn.kernel_choice import compute_dtype
from bertsmith.nn.kernels.availability import kernels_unavailable
from bertsmith.nn.kv_cache import LayerCache
from bertsmith.nn.positions import Rotation, apply_rotary


class EncodedMemory(NamedTuple):
    """The encoder's output, with the kernel by which a decoder attends to it."""

    vectors: Float[Tensor, "S D"]
    kernel: Kernel


class AttentionInputs(NamedTuple):
    """What attention reads besides the hidden vectors: made once for a batch, and shared by all layers of a kind."""

    kernel: Kernel
    rotation: Rotation | None = None  # of rotary positions
    memory: EncodedMemory | LayerCache | None = None  # for cross-attention; a cache has the layer's keys and values


class Layer(CustomInit):
    """A transformer layer: self-attention, in a decoder with an encoder cross-attention, and a feed-forward network.

    Post-norm normalises each sum (Vaswani et al. 2017, section 3.1), pre-norm the input of each sublayer: its residual
    stream is untouched from the first layer to the last, so that deep networks train at high learning rates (Xiong et
    al. 2020). The `first` pre-norm layer may get an input that is normalised already.
    """

    def __init__(self, config: TransformerConfig, *, first: bool = False) -> None:
        super().__init__()
        self.pre_norm, self.has_cross_attention = config.norm_position == "pre", config.cross_attention
        normalised = self.pre_norm and first and config.embedding_norm
        self.attention = Attention(config)
        self.attention_norm = nn.Identity() if normalised else make_norm(config.width, config)
        if config.cross_attention:
            self.cross_attention = CrossAttention(config)
            self.cross_attention_norm = make_norm(config.width, config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = make_norm(config.width, config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, hidden: Float[Tensor, "T D"], inputs: AttentionInputs, selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """The hidden vectors after this layer, of all tokens or of the `selected` ones only."""
        if inputs.memory is None:
            hidden = self.add(hidden, self.attention, self.attention_norm, inputs, selected=selected)
        else:
            hidden = self.add(hidden, self.attention, self.attention_norm, inputs)
            hidden = self.add(hidden, self.cross_attention, self.cross_attention_norm, inputs.memory)
            hidden = take(hidden, selected)
        return self.add(hidden, self.feed_forward, self.feed_forward_norm)

    def add(
        self,
        hidden: Float[Tensor, "T D"],
        sublayer: "Sublayer",
        norm: nn.Module,
        *inputs: Any,
        selected: Int[Tensor, "N"] | None = None,
    ) -> Float[Tensor, "_ D"]:
        """The residual connection: the output of a sublayer is added to its input."""
        summed: Tensor
        if self.pre_norm:
            summed = take(hidden, selected) + self.dropout(sublayer(norm(hidden), *inputs, selected=selected))
        elif _can_fuse_sum(hidden, sublayer, norm):
            summed = self._fused_sum(hidden, sublayer, cast(nn.LayerNorm, norm), *inputs, selected=selected)
        else:
            summed = norm(take(hidden, selected) + self.dropout(sublayer(hidden, *inputs, selected=selected)))
        return summed

    def _fused_sum(
        self, hidden: Tensor, sublayer: "Sublayer", norm: nn.LayerNorm, *inputs: Any, selected: Tensor | None
    ) -> Tensor:
        """The last line of `add`, in which one kernel adds the bias, drops out, adds and normalises."""
        from bertsmith.nn.kernels.residual_layer_norm import residual_layer_norm  # needs Triton

        last = cast(nn.Linear, sublayer.last)
        product = F.linear(take(sublayer.before_last(hidden, *inputs), selected), last.weight)
        probability, keys = self.dropout.probability if self.training else 0.0, draw_keys(hidden.device)
        skip = take(hidden, selected)
        return residual_layer_norm(product, last.bias, skip, norm.weight, norm.bias, norm.eps, probability, keys)

    def init_weights(self, generator: torch.Generator) -> None:
        """In pre-norm layers the last matrix of each sublayer is 0, so that a layer is the identity at first."""
        for sublayer in self.children():
            if self.pre_norm and isinstance(sublayer, Sublayer):
                cast(nn.Linear, sublayer.last).weight.zero_()


class Sublayer(nn.Module, ABC):
    """What a residual connection goes around: attention, or the feed-forward network. It ends in a linear layer."""

    last_name = "output"

    @property
    def last(self) -> nn.Module:
        """The linear layer at the end."""
        linear: nn.Module = getattr(self, self.last_name)
        return linear

    @abstractmethod
    def before_last(self, hidden: Float[Tensor, "T D"], *inputs: Any) -> Float[Tensor, "T _"]:
        """All of it but the linear layer at the end."""

    def forward(
        self, hidden: Float[Tensor, "T D"], *inputs: Any, selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        vectors: Tensor = self.last(take(self.before_last(hidden, *inputs), selected))
        return vectors


class Attention(Sublayer):
    """Multi-head self-attention within each sequence. Vaswani et al. 2017, section 3.2.2."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.query_scale = 1.0 if config.scale_scores else config.head_size**0.5  # kernels divide by it
        self.qkv = nn.Linear(config.width, 3 * config.inner, config.biases)  # query, key and value in one product
        self.output = nn.Linear(config.inner, config.width, config.biases)

    def before_last(self, hidden: Float[Tensor, "T D"], inputs: AttentionInputs) -> Float[Tensor, "T I"]:
        qkv, dropout = self.project(hidden, inputs.rotation), self.dropout if self.training else 0.0
        if self.query_scale == 1:
            return inputs.kernel.attend_qkv(qkv, dropout).flatten(1)
        query, key, value = qkv.unbind(1)
        return inputs.kernel.attend(query * self.query_scale, key, value, dropout).flatten(1)

    def project(self, hidden: Float[Tensor, "T D"], rotation: Rotation | None) -> Float[Tensor, "T 3 H K"]:
        """Query, key and value of every head, rotated by their positions."""
        qkv: Tensor = self.qkv(hidden).unflatten(1, (3, self.heads, -1))
        return qkv if rotation is None else apply_rotary(qkv, rotation)


class CrossAttention(Sublayer):
    """Cross-attention of a decoder to the encoder's output, the memory. Vaswani et al. 2017, section 3.2.3."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.query_scale = 1.0 if config.scale_scores else config.head_size**0.5  # kernels divide by it
        self.query = nn.Linear(config.width, config.inner, config.biases)
        self.kv = nn.Linear(config.width, 2 * config.inner, config.biases)  # key and value in one product
        self.output = nn.Linear(config.inner, config.width, config.biases)

    def before_last(self, hidden: Float[Tensor, "T D"], memory: EncodedMemory | LayerCache) -> Float[Tensor, "T I"]:
        query = self.project(hidden)
        if isinstance(memory, LayerCache):  # keys and values of the memory never change
            return memory.attend(query).flatten(1)
        dropout = self.dropout if self.training else 0.0
        return memory.kernel.attend(query, *self.key_value(memory.vectors), dropout).flatten(1)

    def project(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T H K"]:
        """The query of every head."""
        query: Tensor = self.query(hidden).unflatten(1, (self.heads, -1))
        return query * self.query_scale

    def key_value(self, memory: Float[Tensor, "S D"]) -> tuple[Float[Tensor, "S H K"], Float[Tensor, "S H K"]]:
        """The keys and values of the memory."""
        key, value = self.kv(memory).unflatten(1, (2, self.heads, -1)).unbind(1)
        return key, value


class FeedForward(Sublayer):
    """The feed-forward network of each token: up projection, activation, down projection. Vaswani et al. 2017, 3.3.

    With a gate the up projection is twice as wide, and its activated half is multiplied with the other. Shazeer 2020.
    """

    last_name = "down"

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.activation, self.gated = config.activation, config.gated
        wide = 2 * config.feed_forward if config.gated else config.feed_forward
        self.up = nn.Linear(config.width, wide, config.biases)
        self.down = nn.Linear(config.feed_forward, config.width, config.biases)

    def before_last(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        if self.activation != "relu" and _can_fuse(hidden, self.up):
            return self._fused_activation(hidden)
        return self._activate(self.up(hidden))

    def _activate(self, wide: Float[Tensor, "T W"]) -> Float[Tensor, "T F"]:
        activation = ACTIVATIONS[self.activation]
        if not self.gated:
            return activation(wide)
        gate, value = wide.chunk(2, -1)
        return activation(gate) * value

    def _fused_activation(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        """The up projection, with its bias and GELU as one kernel."""
        from bertsmith.nn.kernels.bias_gelu import bias_gelu  # needs Triton

        wide, bias = F.linear(hidden, self.up.weight), self.up.bias
        if wide.dtype == torch.float32:  # the kernel's GELU is exact to half precision only
            return self._activate(wide if bias is None else wide + bias)
        return bias_gelu(wide, bias, gated=self.gated, tanh=self.activation == "gelu_tanh")


def make_norm(width: int, config: TransformerConfig) -> nn.Module:
    """LayerNorm, or RMSNorm, which subtracts no mean (Zhang and Sennrich 2019)."""
    rms = config.norm == "rms"
    return nn.RMSNorm(width, config.norm_eps) if rms else nn.LayerNorm(width, config.norm_eps, bias=config.biases)


def take(vectors: Float[Tensor, "T D"], selected: Int[Tensor, "N"] | None) -> Float[Tensor, "_ D"]:
    """The vectors of the selected tokens, or all of them."""
    return vectors if selected is None else vectors.index_select(0, selected)


def _can_fuse(hidden: Tensor, linear: nn.Module) -> bool:
    """Whether our kernels can fuse the operations around a linear layer: in compiled steps on a GPU."""
    plain = type(linear) is nn.Linear  # not LoRA's
    return torch.compiler.is_compiling() and hidden.is_cuda and plain and kernels_unavailable(hidden.device) is None


def _can_fuse_sum(hidden: Tensor, sublayer: Sublayer, norm: nn.Module) -> bool:
    """Whether our kernel can fuse a post-norm residual connection: it recomputes the sum from its rounded output."""
    biased = isinstance(norm, nn.LayerNorm) and norm.bias is not None
    possible = biased and hidden.dtype == torch.bfloat16 and _can_fuse(hidden, sublayer.last)
    return possible and compute_dtype(hidden) == torch.bfloat16
