"""The one transformer: every member that is made of attention is this network with another configuration."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.errors import TextError
from bertsmith.nn.attention import Kernel, Layout, best_kernel
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.layers import Activation, Layer
from bertsmith.nn.positions import Learned, Sinusoidal

Positions = Literal["learned", "sinusoidal"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """How large the network is, and the few questions members answer differently. As it stands: BERT-base."""

    vocabulary: int = 30_522  # pieces the tokenizer knows
    width: int = 768  # of the vector that stands for a token
    layers: int = 12
    heads: int = 12  # ways of looking, in every layer
    feed_forward: int = 3072  # width inside the feed-forward network
    length: int = 512  # most tokens in a sequence
    positions: Positions = "learned"
    segments: int = 2  # kinds of text in one sequence: the first and the second of a pair
    activation: Activation = "gelu"
    norm_eps: float = 1e-12
    dropout: float = 0.1  # of the embedding's and of each sublayer's output
    attention_dropout: float = 0.1  # of the attention weights

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "feed_forward", "length", "segments"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width} cannot be shared by {self.heads} heads. Take a multiple")
        for name in ("dropout", "attention_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}. Give a share, at least 0 and below 1")

    @property
    def count(self) -> int:
        """Parameters, pooler included, as papers give them."""
        D, F = self.width, self.feed_forward
        positions = self.length if self.positions == "learned" else 0
        embeddings = (self.vocabulary + positions + self.segments + 2) * D
        layer = 4 * (D * D + D) + (D * F + F) + (F * D + D) + 4 * D
        return embeddings + self.layers * layer + D * D + D

    def flops(self, attended: int | float, chosen: float) -> float:
        """Floating-point operations the maths of training needs for one token, forwards and backwards.

        `attended` is the mean length a token looks at, sum(length^2) / sum(length); `chosen` is the share of
        tokens that are guessed from the whole vocabulary.
        """
        D, F = self.width, self.feed_forward
        layer = 6 * (4 * D * D + 2 * D * F) + 12 * D * attended
        return self.layers * layer + 6 * chosen * (self.vocabulary * D + D * D)


class Transformer(nn.Module):
    """An encoder: a vector for each token, made of all tokens of its sequence. Devlin et al. 2018."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.positions: nn.Module
        match config.positions:
            case "learned":
                self.positions = Learned(config.length, config.width)
            case "sinusoidal":
                self.positions = Sinusoidal(config.length, config.width)
        self.segments = nn.Embedding(config.segments, config.width)
        self.norm = nn.LayerNorm(config.width, config.norm_eps)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            Layer(
                width=config.width,
                heads=config.heads,
                feed_forward=config.feed_forward,
                activation=config.activation,
                norm_eps=config.norm_eps,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
            )
            for _ in range(config.layers)
        )

    def forward(
        self, tokens: Tokens, kernel: Kernel | None = None, *, read: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """The last layer's vectors, by the kernel asked for or the fastest for this batch and device.

        Of the last layer only what somebody reads need be computed: `read` names the tokens. In BERT-base's
        pretraining that saves a twentieth of the work, in a small network and in classification much more.
        """
        hidden = self._embed(tokens)
        layout = self._layout(tokens, hidden, kernel)
        *before, last = self.layers
        for layer in before:
            hidden = layer(hidden, layout)
        vectors: Tensor = last(hidden, layout, read)
        return vectors

    def states(self, tokens: Tokens, kernel: Kernel | None = None) -> list[Float[Tensor, "T D"]]:
        """The vectors after the embedding and after every layer."""
        states = [self._embed(tokens)]
        layout = self._layout(tokens, states[0], kernel)
        for layer in self.layers:
            states.append(layer(states[-1], layout))
        return states

    def record(self, tokens: Tokens) -> list[list[Float[Tensor, "H _ _"]]]:
        """Who looked at whom: by layer and sequence, how much each token (row) took from each (column)."""
        hidden = self._embed(tokens)
        layout = self._layout(tokens, hidden, "recorded")
        for layer in self.layers:
            hidden = layer(hidden, layout)
        return layout.weights

    def _embed(self, tokens: Tokens) -> Tensor:
        if tokens.longest > self.config.length:
            fact = f"sequences of {tokens.longest} tokens do not fit into {self.config.length} positions"
            raise TextError("tokens", fact, "Cut the text shorter, or train a model with more positions")
        segments = self.segments.weight[0] if tokens.segments is None else self.segments(tokens.segments)
        embedded = self.embedding(tokens.ids) + self.positions(tokens.positions) + segments
        hidden: Tensor = self.dropout(self.norm(embedded))
        return hidden

    def _layout(self, tokens: Tokens, hidden: Tensor, kernel: Kernel | None) -> Layout:
        if kernel is None:
            device = hidden.device
            # Under autocast the projections come out in its precision, whatever the weights are kept in.
            cast = torch.is_autocast_enabled(device.type)
            dtype = torch.get_autocast_dtype(device.type) if cast else hidden.dtype
            kernel = best_kernel(tokens.equal, device, dtype, self.config.width // self.config.heads)
        return Layout.of(tokens.bounds, tokens.longest, kernel)
