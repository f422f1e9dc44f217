"""The configuration of a transformer: its sizes, and the choices by which members differ."""

from dataclasses import dataclass
from typing import Literal

from bertsmith.models.counts import Counted
from bertsmith.nn.activations import Activation
from bertsmith.nn.heads import PoolerActivation

Positions = Literal["learned", "sinusoidal", "rotary", "relative", "learned_relative"]  # the last has both
NormPosition = Literal["post", "pre"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(Counted):
    """Sizes and choices of a transformer. The defaults are BERT-base.

    >>> round(bertsmith.TransformerConfig().parameter_count / 1e6)
    109
    """

    vocabulary: int = 30_522  # tokens in the tokenizer's vocabulary
    width: int = 768  # of the hidden vector of a token (d_model)
    embedding_width: int = 0  # of a factorised embedding, projected to the width of the network; 0: not factorised
    layers: int = 12  # of the encoder, or of a network without one
    decoder_layers: int = 0  # of the decoder, which attends to the encoder's output; 0: there is no decoder
    share_layers: bool = False  # cross-layer parameter sharing: one layer, applied `layers` times
    heads: int = 12  # attention heads of every layer
    head_width: int = 0  # of the queries, keys and values of one head; 0: width / heads
    scale_scores: bool = True  # attention scores are divided by the square root of the head width
    feed_forward: int = 3072  # inner width of the feed-forward network
    max_length: int = 512  # tokens of the longest sequence
    positions: Positions = "learned"
    position_offset: int = 0  # rows of the learned table before that of the first position; they are never read
    buckets: int = 32  # of relative positions: distances are sorted into this many buckets
    max_distance: int = 128  # of relative positions: all larger distances share a bucket
    rotary_base: float = 10_000.0  # theta of rotary positions; the slowest rotation takes about 6 theta tokens
    window: int = 0  # sliding-window attention: tokens that local layers see on either side; 0: no local layers
    global_every: int = 3  # with a window: layers 0, n, 2n ... attend to the whole sequence
    window_rotary_base: float = 10_000.0  # theta of rotary positions in local layers
    causal: bool = False  # a token attends to itself and to earlier tokens only
    cross_attention: bool = False  # every layer also attends to the output of an encoder
    segments: int = 2  # segment (token type) embeddings: 2 for the texts of a pair; 1 and 0: texts are not marked
    activation: Activation = "gelu"
    pooler: PoolerActivation = "tanh"  # its activation; with any other than "tanh" each task trains its own pooler
    gated: bool = False  # the feed-forward network is a gated linear unit, with three matrices
    norm_position: NormPosition = "post"  # after each residual sum; "pre": before each sublayer, and once at the end
    embedding_norm: bool = True  # the sum of the embeddings is normalised
    norm: Literal["layer", "rms"] = "layer"  # LayerNorm, or RMSNorm, which does not subtract the mean
    tie_embeddings: bool = True  # weight tying: the output layer is the embedding table
    biases: bool = True  # of linear layers and norms
    norm_eps: float = 1e-12
    dropout: float = 0.1  # of the embeddings and of each sublayer's output
    attention_dropout: float = 0.1  # of the attention weights
    alias: Literal["", "xlm-roberta", "camembert"] = ""  # model_type, where transformers has several for one network

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "feed_forward", "max_length", "global_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")
        for name in ("segments", "position_offset", "embedding_width", "window", "decoder_layers", "head_width"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 0")
        if not self.head_width and self.width % self.heads:
            raise ValueError(f"a width of {self.width} cannot be shared by {self.heads} heads. Take a multiple")
        if self.positions == "rotary" and self.head_size % 2:
            raise ValueError(f"heads of width {self.head_size} cannot be rotated in pairs. Take an even width")
        if self.relative and not 4 <= self.buckets < 2 * self.max_distance:
            fact = f"{self.buckets} buckets for distances up to {self.max_distance}"
            raise ValueError(f"{fact}. Take at least 4, and fewer than twice that")
        if self.relative and self.window:
            raise ValueError("local layers have no relative positions. Take rotary or learned ones, or window = 0")
        for name in ("rotary_base", "window_rotary_base"):
            if getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give more than 1, usually 10000")
        for name in ("dropout", "attention_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}. Give a share, at least 0 and below 1")

    @property
    def architecture(self) -> Literal["encoder", "decoder", "encoder_decoder"]:
        """Whether the network reads a text, continues it, or writes another."""
        return "encoder_decoder" if self.decoder_layers else "decoder" if self.causal else "encoder"

    @property
    def learned(self) -> bool:
        """Whether there is a learned table of positions."""
        return self.positions in ("learned", "learned_relative")

    @property
    def relative(self) -> bool:
        """Whether attention scores get a relative position bias."""
        return self.positions in ("relative", "learned_relative")

    @property
    def head_size(self) -> int:
        """The width of one head."""
        return self.head_width or self.width // self.heads

    @property
    def inner(self) -> int:
        """The width of all heads together."""
        return self.heads * self.head_size

    @property
    def table(self) -> int:
        """The width of the embedding tables."""
        return self.embedding_width or self.width

    @property
    def distinct(self) -> int:
        """The number of layers with separate weights."""
        return 1 if self.share_layers else self.layers

    def is_local(self, layer: int) -> bool:
        """Whether a layer has sliding-window attention."""
        return self.window > 0 and layer % self.global_every > 0

    @property
    def parameter_count(self) -> int:
        """Parameters as papers count them: with the pooler where the network is published with one."""
        pooled = self.pooler == "tanh" and self.norm_position == "post" and not (self.causal or self.decoder_layers)
        return super().parameter_count + (self.width * self.width + self.width if pooled else 0)

    @property
    def output_products(self) -> int:
        """Products of one prediction: the transform of the masked LM head, then the table."""
        return (self.width + self.vocabulary) * self.table

    def attention_products(self, mean_length: int | float) -> float:
        """Products per token of queries with keys, and of attention weights with values."""
        mean_length = (mean_length + 1) / 2 if self.causal else mean_length
        local_length = min(mean_length, (1 if self.causal else 2) * self.window + 1)
        lengths = (local_length if self.is_local(number) else mean_length for number in range(self.layers))
        return 2 * self.inner * sum(lengths)
