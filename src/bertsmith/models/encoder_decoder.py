"""The encoder-decoder: one transformer encodes a text, another decodes with cross-attention. Vaswani et al. 2017."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models.transformer import Memory, Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.attention import Kernel
from bertsmith.nn.init import ScaledEmbedding, WideEmbedding
from bertsmith.nn.kv_cache import KVCache
from bertsmith.nn.positions import SinusoidalPositions


class EncoderDecoder(nn.Module):
    """Any text to any text. Both halves read words by one table; `tied`, it also tells which word comes next."""

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
        kernel: Kernel | None = None,
        *,
        selected: Int[Tensor, "N"] | None = None,
    ) -> Float[Tensor, "_ D"]:
        """The vectors that tell what comes after each token written, or after the `selected` ones."""
        vectors: Tensor = self.decoder(target_tokens, kernel, selected=selected, memory=self.encode(tokens, kernel))
        return vectors

    def encode(self, tokens: Tokens, kernel: Kernel | None = None) -> Memory:
        """What the encoder makes of a text."""
        return Memory(self.encoder(tokens, kernel), tokens)

    @torch.no_grad()
    def alignment(self, tokens: Tokens, target_tokens: Tokens) -> list[Float[Tensor, "_ _"]]:
        """Of each text how much each token written (row) took from each that was read (column): by the last layer, in
        the mean of its heads."""
        hidden = self.decoder._embed(target_tokens)
        layouts = self.decoder._layouts(target_tokens, hidden, "eager", self.encode(tokens))
        self.decoder._run_layers(hidden, layouts)
        assert layouts[-1].cross is not None
        return [heads.mean(0) for heads in layouts[-1].cross.attention_weights[-1]]

    def cache(self, sequences: int, capacity: int, beams: int = 1, dtype: torch.dtype = torch.float32) -> KVCache:
        """Room for what is written, of so many sequences; each row takes `room` tokens, those of all its ways."""
        return self.decoder.cache(sequences, capacity, beams, dtype)

    def prefill(self, tokens: Tokens, cache: KVCache, target_tokens: Tokens) -> Float[Tensor, "B D"]:
        """Read texts, and what is written already: the vectors that tell what comes next."""
        return self.decoder.prefill(target_tokens, cache, self.encode(tokens))

    def step(
        self, ids: Int[Tensor, "B W"], cache: KVCache, parents: Int[Tensor, "B W"] | None = None
    ) -> Float[Tensor, "B W D"]:
        """Write one more token on every way of every sequence."""
        return self.decoder.step(ids, cache, parents)

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The score of every word to come next."""
        if self.lm_head is not None:
            scores: Tensor = self.lm_head(hidden)
            return scores
        return F.linear(hidden * self.logit_scale, self.embedding.weight)

    @property
    def logit_scale(self) -> float:
        """What a tied table's scores are multiplied by: of one whose numbers are about one, by less than one."""
        # Raffel et al. 2020, in their code.
        return self.config.width**-0.5 if isinstance(self.embedding, WideEmbedding) else 1.0

    def matrices(self) -> dict[str, int]:
        """The names of all matrices inside the layers, and how many each is made of, one above the other."""
        halves = {"encoder": self.encoder, "decoder": self.decoder}
        return {f"{name}.{one}": count for name, half in halves.items() for one, count in half.matrices().items()}
