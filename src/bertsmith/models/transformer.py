"""The transformer: every member made of attention is this network with another configuration. Vaswani et al. 2017.

    embeddings   tokens + positions + segments, normalised; a factorised embedding is projected up (ALBERT)
    N layers     self-attention, cross-attention where there is an encoder to attend to, feed-forward network: layers.py

An encoder attends to the whole sequence (BERT), a decoder to earlier tokens (GPT). The configuration also has weight
tying (the output layer is the embedding table) and parameter sharing across layers (ALBERT). A batch is one flat
sequence of tokens with bounds: one kernel, chosen for the batch, computes attention within each sequence in all layers.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.errors import TextError
from bertsmith.models.layer_stack import LayerStack
from bertsmith.models.layers import AttentionInputs, EncodedMemory, Layer, make_norm
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.attention import Kernel, Sequences
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.heads import Pooler, Transform
from bertsmith.nn.kernel_choice import KernelName, best_kernel, compute_dtype, cross_attention, self_attention
from bertsmith.nn.kv_cache import Cached, Filling, KVCache, LayerCache
from bertsmith.nn.padded import PaddedRows
from bertsmith.nn.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from bertsmith.nn.relative import RelativePositionBias
from bertsmith.nn.window import CAUSAL, FULL, Window

T = TypeVar("T")


class Memory(NamedTuple):
    """The encoder's output, for the cross-attention of a decoder."""

    vectors: Float[Tensor, "S D"]
    tokens: Tokens


class Transformer(LayerStack):
    """Embeddings and a stack of layers: one hidden vector for each token. Devlin et al. 2018, section 3.

    >>> bertsmith.Transformer(bertsmith.TransformerConfig(vocabulary=100, width=8, heads=2)).embedding.weight.shape
    torch.Size([100, 8])
    """

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
        self.kernel: KernelName | None = None  # for every batch; None: the fastest for the batch and the device
        self.embedding = nn.Embedding(config.vocabulary, config.table)
        self.positions = self.rotary = self.local_rotary = self.relative = None
        match config.positions:
            case "learned" | "learned_relative":
                self.positions = LearnedPositions(config.max_length, config.table, config.position_offset)
            case "sinusoidal":
                self.positions = SinusoidalPositions(config.max_length, config.table)
            case "rotary":
                self.rotary = RotaryPositions(config.head_size, config.rotary_base)
                if config.window:
                    self.local_rotary = RotaryPositions(config.head_size, config.window_rotary_base)
        if config.relative:
            buckets, distance = config.buckets, config.max_distance
            self.relative = RelativePositionBias(config.heads, buckets, distance, causal=config.causal)
        self.segments = nn.Embedding(config.segments, config.table) if config.segments else None
        self.embedding_norm = make_norm(config.table, config) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.embedding_projection = (
            nn.Linear(config.table, config.width, config.biases) if config.embedding_width else nn.Identity()
        )
        self.layers = nn.ModuleList(Layer(config, first=number == 0) for number in range(config.distinct))
        # Pre-norm leaves the last residual sum without a norm.
        self.final_norm = nn.Identity() if config.norm_position == "post" else make_norm(config.width, config)

    @property
    def _layer_config(self) -> TransformerConfig:
        """The configuration of the layers, which here is that of the whole network."""
        return self.config

    def forward(
        self,
        tokens: Tokens,
        kernel: KernelName | None = None,
        *,
        selected: Int[Tensor, "N"] | None = None,
        memory: Memory | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "_ D"]:
        """The last layer's hidden vectors, by the given kernel or the fastest for this batch and device.

        The last layer computes only the `selected` positions: a twentieth of the work in BERT-base's pretraining,
        and much more in a small network or in classification. `memory` is the encoder's output for cross-attention;
        `causal` makes the attention of an encoder causal.
        """
        hidden = self.embed(tokens)
        return self.run_layers(hidden, self.attention_inputs(tokens, hidden, kernel, memory, causal=causal), selected)

    def hidden_states(self, tokens: Tokens, kernel: KernelName | None = None) -> list[Float[Tensor, "T D"]]:
        """The hidden vectors after the embeddings and after every layer."""
        hidden = self.embed(tokens)
        return self.states_after_layers(hidden, self.attention_inputs(tokens, hidden, kernel))

    def attention_maps(self, tokens: Tokens) -> list[list[Float[Tensor, "H _ _"]]]:
        """Attention weights by layer and sequence: from each token (row) to each (column)."""
        from bertsmith.models.recorded import record  # which needs this class

        return record(self, tokens).attention

    def share_embeddings(self, other: "Transformer") -> None:
        """Use the embedding tables of another network, which then get the gradients of both (ELECTRA)."""
        self.embedding, self.positions, self.segments = other.embedding, other.positions, other.segments
        self.embedding_norm = other.embedding_norm

    # ------------------------------------------------------------------------- embeddings

    def embed(self, tokens: Tokens) -> Float[Tensor, "T D"]:
        """What the first layer reads."""
        if tokens.max_length > self.config.max_length:
            fact = f"sequences of {tokens.max_length} tokens do not fit into {self.config.max_length} positions"
            raise TextError("tokens", fact, "Cut the text shorter, or train a model with more positions")
        embedded = self.embedding(tokens.ids)
        if self.positions is not None:
            embedded = embedded + self.positions(self._position_rows(tokens))
        if self.segments is not None:
            single = tokens.segments is None or self.config.segments == 1
            embedded = embedded + (self.segments.weight[0] if single else self.segments(tokens.segments))
        hidden: Tensor = self.embedding_projection(self.dropout(self.embedding_norm(embedded)))
        return hidden

    def _position_rows(self, tokens: Tokens) -> Int[Tensor, "T"]:
        """The row of each token in the table of positions, counted from that of the first position.

        RoBERTa does not count its padding token, which may also stand inside a text: its row is the one before the
        first. A causal network generates with a cache, whose positions go on counting, and so counts every token.
        """
        if not self.config.position_offset or self.config.causal:
            return tokens.positions
        padding = tokens.ids == self.config.position_offset - 1
        total = padding.cumsum(0)
        starts = (torch.arange(total.shape[0], device=total.device) - tokens.positions).clamp(min=0)
        earlier = total[starts] - padding[starts].to(total.dtype)  # padding tokens of earlier sequences
        return torch.where(padding, -1, tokens.positions - (total - earlier))

    # ------------------------------------------------------------------------- generation with a KV cache

    def cache(self, sequences: int, capacity: int, beams: int = 1, dtype: torch.dtype = torch.float32) -> KVCache:
        """An empty KV cache; `capacity` is the number of tokens of a sequence, those of all its beams together."""
        config = self.config
        shape = (config.layers, sequences, config.heads, config.head_size, capacity)
        return KVCache(*shape, beams, dtype, self.embedding.weight.device)

    def prefill(self, tokens: Tokens, cache: KVCache, memory: Memory | None = None) -> Float[Tensor, "B D"]:
        """Read prompts into an empty cache: the hidden vectors of their last tokens, which predict the next ones."""
        cache.prefill(tokens.bounds, tokens.positions, tokens.max_length)
        if memory is not None:
            cache.cross_layers = self._cross_layer_caches(memory)
        hidden = self.embed(tokens)
        # A prompt of one token attends to the cached keys and values of the memory, as a step does.
        uncached = memory if tokens.max_length > 1 else None
        inputs = self.attention_inputs(tokens, hidden, None, uncached)
        parts = [cache.layer_cache(number, each.kernel.window) for number, each in enumerate(inputs)]
        memories = cache.cross_layers if uncached is None and memory else [each.memory for each in inputs]
        rows = zip(inputs, parts, memories, strict=True)
        filling = [each._replace(kernel=Filling(each.kernel, part), memory=kept) for each, part, kept in rows]
        return self.run_layers(hidden, filling, tokens.bounds[1:] - 1)

    def step(self, ids: Int[Tensor, "B W"], cache: KVCache) -> Float[Tensor, "B W D"]:
        """Read one more token of every beam, or several of a single beam: the vectors that predict the next ones."""
        # A finished sequence of the longest length stays in the batch until all are finished: clamp its position.
        positions = cache.reserve(ids.shape[1] // cache.beams).clamp(max=self.config.max_length - 1).flatten()
        bounds = torch.arange(ids.numel() + 1, dtype=torch.int32, device=ids.device)
        tokens = Tokens(ids=ids.flatten(), bounds=bounds, positions=positions, max_length=1, equal_lengths=True)
        windows = enumerate(self.by_layer(self.window, self.local_window))
        kernels = [Cached(cache.layer_cache(number, window, self.relative)) for number, window in windows]
        inputs = self.with_rotations(tokens, kernels, cache.cross_layers or [None] * len(kernels))
        vectors = self.run_layers(self.embed(tokens), inputs)
        cache.commit()
        return vectors.view(*ids.shape, -1)

    def _cross_layer_caches(self, memory: Memory) -> list[LayerCache]:
        """Every layer's keys and values of the encoder's output, computed once for all steps."""
        rows = PaddedRows.of(*_sequences(memory.tokens))
        real = rows.mask[:, None, None]
        caches = []
        for layer in self.layer_sequence():
            keys, values = (rows.pad(part) for part in layer.cross_attention.key_value(memory.vectors))
            mask = torch.zeros(real.shape, dtype=keys.dtype, device=real.device).masked_fill(~real, -torch.inf)
            caches.append(LayerCache(keys, values, rows.slots, mask=mask))
        return caches

    # ------------------------------------------------------------------------- what attention reads of a batch

    def attention_inputs(
        self,
        tokens: Tokens,
        hidden: Float[Tensor, "T D"],
        kernel: KernelName | None = None,
        memory: Memory | None = None,
        *,
        causal: bool = False,
    ) -> list[AttentionInputs]:
        """For every layer the kernel with its window, the rotation of positions, and the encoder's output."""
        name, own = self._kernel_name(tokens, hidden, kernel), _sequences(tokens)
        window, local = (replace(each, right=0) if causal else each for each in (self.window, self.local_window))
        bias = None if self.relative is None else self.relative.compute_bias(tokens.max_length, tokens.max_length)
        attention = self_attention(name, own, window, bias)
        local_attention = replace(attention, window=local) if self.config.window else attention
        encoded = None
        if memory is not None:
            encoded = EncodedMemory(memory.vectors, cross_attention(name, own, _sequences(memory.tokens)))
        kernels = self.by_layer(attention, local_attention)
        return self.with_rotations(tokens, kernels, [encoded] * self.config.layers)

    def with_rotations(
        self, tokens: Tokens, kernels: Sequence[Kernel], memories: Sequence[EncodedMemory | LayerCache | None]
    ) -> list[AttentionInputs]:
        """For every layer its kernel and memory, and the rotation of positions that it wants."""
        rotation = None if self.rotary is None else self.rotary(tokens.positions)
        local_rotation = rotation if self.local_rotary is None else self.local_rotary(tokens.positions)
        rotations = self.by_layer(rotation, local_rotation)
        return [AttentionInputs(*each) for each in zip(kernels, rotations, memories, strict=True)]

    def by_layer(self, whole: T, local: T) -> list[T]:
        """For every layer the first where it sees the whole sequence, and the second where it sees a window."""
        return [local if self.config.is_local(number) else whole for number in range(self.config.layers)]

    def _kernel_name(self, tokens: Tokens, hidden: Tensor, name: KernelName | None) -> KernelName:
        name = name or self.kernel
        if name is None:
            shape = tokens.equal_lengths, tokens.max_length
            name = best_kernel(*shape, hidden.device, compute_dtype(hidden), self.config.head_size)
        biased = name in ("short", "eager", "padded")
        return name if self.relative is None or biased else "padded"


def _sequences(tokens: Tokens) -> Sequences:
    return Sequences(tokens.bounds, tokens.max_length, len(tokens.ids))


def make_pooler(config: TransformerConfig, *, whole_text: bool = True) -> nn.Module:
    """The pooler between the trunk and a task's classifier, for the vectors of whole texts or of tokens.

    BERT pools whole texts and leaves tokens as they are; pre-norm encoders have one transform for both, which is also
    that of their MLM head. GPT has none: its last hidden vectors are trained to predict the next token directly.
    """
    if config.causal:
        return nn.Identity()
    if config.norm_position == "pre":
        return Transform(config.width, config.activation, config.norm_eps, config.biases)
    return Pooler(config.width, config.pooler) if whole_text else nn.Identity()
