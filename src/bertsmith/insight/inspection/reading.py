"""A reading: one text through one model with all figures of it, as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertsmith.insight.inspection.attention_maps import AttentionMaps
from bertsmith.insight.inspection.inputs import Token
from bertsmith.insight.inspection.layer_predictions import Head, Predictions, predict_by_layer, prediction_heads
from bertsmith.insight.inspection.masked_runs import MaskedRuns, mask_every_word
from bertsmith.insight.inspection.trace import Trace, trace
from bertsmith.objectives.base import Objective
from bertsmith.objectives.bilm import BidirectionalLM
from bertsmith.text.tokenizer import Tokenizer

NO_HEAD = "This model has no head that predicts words, so there are no predictions by layer."
NO_SOFTMAX = "A folder of ELMo is kept without the softmax that predicts words: inspect the checkpoints of its run."


@dataclass(frozen=True)
class Reading:
    """One text through one model: tokens, attention, predictions by layer and masked runs."""

    trace: Trace
    predictions: Predictions | None
    backward_predictions: Predictions | None  # of ELMo's second direction
    masked: MaskedRuns | None
    notes: tuple[str, ...]

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens that the encoder reads, or the only network."""
        return self.trace.tokens

    @property
    def targets(self) -> tuple[Token, ...] | None:
        """The tokens that a decoder reads."""
        return None if self.trace.targets is None else self.trace.targets.tokens

    @property
    def attentions(self) -> tuple[AttentionMaps, ...]:
        """The attention weights by kind of attention."""
        return self.trace.attentions

    @property
    def log_likelihood(self) -> float | None:
        """The log-likelihood of the text, or of the targets; of a masked language model, the pseudo-log-likelihood.

        None where the model gives none, as ELMo, or where the text is too long to mask every word.
        """
        if self.masked is not None:
            return self.masked.log_likelihood
        found = self.predictions
        if found is None or found.kind != "next" or self.backward_predictions is not None:
            return None
        known = found.probabilities[[truth is not None for truth in found.truths], -1]
        return float(np.log(known.clip(1e-38).astype(np.float64)).sum())

    def figures(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {
            "tokens": [token.figures() for token in self.tokens],
            "targets": None if self.targets is None else [token.figures() for token in self.targets],
            "attentions": [maps.figures() for maps in self.attentions],
            "predictions": None if self.predictions is None else self.predictions.figures(),
            "backward_predictions": (
                None if self.backward_predictions is None else self.backward_predictions.figures()
            ),
            "masked": None if self.masked is None else self.masked.figures(),
            "notes": list(self.notes),
        }


def read(
    objective: Objective,
    tokenizer: Tokenizer,
    text: str,
    *,
    pair: str | None = None,
    target: str | None = None,
    max_length: int | None = None,
    has_lm_head: bool = True,
) -> Reading:
    """One text, or a pair of texts, through one model.

    `has_lm_head` is whether the weights of the prediction head were trained: a folder may lack them. An
    encoder-decoder decodes the `target`, or its own output.
    """
    traced = trace(objective, tokenizer, text, pair=pair, target=target, max_length=max_length)
    heads = prediction_heads(objective) if has_lm_head else []
    found = [_predict(head, traced, objective, tokenizer) for head in heads]
    masked = None
    if heads and heads[0].kind == "masked":
        masked = mask_every_word(objective, tokenizer, traced.inputs, heads[0], traced.hidden, traced.layers)
    missing = NO_SOFTMAX if isinstance(objective, BidirectionalLM) else NO_HEAD
    notes = traced.notes if found else (*traced.notes, missing)
    first, second = (*found, None, None)[:2]
    return Reading(traced, first, second, masked, notes)


def _predict(head: Head, traced: Trace, objective: Objective, tokenizer: Tokenizer) -> Predictions:
    """The head's predictions at every position that it predicts from."""
    device = objective.trunk.embedding.weight.device
    if traced.targets is not None:
        places, truths = list(range(len(traced.next_targets))), list[int | None](traced.next_targets)
        hidden, layers = traced.decoder_hidden, traced.decoder_layers
        return predict_by_layer(head, hidden, layers, places, truths, tokenizer, "targets", device)
    places, truths = _questions(head, traced.tokens, tokenizer)
    return predict_by_layer(head, traced.hidden, traced.layers, places, truths, tokenizer, device=device)


def _questions(head: Head, tokens: Sequence[Token], tokenizer: Tokenizer) -> tuple[list[int], list[int | None]]:
    """The positions at which a head predicts, and the true ids."""
    ids = [token.id for token in tokens]
    count = len(ids)
    match head.kind:
        case "masked":
            places = [place for place, token in enumerate(tokens) if not token.special]
            mask = tokenizer.roles.get("mask")
            return places, [None if ids[place] == mask else ids[place] for place in places]
        case "next":
            return list(range(count)), [*ids[1:], None]
        case "previous":
            return list(range(count)), [None, *ids[:-1]]
        case "replaced":
            return list(range(count)), [None] * count
