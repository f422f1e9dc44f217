"""A comparison: where two readings part, of two texts by one model or of one text by two models.

Tokens are aligned by difflib. For aligned tokens it has the distance of their hidden vectors by layer, how much each
head's attention differs, where the top predictions differ, and the (pseudo-)log-likelihoods, as in minimal pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from bertsmith.insight.inspection import encoded
from bertsmith.insight.inspection.encoded import number, numbers
from bertsmith.insight.inspection.inputs import Token
from bertsmith.insight.inspection.layer_predictions import Predictions
from bertsmith.insight.inspection.reading import Reading

What = Literal["texts", "models"]
Pairs = list[tuple[int, int]]

TOP = 3  # predictions that are shown of each reading


@dataclass(frozen=True)
class Comparison:
    """Two readings token by token."""

    what: What
    pairs: Pairs  # aligned tokens
    only_a: list[int]  # tokens of the first reading alone
    only_b: list[int]
    layers: tuple[str, ...]
    distance: Float32[np.ndarray, "N P"] | None  # cosine distance of aligned tokens; None in different vector spaces
    heads: Float32[np.ndarray, "L H"] | None  # mean total variation of attention; None for networks of other sizes
    scores: tuple[float, float] | None  # (pseudo-)log-likelihoods
    predictions: list[tuple[str, list[list[Any]], list[list[Any]]]]  # a position, and the predictions of each

    def figures(self, a: int, b: int) -> dict[str, Any]:
        """The comparison as JSON values; `a` and `b` are the numbers of the two readings."""
        return {
            "a": a,
            "b": b,
            "what": self.what,
            "pairs": [list(pair) for pair in self.pairs],
            "only_a": self.only_a,
            "only_b": self.only_b,
            "layers": list(self.layers),
            "distance": None if self.distance is None else encoded.encode(encoded.to_bytes(self.distance)),
            # Texts that differ in one word are often less than a byte's step apart, so a page scales these.
            "distances": None if self.distance is None else [numbers(layer) for layer in self.distance.tolist()],
            "heads": None if self.heads is None else [numbers(layer) for layer in self.heads.tolist()],
            "scores": None if self.scores is None else [number(score) for score in self.scores],
            "predictions": [list(row) for row in self.predictions],
        }


def compare(one: Reading, other: Reading, what: What = "texts") -> Comparison:
    """Two readings, of two texts by one model, or of one text by two models."""
    pairs = align(one.tokens, other.tokens)
    first, second = ({pair[side] for pair in pairs} for side in (0, 1))
    scores = one.log_likelihood, other.log_likelihood
    return Comparison(
        what,
        pairs,
        [place for place in range(len(one.tokens)) if place not in first],
        [place for place in range(len(other.tokens)) if place not in second],
        one.trace.layers,
        _distance(one, other, pairs),
        _heads(one, other, pairs),
        None if scores[0] is None or scores[1] is None else (scores[0], scores[1]),
        _differing_predictions(one, other, pairs),
    )


def align(one: Sequence[Token], other: Sequence[Token]) -> Pairs:
    """Equal tokens in the same order; vocabularies that mark spaces and continuations differently meet."""
    first, second = ([token.shown.casefold() for token in tokens] for tokens in (one, other))
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    return [(start + step, begin + step) for start, begin, size in blocks for step in range(size)]


def total_variation(
    one: Float32[np.ndarray, "H R C"], other: Float32[np.ndarray, "H S D"], pairs: Pairs
) -> Float32[np.ndarray, "H"]:
    """Half the absolute difference of attention rows, mean over aligned tokens: 0 for equal rows, 1 for disjoint ones.

    The weights on tokens that only one text has are one sum each: attention that moves from a word to the word in its
    place is no difference.
    """
    if not pairs:
        return np.zeros(len(one), np.float32)
    first, second = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    a, b = one[:, first][:, :, first], other[:, second][:, :, second]
    rest = np.abs((1 - a.sum(-1)) - (1 - b.sum(-1)))
    return np.asarray(((np.abs(a - b).sum(-1) + rest) / 2).mean(-1), np.float32)


def _distance(one: Reading, other: Reading, pairs: Pairs) -> Float32[np.ndarray, "L P"] | None:
    """Cosine distances; only where layers and vocabularies agree, as of checkpoints of one model."""
    hidden = one.trace.hidden, other.trace.hidden
    if [states.shape[1] for states in hidden[0]] != [states.shape[1] for states in hidden[1]]:
        return None
    if any(one.tokens[i].id != other.tokens[j].id for i, j in pairs):
        return None
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    layers = []
    for a, b in zip(*hidden, strict=True):
        left, right = a[first], b[second]
        lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        layers.append(1 - (left * right).sum(1) / np.where(lengths > 0, lengths, 1.0))
    return np.stack(layers).clip(0.0, 2.0).astype(np.float32)


def _heads(one: Reading, other: Reading, pairs: Pairs) -> Float32[np.ndarray, "L H"] | None:
    """How much each head of the encoder, or of the only network, attends differently."""
    maps = [
        next((found for found in reading.attentions if found.rows == found.columns == "tokens"), None)
        for reading in (one, other)
    ]
    first, second = maps
    if first is None or second is None or first.weights.shape[:2] != second.weights.shape[:2]:
        return None
    layers = zip(first.weights, second.weights, strict=True)
    return np.stack([total_variation(a, b, pairs) for a, b in layers])


def _differing_predictions(
    one: Reading, other: Reading, pairs: Pairs
) -> list[tuple[str, list[list[Any]], list[list[Any]]]]:
    """Positions where the last layers' top predictions differ: of masked words, of blanks, and of next tokens."""
    found: dict[int, tuple[str, list[list[Any]], list[list[Any]]]] = {}
    if one.targets is not None and other.targets is not None:
        tables = [(one.predictions, other.predictions, align(one.targets, other.targets), one.targets)]
    else:
        masked = [None if reading.masked is None else reading.masked.predictions for reading in (one, other)]
        tables = [(one.predictions, other.predictions, pairs, one.tokens), (masked[0], masked[1], pairs, one.tokens)]
    for first, second, aligned, tokens in tables:
        if first is None or second is None or first.kind != second.kind or first.kind == "replaced":
            continue
        left, right = _by_position(first), _by_position(second)
        for i, j in aligned:
            if i in left and j in right and left[i][0][0] != right[j][0][0]:
                found[i] = f"{tokens[i].shown} ({i})", left[i][:TOP], right[j][:TOP]
    return [found[place] for place in sorted(found)]


def _by_position(predictions: Predictions) -> dict[int, list[list[Any]]]:
    """The last layer's top predictions by position."""
    last = len(predictions.layers) - 1
    return {place: predictions.top(row, last) for row, place in enumerate(predictions.positions)}
