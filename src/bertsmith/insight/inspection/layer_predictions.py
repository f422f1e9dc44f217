"""Predictions by layer: the prediction head on the hidden vectors of every layer. "Logit lens", nostalgebraist 2020.

The head was trained on the last layer only and nothing is tuned for the others, so early layers may predict little
although they know much. Where a network normalises before its sublayers (pre-norm: GPT-2, T5, ModernBERT), its final
norm comes before the head on every layer. A head that is trained for the last layer's width cannot read a layer of
another width, which is left out.

    masked LM            the head predicts the token at its own position
    causal, T5, LSTM     the token after it; of an encoder-decoder the target's, by the decoder
    ELMo                 two predictions: the next word from the left, the previous word from the right
    ELECTRA              whether the token was replaced
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from bertsmith.insight.inspection.encoded import number, numbers
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.objectives.base import LanguageModel, Objective
from bertsmith.objectives.bilm import BidirectionalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.replaced import ReplacedTokenDetection
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import Tokenizer

Kind = Literal["masked", "next", "previous", "replaced"]

TOP = 5  # predictions that are kept of each position and layer
MAX_LOGITS = 1 << 24  # logits in memory at once


@dataclass(frozen=True)
class Head:
    """The prediction head of a model, for the vectors of any layer."""

    kind: Kind
    logits: Callable[[Tensor], Tensor]  # of the last layer's vectors
    final_norm: Callable[[Tensor], Tensor]  # of vectors of any layer but the last, which has it
    width: int  # of vectors that it reads
    vocabulary: int
    all_layers: bool = True

    def on_layer(self, hidden: Float[Tensor, "N D"], last: bool) -> Float[Tensor, "N V"]:
        """The logits from the vectors of one layer."""
        logits = self.logits(hidden if last else self.final_norm(hidden))
        return torch.stack([logits, -logits], -1) if self.kind == "replaced" else logits


@dataclass(frozen=True)
class Predictions:
    """What the head predicts at each position on every layer, and where the true token stands among all."""

    kind: Kind
    where: Literal["tokens", "targets"]
    layers: tuple[str, ...]
    positions: tuple[int, ...]
    truths: tuple[int | None, ...]  # ids; None where none is known
    truth_names: tuple[str | None, ...]
    names: dict[int, str]  # of the ids in `top_ids`
    top_ids: Int64[np.ndarray, "P L K"]
    top_probabilities: Float32[np.ndarray, "P L K"]
    ranks: Int64[np.ndarray, "P L"]  # of the true token, 1 is best; 0 where none is known
    probabilities: Float32[np.ndarray, "P L"]  # of the true token; nan where none is known
    entropy: Float32[np.ndarray, "P L"]  # in nats

    def top(self, position: int, layer: int) -> list[list[Any]]:
        """The most probable tokens as people read them, with their probabilities."""
        pairs = zip(self.top_ids[position, layer], self.top_probabilities[position, layer], strict=True)
        return [[self.names[int(one)], number(float(probability))] for one, probability in pairs]

    def figures(self) -> dict[str, Any]:
        """The predictions as JSON values."""
        rows, layers = range(len(self.positions)), range(len(self.layers))
        return {
            "kind": self.kind,
            "layers": list(self.layers),
            "positions": list(self.positions),
            "truths": list(self.truth_names),
            "where": self.where,
            "top": [[self.top(row, layer) for layer in layers] for row in rows],
            "ranks": [[int(rank) or None for rank in row] for row in self.ranks],
            "probabilities": [numbers(row) for row in self.probabilities.tolist()],
            "entropy": [numbers(row) for row in self.entropy.tolist()],
        }


def prediction_heads(objective: Objective) -> list[Head]:
    """The heads that predict tokens; none of a model that was fine-tuned for another task."""
    trunk: Any = objective.trunk
    norm = trunk.decoder.final_norm if isinstance(trunk, EncoderDecoder) else getattr(trunk, "final_norm", _same)
    sizes = trunk.config.width, trunk.config.vocabulary
    match objective:
        case ReplacedTokenDetection() if objective.config.discriminator_loss != "none":
            return [Head("replaced", objective.discriminator, norm, *sizes)]
        case ReplacedTokenDetection():
            return [Head("masked", lambda hidden: objective.mlm_head(hidden, trunk.embedding.weight), norm, *sizes)]
        case BidirectionalLM():
            half = trunk.config.direction

            def forward(hidden: Tensor) -> Tensor:
                return objective.output(hidden[:, :half])  # type: ignore[no-any-return]

            def backward(hidden: Tensor) -> Tensor:
                return objective.output(hidden[:, half:])  # type: ignore[no-any-return]

            return [Head("next", forward, _same, *sizes), Head("previous", backward, _same, *sizes)]
        case MaskedLM():
            return [Head("masked", objective.logits, norm, *sizes)]
        case LanguageModel():
            return [Head("next", objective.logits, norm, *sizes)]
        case SpanCorruption() | TextToText():
            whole = isinstance(trunk, EncoderDecoder)  # an LSTM's output layer reads its last vectors only
            return [Head("next", trunk.logits, norm, *sizes, whole)]
    return []


def _same(hidden: Tensor) -> Tensor:
    return hidden


@torch.inference_mode()
def predict_by_layer(
    head: Head,
    hidden: Sequence[Tensor | Float32[np.ndarray, "_ _"]],
    layers: Sequence[str],
    positions: Sequence[int],
    truths: Sequence[int | None],
    tokenizer: Tokenizer,
    where: Literal["tokens", "targets"] = "tokens",
    device: torch.device | str = "cpu",
) -> Predictions:
    """The head's predictions at some positions from the hidden vectors of every layer."""
    last = len(hidden) - 1
    able = [
        layer
        for layer, states in enumerate(hidden)
        if states.shape[1] == head.width and (head.all_layers or layer == last)
    ]
    true = torch.tensor([-1 if truth is None else truth for truth in truths], device=device)
    found: list[list[Tensor]] = []
    for layer in able:
        states = torch.as_tensor(hidden[layer], device=device)[torch.as_tensor(positions, device=device)]
        found.append(_rank(head, states, true, layer == last))
    ids, top, ranks, probabilities, entropy = (torch.stack(part, 1).cpu().numpy() for part in zip(*found, strict=True))
    if head.kind == "replaced":
        names = {0: "replaced", 1: "original"}
    else:
        names = {one: tokenizer.readable(one) for one in set(ids.ravel().tolist())}
    return Predictions(
        head.kind,
        where,
        tuple(layers[layer] for layer in able),
        tuple(positions),
        tuple(truths),
        tuple(None if truth is None else tokenizer.readable(truth) for truth in truths),
        names,
        ids,
        top,
        ranks,
        probabilities,
        entropy,
    )


def _rank(head: Head, hidden: Float[Tensor, "P D"], truths: Int64[Tensor, "P"], last: bool) -> list[Tensor]:
    """Of each position the top ids with probabilities, the truth's rank and probability, and the entropy."""
    parts = []
    step = max(1, MAX_LOGITS // head.vocabulary)
    for states, true in zip(torch.split(hidden, step), torch.split(truths, step), strict=True):
        logits = head.on_layer(states, last).float()
        if head.kind == "replaced":  # two logits whose difference is that of the discriminator
            logits = logits / 2
        logs = logits.log_softmax(-1)
        values, ids = logs.topk(min(TOP, logs.shape[-1]))
        own = logs.gather(1, true.clamp(min=0)[:, None])
        known = true >= 0
        ranks = torch.where(known, (logs > own).sum(1) + 1, 0)
        probabilities = torch.where(known, own[:, 0].exp(), torch.nan)
        entropy = -(logs.exp() * logs.clamp(min=-1e4)).sum(1)
        parts.append((ids, values.exp(), ranks, probabilities, entropy))
    return [torch.cat(part) for part in zip(*parts, strict=True)]
