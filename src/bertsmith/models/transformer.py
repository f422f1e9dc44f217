"""The one transformer: every member that is made of attention is this network with another configuration.

Among the settings: weight tying (the output layer shares the embedding table), parameter sharing across layers and a
factorised embedding (both ALBERT's).
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.errors import TextError
from bertsmith.nn.activations import Activation
from bertsmith.nn.attention import Kernel, Layout, Sequences, best_kernel
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.heads import Pooler, PoolerActivation, Transform
from bertsmith.nn.kv_cache import KVCache, LayerCache
from bertsmith.nn.layers import Layer, NormPosition, make_norm
from bertsmith.nn.padded import PaddedRows
from bertsmith.nn.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from bertsmith.nn.relative import RelativePositionBias
from bertsmith.nn.window import CAUSAL, FULL, Window

# How another text is looked at where one's own is looked at so: our own kernels know the bounds of one text alone, and
# the flash kernel takes those of another, too. By all others: padded.
CROSS_KERNELS: dict[Kernel, Kernel] = {"short": "varlen", "long": "varlen", "varlen": "varlen", "recorded": "recorded"}

Positions = Literal["learned", "sinusoidal", "rotary", "relative", "learned_relative"]  # the last has both


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """How large the network is, and the few questions members answer differently. As it stands: BERT-base."""

    vocabulary: int = 30_522  # pieces the tokenizer knows
    width: int = 768  # of the vector that stands for a token
    embedding_width: int = 0  # width of the tables, mapped up to that of the network; 0: as wide as the network
    layers: int = 12
    decoder_layers: int = (
        0  # layers of a second network, which writes while it looks at what the first has read; 0: none
    )
    share_layers: bool = False  # one layer, gone through again and again
    heads: int = 12  # ways of looking, in every layer
    head_width: int = 0  # of the vectors by which a head looks; 0: they share the width of the network
    scale_scores: bool = True  # scores are divided by the root of a head's width
    feed_forward: int = 3072  # width inside the feed-forward network
    max_length: int = 512  # most tokens in a sequence
    positions: Positions = "learned"
    position_offset: int = 0  # rows of a learned table that lie before the first place's and are never read
    buckets: int = 32  # with relative positions: kinds of distance that are told apart
    max_distance: int = 128  # from here on all distances are one kind
    rotary_base: float = 10_000.0  # with rotary positions: the slowest turn takes about six times so many tokens
    window: int = 0  # tokens on either side that most layers look at; 0: all layers look at all
    global_every: int = 3  # of local layers: the first, and every so many from there on, looks at all
    window_rotary_base: float = 10_000.0  # of local layers with rotary positions, in the place of rotary_base
    causal: bool = False  # a token looks at what has come, and at nothing that is to come
    cross_attention: bool = False  # and at all of another text
    segments: int = 2  # kinds of text in one sequence, the first and the second of a pair; 1 and 0: they are not marked
    activation: Activation = "gelu"
    pooler: PoolerActivation = (
        "tanh"  # how it bends a text's first vector; by others than "tanh", each task has its own
    )
    gated: bool = False  # the feed-forward network has a gate, and so three matrices
    norm_position: NormPosition = "post"  # of each sum; or before each sublayer, and once more at the end
    embedding_norm: bool = True  # the sum of the tables is normed, too
    norm: Literal["layer", "rms"] = "layer"  # LayerNorm, or RMSNorm, which takes no mean off
    tie_embeddings: bool = True  # words are told by the table that they are read by
    biases: bool = True  # of products and norms
    norm_eps: float = 1e-12
    dropout: float = 0.1  # of the embedding's and of each sublayer's output
    attention_dropout: float = 0.1  # of the attention weights
    alias: Literal["", "xlm-roberta", "camembert"] = ""  # what others call it, where they have several names for it

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
            raise ValueError(f"heads of width {self.head_size} cannot be turned in pairs. Take an even width")
        if self.relative and not 4 <= self.buckets < 2 * self.max_distance:
            fact = f"{self.buckets} buckets for distances up to {self.max_distance}"
            raise ValueError(f"{fact}. Take at least 4, and fewer than twice that")
        if self.relative and self.window:
            raise ValueError("local layers have no relative positions. Take rotary or learned ones, or local = 0")
        for name in ("rotary_base", "window_rotary_base"):
            if getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give more than 1, usually 10000")
        for name in ("dropout", "attention_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}. Give a share, at least 0 and below 1")

    @property
    def parameter_count(self) -> int:
        """Parameters as papers give them: with the pooler where the network is published with one."""
        D, F, E, A = self.width, self.feed_forward, self.table, self.inner
        wide = 2 * F if self.gated else F
        bias = 1 if self.biases else 0
        norm = D + bias * D
        positions = self.max_length + self.position_offset if self.learned else 0
        embeddings = (self.vocabulary + positions + self.segments) * E + (E + bias * E if self.embedding_norm else 0)
        embeddings += E * D + bias * D if self.embedding_width else 0
        relative = self.buckets * self.heads if self.relative else 0
        looks = 4 * D * A + bias * (3 * A + D)
        layer = looks + (D * wide + bias * wide) + (F * D + bias * D) + 2 * norm
        trunk = embeddings + relative + self.distinct * layer
        if self.decoder_layers:
            trunk += (
                relative + self.decoder_layers * (layer + looks + norm) + (norm if self.norm_position == "pre" else 0)
            )
            trunk += 0 if self.tie_embeddings else self.vocabulary * E
        if self.norm_position == "pre":  # the end has one more, and the first layer one less, where the tables have it
            return trunk if self.embedding_norm else trunk + norm
        return trunk if self.causal or self.decoder_layers or self.pooler != "tanh" else trunk + D * D + D

    @property
    def learned(self) -> bool:
        """Whether there is a table of positions that is learned."""
        return self.positions in ("learned", "learned_relative")

    @property
    def relative(self) -> bool:
        """Whether scores are told how far apart two tokens are."""
        return self.positions in ("relative", "learned_relative")

    @property
    def head_size(self) -> int:
        """The width of a head."""
        return self.head_width or self.width // self.heads

    @property
    def inner(self) -> int:
        """The width of all heads together."""
        return self.heads * self.head_size

    @property
    def table(self) -> int:
        """The width of the tables."""
        return self.embedding_width or self.width

    @property
    def distinct(self) -> int:
        """How many layers have weights of their own."""
        return 1 if self.share_layers else self.layers

    def flops(self, mean_length: int | float, prediction_share: float) -> float:
        """Floating-point operations that training takes for one token, forwards and backwards, as papers count them.

        All of every layer is counted, although of the last one only what is read is computed: with one token in seven
        chosen that is a twentieth of BERT-base that is counted and not done, and more of a smaller network.

        `attended` is the mean length a token looks at, sum(length^2) / sum(length); `chosen` is the share of
        tokens that are guessed from the whole vocabulary.
        """
        D, F, E, A = self.width, self.feed_forward, self.table, self.inner
        layer = 6 * (4 * D * A + (3 if self.gated else 2) * D * F)
        mean_length = (mean_length + 1) / 2 if self.causal else mean_length
        near = min(mean_length, (1 if self.causal else 2) * self.window + 1)
        looks = 12 * A * sum(near if self.is_local(number) else mean_length for number in range(self.layers))
        mapped = 6 * E * D if self.embedding_width else 0
        return mapped + self.layers * layer + looks + 6 * prediction_share * (self.vocabulary * E + D * E)

    def is_local(self, number: int) -> bool:
        """Whether a layer looks only at the neighbours of each token."""
        return self.window > 0 and number % self.global_every > 0


class Memory(NamedTuple):
    """A text that another network has read, for one that looks at it while it writes."""

    vectors: Float[Tensor, "S D"]
    tokens: Tokens


class Transformer(nn.Module):
    """A vector for each token, made of all tokens of its sequence, or of those that have come. Devlin et al. 2018."""

    positions: nn.Module | None
    segments: nn.Embedding | None
    rotary: RotaryPositions | None
    local_rotary: RotaryPositions | None
    relative: RelativePositionBias | None

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.window = CAUSAL if config.causal else FULL
        self.local_window = Window(config.window, 0 if config.causal else config.window)
        self.kernel: Kernel | None = None  # to be used for every batch; None: the fastest that is proved to be
        self.embedding = nn.Embedding(config.vocabulary, config.table)
        self.positions = self.rotary = self.local_rotary = self.relative = None
        match config.positions:
            case "learned" | "learned_relative":
                self.positions = LearnedPositions(config.max_length, config.table, config.position_offset)
            case "sinusoidal":
                self.positions = SinusoidalPositions(config.max_length, config.table)
            case "rotary":
                self.rotary = RotaryPositions(config.head_size, config.rotary_base)
                self.local_rotary = (
                    RotaryPositions(config.head_size, config.window_rotary_base) if config.window else None
                )
        if config.relative:
            self.relative = RelativePositionBias(
                config.heads, config.buckets, config.max_distance, causal=config.causal
            )
        self.segments = nn.Embedding(config.segments, config.table) if config.segments else None
        norm = (config.norm_eps, config.biases, config.norm == "rms")
        self.embedding_norm = make_norm(config.table, *norm) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.embedding_projection = (
            nn.Linear(config.table, config.width, config.biases) if config.embedding_width else nn.Identity()
        )
        self.layers = nn.ModuleList(
            Layer(
                width=config.width,
                heads=config.heads,
                feed_forward=config.feed_forward,
                activation=config.activation,
                norm_eps=config.norm_eps,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                norm_position=config.norm_position,
                gated=config.gated,
                biases=config.biases,
                first=number == 0 and config.embedding_norm,
                inner=config.inner,
                scale_scores=config.scale_scores,
                rms=config.norm == "rms",
                cross_attention=config.cross_attention,
            )
            for number in range(config.distinct)
        )
        # What the layers have added up has not been normed yet, where norms stand before them.
        self.final_norm = nn.Identity() if config.norm_position == "post" else make_norm(config.width, *norm)

    def forward(
        self,
        tokens: Tokens,
        kernel: Kernel | None = None,
        *,
        read: Int[Tensor, "N"] | None = None,
        memory: Memory | None = None,
        back: bool = False,
    ) -> Float[Tensor, "_ D"]:
        """The last layer's vectors, by the kernel asked for or the fastest for this batch and device.

        Of the last layer only what somebody reads need be computed: `read` names the tokens. In BERT-base's
        pretraining that saves a twentieth of the work, in a small network and in classification much more. A network
        that also looks at another text has it in `memory`; one that looks both ways may be asked to look only `back`.
        """
        hidden = self._embed(tokens)
        return self._run_layers(hidden, self._layouts(tokens, hidden, kernel, memory, back), read)

    def cache(self, sequences: int, capacity: int, beams: int = 1, dtype: torch.dtype = torch.float32) -> KVCache:
        """Room for what the layers make of so many sequences; each row takes `room` tokens, those of all its ways."""
        config = self.config
        shape = (config.layers, sequences, config.heads, config.head_size, capacity)
        return KVCache(*shape, beams, dtype, self.embedding.weight.device)

    def prefill(self, tokens: Tokens, cache: KVCache, memory: Memory | None = None) -> Float[Tensor, "B D"]:
        """Read prompts into an empty cache: the vectors of their last tokens, which tell what comes next."""
        cache.prefill(tokens.bounds, tokens.positions, tokens.max_length)
        if memory is not None:
            cache.cross_layers = self._cross_layer_caches(memory)
        hidden = self._embed(tokens)
        anew = memory if tokens.max_length > 1 else None  # one token looks at what is kept of it, as in a step
        layouts = self._with_cache(self._layouts(tokens, hidden, None, anew), cache)
        return self._run_layers(hidden, layouts, tokens.bounds[1:] - 1)

    def step(
        self, ids: Int[Tensor, "B W"], cache: KVCache, parents: Int[Tensor, "B W"] | None = None
    ) -> Float[Tensor, "B W D"]:
        """Read one more token on every way of every sequence, or on its only way a row of them.

        `came` is the way that each goes on with.
        """
        # A sequence that is as long as it can be may be carried along until the others are: its last place serves.
        places = cache.reserve(parents, ids.shape[1] // cache.beams).clamp(max=self.config.max_length - 1).flatten()
        bounds = torch.arange(ids.numel() + 1, dtype=torch.int32, device=ids.device)
        tokens = Tokens(ids=ids.flatten(), bounds=bounds, positions=places, max_length=1, equal_lengths=True)
        hidden = self._embed(tokens)
        layouts = self._with_cache(self._layouts(tokens, hidden, "cached"), cache)
        vectors = self._run_layers(hidden, layouts)
        cache.commit()
        return vectors.view(*ids.shape, -1)

    def hidden_states(self, tokens: Tokens, kernel: Kernel | None = None) -> list[Float[Tensor, "T D"]]:
        """The vectors after the embedding and after every layer."""
        states = [self._embed(tokens)]
        for layer, layout in zip(self._layer_sequence(), self._layouts(tokens, states[0], kernel), strict=True):
            states.append(layer(states[-1], layout))
        return [*states[:-1], self.final_norm(states[-1])]

    def attention_maps(self, tokens: Tokens) -> list[list[Float[Tensor, "H _ _"]]]:
        """Who looked at whom: by layer and sequence, how much each token (row) took from each (column)."""
        hidden = self._embed(tokens)
        layouts = self._layouts(tokens, hidden, "recorded")
        for layer, layout in zip(self._layer_sequence(), layouts, strict=True):
            hidden = layer(hidden, layout)
        return layouts[0].attention_weights  # all write into one list

    def share_embeddings(self, other: "Transformer") -> None:
        """Read tokens by the tables of another network, whose gradients then are sums of what both ask for."""
        self.embedding, self.positions, self.segments = other.embedding, other.positions, other.segments
        self.embedding_norm = other.embedding_norm

    def matrices(self) -> dict[str, int]:
        """The names of all matrices inside the layers, and how many each is made of, one above the other."""
        stacked = {"attention.qkv.weight": 3, "cross_attention.kv.weight": 2}
        stacked["feed_forward.up.weight"] = 2 if self.config.gated else 1
        return {
            f"layers.{number}.{name}": stacked.get(name, 1)
            for number, layer in enumerate(self.layers)
            for name, parameter in layer.named_parameters()
            if parameter.ndim == 2
        }

    def _run_layers(
        self, hidden: Float[Tensor, "T D"], layouts: list[Layout], read: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        *before, last = zip(self._layer_sequence(), layouts, strict=True)
        for layer, layout in before:
            hidden = layer(hidden, layout)
        layer, layout = last
        vectors: Tensor = self.final_norm(layer(hidden, layout, read))
        return vectors

    def _with_cache(self, layouts: list[Layout], cache: KVCache) -> list[Layout]:
        """What each layer has to know, with its part of the cache, and of what the cache keeps of another text."""
        stores = [cache.layer_cache(number, layout.window, self.relative) for number, layout in enumerate(layouts)]
        if not cache.cross_layers or layouts[0].cross is not None:
            return [replace(layout, cache=store) for layout, store in zip(layouts, stores, strict=True)]
        looks = Layout(bounds=layouts[0].bounds, longest=1, kernel="cached", window=FULL)
        parts = zip(layouts, stores, cache.cross_layers, strict=True)
        return [replace(layout, cache=store, cross=replace(looks, cache=kept)) for layout, store, kept in parts]

    def _cross_layer_caches(self, memory: Memory) -> list[LayerCache]:
        """Of each layer the keys and values of another text, computed once for all that will be written."""
        rows = PaddedRows.of(*_sequences(memory.tokens))
        real = rows.mask[:, None, None]
        stores = []
        for layer in self._layer_sequence():
            keys, values = (rows.pad(part) for part in layer.cross_attention.key_value(memory.vectors))
            mask = torch.zeros(real.shape, dtype=keys.dtype, device=real.device).masked_fill(~real, -torch.inf)
            stores.append(LayerCache(keys, values, rows.slots, mask=mask))
        return stores

    def _layer_sequence(self) -> list[Any]:
        """The layers in the order in which they are gone through."""
        return list(self.layers) * (self.config.layers // self.config.distinct)

    def _embed(self, tokens: Tokens) -> Tensor:
        if tokens.max_length > self.config.max_length:
            fact = f"sequences of {tokens.max_length} tokens do not fit into {self.config.max_length} positions"
            raise TextError("tokens", fact, "Cut the text shorter, or train a model with more positions")
        embedded = self.embedding(tokens.ids)
        if self.positions is not None:
            embedded = embedded + self.positions(self._position_rows(tokens))
        if self.segments is not None:
            alike = tokens.segments is None or self.config.segments == 1
            embedded = embedded + (self.segments.weight[0] if alike else self.segments(tokens.segments))
        hidden: Tensor = self.embedding_projection(self.dropout(self.embedding_norm(embedded)))
        return hidden

    def _position_rows(self, tokens: Tokens) -> Int[Tensor, "T"]:
        """Each token's row of the table of positions, counted from the first that is read.

        RoBERTa does not count its padding piece, which may also stand in a text: it has the row before the first. A
        causal network is read through a cache, whose positions are counted on.
        """
        if not self.config.position_offset or self.config.causal:
            return tokens.positions
        padding = tokens.ids == self.config.position_offset - 1
        passed = padding.cumsum(0)
        begins = (torch.arange(len(passed), device=passed.device) - tokens.positions).clamp(min=0)
        before = passed[begins] - padding[begins].to(passed.dtype)  # in the sequences before
        return torch.where(padding, -1, tokens.positions - (passed - before))

    def _layouts(
        self, tokens: Tokens, hidden: Tensor, kernel: Kernel | None, memory: Memory | None = None, causal: bool = False
    ) -> list[Layout]:
        """What each layer has to know of the batch."""
        wide = self._layout(tokens, hidden, kernel, CAUSAL if causal else self.window)
        if memory is not None:
            how = CROSS_KERNELS.get(wide.kernel, "padded")
            across = Layout.between(_sequences(tokens), _sequences(memory.tokens), how)
            wide = replace(wide, cross=replace(across, memory=memory.vectors))
        if self.rotary is not None:
            wide = replace(wide, rotary=self.rotary(tokens.positions))
        if not self.config.window:
            return [wide] * self.config.layers
        near = replace(wide, window=replace(self.local_window, right=0) if causal else self.local_window)
        if self.local_rotary is not None:
            near = replace(near, rotary=self.local_rotary(tokens.positions))
        return [near if self.config.is_local(number) else wide for number in range(self.config.layers)]

    def _layout(self, tokens: Tokens, hidden: Tensor, kernel: Kernel | None, window: Window) -> Layout:
        kernel = kernel or self.kernel
        if kernel is None:
            device = hidden.device
            # Under autocast the projections come out in its precision, whatever the weights are kept in.
            cast = torch.is_autocast_enabled(device.type)
            dtype = torch.get_autocast_dtype(device.type) if cast else hidden.dtype
            kernel = best_kernel(tokens.equal_lengths, tokens.max_length, device, dtype, self.config.head_size)
        if self.relative is not None and kernel != "cached":
            own, bias = _sequences(tokens), self.relative.compute_bias(tokens.max_length, tokens.max_length)
            if kernel == "short":
                return replace(Layout.of(tokens.bounds, tokens.max_length, kernel, window), bias=bias)
            return Layout.between(own, own, "recorded" if kernel == "recorded" else "padded", window, bias)
        return Layout.of(tokens.bounds, tokens.max_length, kernel, window)


def _sequences(tokens: Tokens) -> Sequences:
    return Sequences(tokens.bounds, tokens.max_length, len(tokens.ids))


def make_pooler(config: TransformerConfig, *, whole_text: bool = True) -> nn.Module:
    """What vectors go through before a task reads them, those of whole texts or of tokens.

    BERT pools whole texts and leaves tokens alone; later networks have one transform for both, and for guessing words.
    GPT's go through nothing: its last layer's vectors are made to tell the next token as they are.
    """
    if config.causal:
        return nn.Identity()
    if config.norm_position == "pre":
        return Transform(config.width, config.activation, config.norm_eps, config.biases)
    return Pooler(config.width, config.pooler) if whole_text else nn.Identity()
