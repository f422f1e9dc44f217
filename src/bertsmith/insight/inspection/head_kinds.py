"""Kinds of attention heads by numbers: which pattern a head follows. Clark et al. 2019, "What Does BERT Look At?"

Clark et al. find heads that attend to the token itself, to the previous or the next one, to [SEP], and broadly to the
whole sequence (section 3); Vig 2019 shows others on the same word. A head's kind here is the pattern that has the
largest share of its attention, if it has enough, and clearly more than even attention would give it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64

from bertsmith.insight.inspection.encoded import number
from bertsmith.insight.inspection.inputs import Token

Kind = Literal["itself", "previous", "next", "separator", "first", "same word", "broad", "mixed"]
Mask = Bool[np.ndarray, "R C"]

MIN_SHARE = 0.4  # of a head's attention that makes a pattern its kind
MIN_LIFT = 1.5  # times the share of even attention, which is large on a short text
BROAD = 0.8  # of the entropy of even attention: above it a head without a pattern is broad
MIN_ROWS = 2  # tokens that have another one of the same word; with fewer the pattern is not looked for


@dataclass(frozen=True)
class HeadKind:
    """What one head attends to, by numbers that are means over the tokens (rows)."""

    kind: Kind
    share: float  # weight on the pattern of its kind; of a broad or mixed head, on the strongest pattern
    entropy: float  # in nats
    distance: float | None  # mean number of tokens between a row and what it attends to; None between two texts
    special: float  # weight on special tokens
    shares: dict[str, float]  # weight on each pattern that there is in this text

    def figures(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {
            "kind": self.kind,
            "share": number(self.share),
            "entropy": number(self.entropy),
            "distance": number(self.distance),
            "special": number(self.special),
            "shares": {name: number(share) for name, share in self.shares.items()},
        }


def classify_heads(
    weights: Float32[np.ndarray, "L H R C"],
    rows: Sequence[Token],
    columns: Sequence[Token],
    between_texts: bool = False,
    causal: bool = False,
) -> list[list[HeadKind]]:
    """The kind of every head, by layer.

    The first token of a causal network attends to itself whatever the head does, so its row does not count.
    """
    visible = (
        np.tri(len(rows), len(columns), dtype=np.bool_) if causal else np.ones((len(rows), len(columns)), np.bool_)
    )
    skipped = int(causal and len(rows) > 1)
    masks = {name: mask[skipped:] for name, mask in patterns(rows, columns, between_texts, causal).items()}
    visible = visible[skipped:]
    even = visible / visible.sum(-1, keepdims=True)
    expected = {name: _share(even, mask) for name, mask in masks.items()}
    return [
        [
            _classify(head[skipped:].astype(np.float64), masks, expected, even, columns, skipped, between_texts)
            for head in layer
        ]
        for layer in weights
    ]


def patterns(
    rows: Sequence[Token], columns: Sequence[Token], between_texts: bool, causal: bool = False
) -> dict[str, Mask]:
    """The tokens (columns) that each pattern names for each token (row); only patterns that this text can show."""
    shape = (len(rows), len(columns))
    found: dict[str, Mask] = {}
    if not between_texts:
        found["itself"], found["previous"] = np.eye(*shape, dtype=np.bool_), np.eye(*shape, k=-1, dtype=np.bool_)
        if not causal:
            found["next"] = np.eye(*shape, k=1, dtype=np.bool_)
    # The first token is a pattern of its own: [CLS] or <s>, or in a causal network the attention sink.
    is_first = np.arange(len(columns)) == 0
    is_separator = np.array([token.special for token in columns]) & ~is_first
    if is_separator.any():
        found["separator"] = np.tile(is_separator, (len(rows), 1))
    found["first"] = np.tile(is_first, (len(rows), 1))
    same = _same_word(rows, columns, between_texts)
    if causal:
        same &= np.tri(*shape, dtype=np.bool_)
    if (same.any(1)).sum() >= MIN_ROWS:
        found["same word"] = same
    return found


def _same_word(rows: Sequence[Token], columns: Sequence[Token], between_texts: bool) -> Mask:
    """Other tokens of a token's own word, and other occurrences of the same token."""
    ids = np.array([token.id for token in rows])[:, None] == np.array([token.id for token in columns])
    words = np.array([token.word for token in rows])[:, None] == np.array([token.word for token in columns])
    plain = np.outer([token.word >= 0 for token in rows], [token.word >= 0 for token in columns])
    same = ids if between_texts else (ids | words) & ~np.eye(len(rows), dtype=np.bool_)
    return np.asarray(plain & same)


def _classify(
    head: Float64[np.ndarray, "R C"],
    masks: dict[str, Mask],
    expected: dict[str, float],
    even: Float64[np.ndarray, "R C"],
    columns: Sequence[Token],
    skipped: int,
    between_texts: bool,
) -> HeadKind:
    shares = {name: _share(head, mask) for name, mask in masks.items()}
    best = max(shares, key=lambda name: shares[name])
    entropy = _entropy(head)
    kind: Any = "mixed"
    if shares[best] >= max(MIN_SHARE, min(0.9, MIN_LIFT * expected[best])):
        kind = best
    elif entropy >= BROAD * _entropy(even):
        kind = "broad"
    gaps = np.abs(np.arange(len(head))[:, None] + skipped - np.arange(len(columns)))
    distance = None if between_texts else float((head * gaps).sum(1).mean())
    special = float(head[:, [token.special for token in columns]].sum(1).mean())
    return HeadKind(kind, shares[best], entropy, distance, special, shares)


def _share(weights: Float64[np.ndarray, "R C"], mask: Mask) -> float:
    """The mean weight on a pattern, over the rows in which it names a token."""
    rows = mask.any(1)
    return float((weights * mask)[rows].sum(1).mean()) if rows.any() else 0.0


def _entropy(weights: Float64[np.ndarray, "R C"]) -> float:
    """The mean entropy of rows, in nats."""
    logs = np.log(np.where(weights > 0, weights, 1.0))
    return float(-(weights * logs).sum(1).mean())
