"""Attention maps: the weights of every head of one kind of attention, with the heads' kinds and attention rollout."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from bertsmith.insight.inspection import encoded
from bertsmith.insight.inspection.head_kinds import HeadKind, classify_heads
from bertsmith.insight.inspection.inputs import Token
from bertsmith.insight.inspection.rollout import rollout

Name = Literal["self-attention", "encoder", "decoder", "cross-attention", "attention"]
Side = Literal["tokens", "targets"]


@dataclass(frozen=True)
class AttentionMaps:
    """The attention weights of a network: from each token (row) to each (column), by layer and head. Vig 2019."""

    name: Name
    rows: Side
    columns: Side
    weights: Float32[np.ndarray, "L H R C"]
    row_tokens: Sequence[Token]
    column_tokens: Sequence[Token]
    causal: bool = False  # a row's weights on later columns are always zero

    @property
    def between_texts(self) -> bool:
        """Whether rows and columns are different texts, as in cross-attention."""
        return self.rows != self.columns

    @cached_property
    def heads(self) -> list[list[HeadKind]]:
        """The kind and the numbers of each head, by layer."""
        return classify_heads(self.weights, self.row_tokens, self.column_tokens, self.between_texts, self.causal)

    @cached_property
    def rollout(self) -> Float32[np.ndarray, "L R C"] | None:
        """How much of each column's embedding reaches each row's vector, by layer; of self-attention only."""
        return None if self.between_texts else rollout(self.weights)

    def figures(self) -> dict[str, Any]:
        """The weights, thumbnails, rollout and head kinds as JSON values."""
        layers, heads, *size = self.weights.shape
        small = encoded.thumbnails(self.weights)
        rolled = self.rollout
        return {
            "name": self.name,
            "rows": self.rows,
            "columns": self.columns,
            "layers": layers,
            "heads": heads,
            "size": size,
            "weights": [encoded.encode(encoded.attention_bytes(layer)) for layer in self.weights],
            "thumbnails": encoded.encode(small),
            "thumbnail_size": list(small.shape[2:]),
            "rollout": None if rolled is None else encoded.encode(encoded.scaled_bytes(rolled)),
            "heads_by": [[head.figures() for head in layer] for layer in self.heads],
        }
