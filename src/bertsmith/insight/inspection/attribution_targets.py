"""Outputs to attribute: what a model predicts of a text, as a number that has a gradient.

A class, a tag or a token counts by its log-odds, log p / (1 - p), which do not saturate as probabilities do; a number,
an answer span (start plus end) and an ending by their scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.data.rows import Row, pack_rows
from bertsmith.objectives.base import LanguageModel, Objective
from bertsmith.objectives.bilm import BidirectionalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.multiple_choice import MultipleChoice
from bertsmith.tasks.question_answering import QuestionAnswering
from bertsmith.tasks.tagging import TokenClassification
from bertsmith.text.tokenizer import Tokenizer

MAX_TARGETS = 8  # tags, labels or blanks of one text

Outputs = Callable[[Tokens], Float[Tensor, "B"]]  # one number for every sequence of a batch of copies of the text


@dataclass(frozen=True)
class AttributionTarget:
    """An output of the model that is attributed to the tokens."""

    name: str
    details: dict[str, Any]  # the kind of output, its label or token, its position and its probability
    output: Outputs


@torch.no_grad()
def find_targets(
    objective: Objective, tokenizer: Tokenizer, row: Row, words: Sequence[int], shown: Sequence[str]
) -> list[AttributionTarget]:
    """What the model predicts of one text: at most `MAX_TARGETS` outputs."""
    tokens = pack_rows([row]).to(objective.trunk.embedding.weight.device)
    match objective:
        case SequenceClassification():
            return _labels(objective, tokens)[:MAX_TARGETS]
        case TokenClassification():
            return _tags(objective, tokens, words, shown)[:MAX_TARGETS]
        case QuestionAnswering():
            return _span(objective, tokenizer, tokens, row, words, shown)
        case MultipleChoice():
            score = float(objective.outputs(tokens)[0])
            output: Outputs = lambda tokens: torch.stack(objective.outputs(tokens))  # noqa: E731
            return [AttributionTarget(f"ending: score {score:.2f}", {"kind": "ending", "score": score}, output)]
        case MaskedLM():
            blanks = np.flatnonzero(row.ids == tokenizer.roles.get("mask", -1)).tolist()
            found = [_token(objective, tokenizer, tokens, at, f"{shown[at]} at {at}") for at in blanks[:MAX_TARGETS]]
            return [one for one in found if one is not None]
        case LanguageModel() if not isinstance(objective, BidirectionalLM):
            read = [at for at, word in enumerate(words) if word >= 0]
            found = [_token(objective, tokenizer, tokens, read[-1], "next token")] if read else []
            return [one for one in found if one is not None]
    return []


def log_odds(logits: Float[Tensor, "B C"], label: int) -> Float[Tensor, "B"]:
    """log p / (1 - p) of one class of a softmax: its logit minus the log-sum-exp of the others."""
    others = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
    others[label] = False
    return logits[:, label] - logits[:, others].logsumexp(-1)


def _labels(objective: SequenceClassification, tokens: Tokens) -> list[AttributionTarget]:
    """The class, the number, or every label that is predicted; if none is, the likeliest."""
    (logits,) = objective.logits(tokens).double()
    match objective.config.problem:
        case "regression":
            number = float(logits[0])
            details: dict[str, Any] = {"kind": "number", "number": number}
            return [AttributionTarget(f"number: {number:.4g}", details, lambda tokens: objective.logits(tokens)[:, 0])]
        case "multi_label":
            probabilities = logits.sigmoid()
            best = probabilities.argsort(descending=True).tolist()
            given = [label for label in best if probabilities[label] >= objective.config.threshold] or best[:1]

            def logit(label: int) -> Outputs:
                return lambda tokens: objective.logits(tokens)[:, label]

            return [_label(objective, label, float(probabilities[label]), logit(label)) for label in given]
    predicted = int(logits.argmax())
    probability = float(logits.softmax(-1)[predicted])
    return [_label(objective, predicted, probability, lambda tokens: log_odds(objective.logits(tokens), predicted))]


def _label(objective: SequenceClassification, label: int, probability: float, output: Outputs) -> AttributionTarget:
    name = objective.labels[label]
    details = {"kind": "label", "label": name, "probability": probability}
    return AttributionTarget(f"label: {name} ({probability:.2f})", details, output)


def _tags(
    objective: TokenClassification, tokens: Tokens, words: Sequence[int], shown: Sequence[str]
) -> list[AttributionTarget]:
    """The tags of words, except O, each at the word's first token."""
    logits = objective.outputs(tokens)[0].double()
    found = []
    for position, word in enumerate(words):
        tag = int(logits[position].argmax())
        if word < 0 or word == words[position - 1] or objective.labels[tag] == "O":
            continue
        spelt = "".join(piece for piece, other in zip(shown, words, strict=True) if other == word)
        probability = float(logits[position].softmax(-1)[tag])
        details = {"kind": "tag", "position": position, "tag": objective.labels[tag], "probability": probability}

        def output(tokens: Tokens, position: int = position, tag: int = tag) -> Tensor:
            return log_odds(torch.stack(objective.outputs(tokens))[:, position], tag)

        name = f"tag of '{spelt}': {objective.labels[tag]} ({probability:.2f})"
        found.append(AttributionTarget(name, details, output))
    return found


def _span(
    objective: QuestionAnswering,
    tokenizer: Tokenizer,
    tokens: Tokens,
    row: Row,
    words: Sequence[int],
    shown: Sequence[str],
) -> list[AttributionTarget]:
    """The best answer span of the context, which stands after the first separator."""
    special = np.array(words) < 0  # [UNK] stands for a word of the question, and is no separator
    separators = np.flatnonzero(special[1:]) + 1
    if not len(separators):
        return []
    begin = int(separators[0]) + max(1, tokenizer.separator_count)
    end = int(separators[-1]) if special[-1] else len(row)
    scores = objective.outputs(tokens)[0].double().cpu().numpy()
    best, start, stop = -np.inf, 0, 0
    for first in range(begin, end):
        last = first + int(scores[first : min(end, first + objective.config.max_answer_length), 1].argmax())
        if scores[first, 0] + scores[last, 1] > best:
            best, start, stop = float(scores[first, 0] + scores[last, 1]), first, last
    if best == -np.inf:
        return []

    def output(tokens: Tokens) -> Tensor:
        found = torch.stack(objective.outputs(tokens))
        return found[:, start, 0] + found[:, stop, 1]

    answer = " ".join(
        "".join(shown[at] for at in range(start, stop + 1) if words[at] == word)
        for word in dict.fromkeys(words[start : stop + 1])
    )
    details = {"kind": "span", "start": start, "end": stop, "answer": answer, "score": best}
    return [AttributionTarget(f"answer span: {answer}", details, output)]


def _token(
    objective: LanguageModel, tokenizer: Tokenizer, tokens: Tokens, position: int, name: str
) -> AttributionTarget | None:
    """The likeliest token at a position, of those that are no special tokens."""

    def logits(tokens: Tokens) -> Float[Tensor, "B V"]:
        hidden = objective.trunk(tokens, selected=tokens.bounds[:-1].long() + position)
        return objective.logits(hidden)[:, : tokenizer.vocabulary].float()

    (predicted,) = logits(tokens)
    probabilities = predicted.softmax(-1)
    best = int(
        predicted.masked_fill(torch.from_numpy(tokenizer.special_mask).to(predicted.device), -torch.inf).argmax()
    )
    probability, token = float(probabilities[best]), tokenizer.readable(best)
    details = {"kind": "token", "position": position, "token": token, "probability": probability}
    output: Outputs = lambda tokens: log_odds(logits(tokens), best)  # noqa: E731
    return AttributionTarget(f"{name}: {token} ({probability:.2f})", details, output)
