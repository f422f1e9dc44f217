"""Layers: attention, then a feed-forward network, each added to what came in and normalised after."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.nn.attention import Layout, attend
from bertsmith.nn.dropout import Dropout

Activation = Literal["gelu", "gelu_tanh"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class Attention(nn.Module):
    """Every token looks at its own sequence through several heads. Vaswani et al. 2017, section 3.2.2."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.project = nn.Linear(width, 3 * width)  # query, key and value in one product
        self.output = nn.Linear(width, width)

    def forward(
        self, hidden: Float[Tensor, "T D"], layout: Layout, read: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        query, key, value = self.project(hidden).unflatten(1, (3, self.heads, -1)).unbind(1)  # T H K
        attended = attend(query, key, value, layout, self.dropout if self.training else 0.0)
        projected: Tensor = self.output(only(attended.flatten(1), read))
        return projected


class FeedForward(nn.Module):
    """The same small network at every token: widen, bend, narrow. Vaswani et al. 2017, section 3.3."""

    def __init__(self, width: int, feed_forward: int, activation: Activation) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.widen = nn.Linear(width, feed_forward)
        self.narrow = nn.Linear(feed_forward, width)

    def forward(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        narrowed: Tensor = self.narrow(self.activation(self.widen(hidden)))
        return narrowed


class Layer(nn.Module):
    """One layer of BERT's encoder: the norm comes after each sum, as in Vaswani et al. 2017, section 3.1."""

    def __init__(
        self,
        width: int,
        heads: int,
        feed_forward: int,
        activation: Activation,
        norm_eps: float,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        self.attention = Attention(width, heads, attention_dropout)
        self.attention_norm = nn.LayerNorm(width, norm_eps)
        self.feed_forward = FeedForward(width, feed_forward, activation)
        self.feed_forward_norm = nn.LayerNorm(width, norm_eps)
        self.dropout = Dropout(dropout)

    def forward(
        self, hidden: Float[Tensor, "T D"], layout: Layout, read: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """The vectors after this layer, or only those of the tokens to `read`: the others are not computed."""
        attended = self.attention(hidden, layout, read)
        hidden = self.attention_norm(only(hidden, read) + self.dropout(attended))
        normed: Tensor = self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))
        return normed


def only(vectors: Float[Tensor, "T D"], read: Int[Tensor, "N"] | None) -> Float[Tensor, "_ D"]:
    """The vectors of some tokens, or all of them."""
    return vectors if read is None else vectors.index_select(0, read)
