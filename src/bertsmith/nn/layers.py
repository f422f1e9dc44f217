"""Layers: attention, then a feed-forward network, each added to what came in, and normalised after or before."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.nn.attention import Layout, attend_product, lacking
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.positions import turned

Activation = Literal["gelu", "gelu_tanh"]
Norm = Literal["after", "before"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class Attention(nn.Module):
    """Every token looks at its own sequence through several heads. Vaswani et al. 2017, section 3.2.2."""

    def __init__(self, width: int, heads: int, dropout: float, biases: bool = True) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.project = nn.Linear(width, 3 * width, biases)  # query, key and value in one product
        self.output = nn.Linear(width, width, biases)

    def forward(
        self, hidden: Float[Tensor, "T D"], layout: Layout, read: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        product = self.project(hidden).unflatten(1, (3, self.heads, -1))  # T 3 H K
        dropout = self.dropout if self.training else 0.0
        if layout.turn is not None:
            product = turned(product, layout.turn)
        attended = attend_product(product, layout, dropout)
        projected: Tensor = self.output(only(attended.flatten(1), read))
        return projected


class FeedForward(nn.Module):
    """The same small network at every token: widen, bend, narrow. Vaswani et al. 2017, section 3.3.

    A gated one is widened twice, and what is bent says how much of the other half passes. Shazeer 2020.
    """

    def __init__(
        self, width: int, feed_forward: int, activation: Activation, gated: bool = False, biases: bool = True
    ) -> None:
        super().__init__()
        self.activation, self.gated, self.tanh = ACTIVATIONS[activation], gated, activation == "gelu_tanh"
        self.widen = nn.Linear(width, 2 * feed_forward if gated else feed_forward, biases)
        self.narrow = nn.Linear(feed_forward, width, biases)

    def forward(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        narrowed: Tensor = self.narrow(self._at_once(hidden) if self._can(hidden) else self._bent(self.widen(hidden)))
        return narrowed

    def _bent(self, wide: Float[Tensor, "T W"]) -> Float[Tensor, "T F"]:
        if not self.gated:
            return self.activation(wide)
        gate, passed = wide.chunk(2, -1)
        return self.activation(gate) * passed

    def _can(self, hidden: Tensor) -> bool:
        """Whether our own kernel can widen and bend at once: as with attention, in compiled steps on a GPU."""
        plain = type(self.widen) is nn.Linear  # and not one that learns by LoRA
        return torch.compiler.is_compiling() and hidden.is_cuda and plain and lacking(hidden.device) is None

    def _at_once(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        from bertsmith.nn.gelu import gelu  # needs Triton

        wide, bias = F.linear(hidden, self.widen.weight), self.widen.bias
        if wide.dtype == torch.float32:  # whose last bits the kernel does not have
            return self._bent(wide if bias is None else wide + bias)
        return gelu(wide, bias, gated=self.gated, tanh=self.tanh)


class Layer(nn.Module):
    """One layer. The norm comes after each sum, as in Vaswani et al. 2017, section 3.1, or before each sublayer.

    With the norm before, what is added up passes untouched from the first layer to the last, so that deep networks
    learn at high rates. Xiong et al. 2020. The first such layer finds its input normed already.
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
        norm: Norm = "after",
        gated: bool = False,
        biases: bool = True,
        first: bool = False,
    ) -> None:
        super().__init__()
        self.before = norm == "before"
        self.attention = Attention(width, heads, attention_dropout, biases)
        bare = self.before and first
        self.attention_norm = nn.Identity() if bare else nn.LayerNorm(width, norm_eps, bias=biases)
        self.feed_forward = FeedForward(width, feed_forward, activation, gated, biases)
        self.feed_forward_norm = nn.LayerNorm(width, norm_eps, bias=biases)
        self.dropout = Dropout(dropout)

    def forward(
        self, hidden: Float[Tensor, "T D"], layout: Layout, read: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """The vectors after this layer, or only those of the tokens to `read`: the others are not computed."""
        if self.before:
            attended = self.attention(self.attention_norm(hidden), layout, read)
            hidden = only(hidden, read) + self.dropout(attended)
            summed: Tensor = hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
            return summed
        attended = self.attention(hidden, layout, read)
        hidden = self.attention_norm(only(hidden, read) + self.dropout(attended))
        normed: Tensor = self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))
        return normed


def only(vectors: Float[Tensor, "T D"], read: Int[Tensor, "N"] | None) -> Float[Tensor, "_ D"]:
    """The vectors of some tokens, or all of them."""
    return vectors if read is None else vectors.index_select(0, read)
