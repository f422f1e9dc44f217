"""Masked runs: every word masked once, what the model then predicts on each layer, and which vectors it moves.

A visible token predicts itself; only a masked one shows what the model takes from the context. All tokens of a word
are masked together, since the others would give it away (Kauf and Ivanova 2023).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor

from bertsmith.insight.inspection import encoded
from bertsmith.insight.inspection.inputs import Inputs
from bertsmith.insight.inspection.layer_predictions import Head, Predictions, predict_by_layer
from bertsmith.insight.inspection.trace import evaluating
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import Objective
from bertsmith.text.tokenizer import Tokenizer

MAX_POSITIONS = 64  # tokens that are masked in turn,
MAX_POSITIONS_LONG = 32  # and in a text of more than
LONG_TEXT = 256  # tokens
BATCH_TOKENS = 2_048  # whose vectors of all layers are in memory at once


@dataclass(frozen=True)
class MaskedRuns:
    """One run for each token, with its word masked."""

    positions: tuple[int, ...]
    predictions: Predictions  # at the masked token
    layers: tuple[str, ...]
    change: Float32[np.ndarray, "P L T"]  # cosine distance of each hidden vector, with and without the mask
    log_likelihood: float | None  # pseudo-log-likelihood of the text; None if not every token was masked

    def figures(self) -> dict[str, Any]:
        """The predictions and the changes as JSON values."""
        kept = ("positions", "top", "ranks", "probabilities", "layers")
        found = self.predictions.figures()
        return {name: found[name] for name in kept} | {"change": encoded.encode(encoded.to_bytes(self.change))}


@torch.inference_mode()
def mask_every_word(
    objective: Objective,
    tokenizer: Tokenizer,
    inputs: Inputs,
    head: Head,
    hidden: Sequence[Float32[np.ndarray, "T _"]],
    layers: Sequence[str],
) -> MaskedRuns | None:
    """Mask the word of each token in turn; None without a token to mask."""
    mask, ids = tokenizer.roles.get("mask"), inputs.ids
    most = MAX_POSITIONS if len(ids) <= LONG_TEXT else MAX_POSITIONS_LONG
    text = [place for place, token in enumerate(inputs.tokens) if token.word >= 0]
    positions = [place for place in text[:most] if ids[place] != mask]
    if mask is None or not positions:
        return None
    words = [token.word for token in inputs.tokens]
    rows = [
        [mask if word == words[place] else own for own, word in zip(ids, words, strict=True)] for place in positions
    ]
    before = [torch.from_numpy(states) for states in hidden]
    at_mask: list[list[Tensor]] = [[] for _ in hidden]
    changes = []
    with evaluating(objective):
        for places, states in _runs(objective, inputs, positions, rows):
            table = [vectors.cpu() for vectors in states]
            moved = [1 - F.cosine_similarity(now, was[None], dim=-1) for now, was in zip(table, before, strict=True)]
            changes.append(torch.stack(moved, 1).clamp(min=0))
            for layer, vectors in enumerate(table):
                at_mask[layer].append(vectors[torch.arange(len(places)), places])
        truths = [ids[place] for place in positions]
        vectors_at_mask = [torch.cat(parts) for parts in at_mask]
        device = objective.trunk.embedding.weight.device
        found = predict_by_layer(head, vectors_at_mask, layers, range(len(rows)), truths, tokenizer, device=device)
        predictions = replace(found, positions=tuple(positions))
        score = _score(objective, tokenizer, inputs, head, predictions, rows) if positions == text else None
    return MaskedRuns(tuple(positions), predictions, tuple(layers), torch.cat(changes).numpy(), score)


def _runs(
    objective: Objective, inputs: Inputs, positions: Sequence[int], rows: Sequence[Sequence[int]]
) -> Iterator[tuple[Tensor, list[Float[Tensor, "B T D"]]]]:
    """Some rows at a time: the masked position of each, and the hidden vectors of every layer."""
    trunk, length = objective.trunk, len(inputs.tokens)
    assert isinstance(trunk, Transformer)
    device, size = trunk.embedding.weight.device, max(1, BATCH_TOKENS // length)
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        states = trunk.hidden_states(inputs.batch(device, some))
        yield (
            torch.tensor(positions[start : start + size]),
            [torch.unflatten(vectors.float(), 0, (len(some), length)) for vectors in states],
        )


def _score(
    objective: Objective,
    tokenizer: Tokenizer,
    inputs: Inputs,
    head: Head,
    predictions: Predictions,
    rows: Sequence[Sequence[int]],
) -> float:
    """The pseudo-log-likelihood: earlier tokens of a word are visible to later ones, as `bertsmith score` has it."""
    continues, ids, mask = tokenizer.continuation_mask, inputs.ids, tokenizer.mask_id
    known = dict(zip(predictions.positions, rows, strict=True))
    logs = dict(zip(predictions.positions, np.log(predictions.probabilities[:, -1].clip(1e-38)), strict=True))
    asked = {}
    for place in predictions.positions:
        end = place + 1
        while end < len(ids) and continues[ids[end]] and inputs.tokens[end].word >= 0:
            end += 1
        row = [*ids[:place], *[mask] * (end - place), *ids[end:]]
        if row != known[place]:
            asked[place] = row
    device = objective.trunk.embedding.weight.device
    places = list(asked)
    vectors = [
        states[-1][torch.arange(len(some)), some.to(device)]
        for some, states in _runs(objective, inputs, places, list(asked.values()))
    ]
    if vectors:
        truths = [ids[place] for place in places]
        last = [torch.cat(vectors)]
        found = predict_by_layer(head, last, ["last"], range(len(places)), truths, tokenizer, device=device)
        logs |= dict(zip(places, np.log(found.probabilities[:, -1].clip(1e-38)), strict=True))
    return float(sum(logs.values()))
