"""The encoder-decoder: one transformer encodes a text, another decodes with cross-attention. Vaswani et al. 2017."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models.recorded import record
from bertsmith.models.transformer import Memory, Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import ScaledEmbedding, WideEmbedding
from bertsmith.nn.kernel_choice import KernelName
from bertsmith.nn.kv_cache import KVCache
from bertsmith.nn.positions import SinusoidalPositions


class EncoderDecoder(nn.Module):
    """Text to text. Encoder and decoder share one embedding table, which with `tie_embeddings` is the output layer."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Transformer(replace(config, decoder_layers=0))
        self.decoder = Transformer(
            replace(config, layers=config.decoder_layers, decoder_layers=0, causal=True, cross_attention=True)
        )
        if config.positions == "sinusoidal":
            self.encoder.embedding = ScaledEmbedding(config.vocabulary, config.table)
            for half in (self.encoder, self.decoder):
                half.positions = SinusoidalPositions(config.max_length, config.table, halves=True)
        elif config.tie_embeddings:
            self.encoder.embedding = WideEmbedding(config.vocabulary, config.table)
        self.decoder.embedding = self.encoder.embedding
        self.lm_head = None if config.tie_embeddings else nn.Linear(config.table, config.vocabulary, bias=False)

    @property
    def embedding(self) -> nn.Embedding:
        return self.encoder.embedding

    def forward(
        self,
        tokens: Tokens,
        target_tokens: Tokens,
        kernel: KernelName | None = None,
        *,
        selected: Int[Tensor, "N"] | None = None,
    ) -> Float[Tensor, "_ D"]:
        """The decoder's hidden vectors, which predict the next tokens: at all positions, or at the `selected` ones."""
        vectors: Tensor = self.decoder(target_tokens, kernel, selected=selected, memory=self.encode(tokens, kernel))
        return vectors

    def encode(self, tokens: Tokens, kernel: KernelName | None = None) -> Memory:
        """The encoder's output."""
        return Memory(self.encoder(tokens, kernel), tokens)

    @torch.no_grad()
    def alignment(self, tokens: Tokens, target_tokens: Tokens) -> list[Float[Tensor, "_ _"]]:
        """Cross-attention weights of the last layer, mean over heads: by text, target tokens x source tokens."""
        weights = record(self.decoder, target_tokens, self.encode(tokens)).cross_attention[-1]
        return [heads.mean(0) for heads in weights]

    def cache(self, sequences: int, capacity: int, beams: int = 1, dtype: torch.dtype = torch.float32) -> KVCache:
        """An empty KV cache of the decoder; `capacity` counts the tokens of all beams of a sequence."""
        return self.decoder.cache(sequences, capacity, beams, dtype)

    def prefill(self, tokens: Tokens, cache: KVCache, target_tokens: Tokens) -> Float[Tensor, "B D"]:
        """Encode texts, and read the first target tokens: the hidden vectors that predict the next ones."""
        return self.decoder.prefill(target_tokens, cache, self.encode(tokens))

    def step(self, ids: Int[Tensor, "B W"], cache: KVCache) -> Float[Tensor, "B W D"]:
        """Read one more target token of every beam."""
        return self.decoder.step(ids, cache)

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The logits of the next token."""
        if self.lm_head is not None:
            logits: Tensor = self.lm_head(hidden)
            return logits
        return F.linear(hidden * self.logit_scale, self.embedding.weight)

    @property
    def logit_scale(self) -> float:
        """The factor of logits with weight tying: a table of unit variance needs one below 1 (T5's code)."""
        return self.config.width**-0.5 if isinstance(self.embedding, WideEmbedding) else 1.0

    def matrices(self) -> dict[str, int]:
        """The names of all matrices inside the layers, and how many matrices are stacked in each."""
        halves = {"encoder": self.encoder, "decoder": self.decoder}
        return {f"{name}.{one}": count for name, half in halves.items() for one, count in half.matrices().items()}
