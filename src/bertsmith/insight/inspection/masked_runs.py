"""Masked runs: every word masked once, what the model then predicts on each layer, and which vectors it moves.

A visible token predicts itself; only a masked one shows what the model takes from the context. All tokens of a word
are masked together, since the others would give it away (Kauf and Ivanova 2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float32
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
    trunk = objective.trunk
    assert isinstance(trunk, Transformer)
    most = MAX_POSITIONS if len(inputs.tokens) <= LONG_TEXT else MAX_POSITIONS_LONG
    positions = [number for number, token in enumerate(inputs.tokens) if token.word >= 0][:most]
    mask, ids = tokenizer.roles.get("mask"), inputs.ids
    positions = [position for position in positions if ids[position] != mask]
    if mask is None or not positions:
        return None
    words = [token.word for token in inputs.tokens]
    rows = [
        [mask if word == words[position] else own for own, word in zip(ids, words, strict=True)]
        for position in positions
    ]
    device = trunk.embedding.weight.device
    before = [torch.from_numpy(states).to(device) for states in hidden]
    at_mask: list[list[Tensor]] = [[] for _ in hidden]
    changes = []
    size = max(1, BATCH_TOKENS // len(ids))
    with evaluating(objective):
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            states = trunk.hidden_states(inputs.batch(device, some))
            moved = []
            for layer, vectors in enumerate(states):
                table = vectors.float().view(len(some), len(ids), -1)
                moved.append(1 - F.cosine_similarity(table, before[layer][None], dim=-1))
                rows_of = torch.arange(len(some), device=device)
                columns = torch.tensor(positions[start : start + size], device=device)
                at_mask[layer].append(table[rows_of, columns])
            changes.append(torch.stack(moved, 1).clamp(min=0))
        vectors_at_mask = [torch.cat(parts) for parts in at_mask]
        truths = [ids[position] for position in positions]
        predictions = predict_by_layer(
            head, vectors_at_mask, layers, range(len(positions)), truths, tokenizer, device=device
        )
    predictions = replace(predictions, positions=tuple(positions))
    return MaskedRuns(tuple(positions), predictions, tuple(layers), torch.cat(changes).cpu().numpy())
