"""Extractive question answering: the span of a context that answers a question."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import LabelledBatch, Tokens
from bertsmith.data.labelled.examples import Kind, Question
from bertsmith.errors import RecipeError
from bertsmith.metrics.squad import best_threshold, squad_scores
from bertsmith.models.transformer import Transformer, make_pooler
from bertsmith.nn.heads import SpanHead
from bertsmith.objectives.base import Term
from bertsmith.tasks.base import Bucket, Item, Task, count_tokens, with_special_tokens
from bertsmith.text.tokenizer import Tokenizer

MASKED_SCORE = -1e30  # of padding
MAX_SPANS = 5  # in a detailed prediction


class Span(NamedTuple):
    """A span of the context, by its characters."""

    score: float
    start: int
    end: int
    text: str


class QuestionAnswering(Task):
    """A softmax over the start and the end token of the answer. Devlin et al. 2018, sections 4.2 and 4.3.

    A long context is split into overlapping windows. In a window without the answer, [CLS] is the target; a question
    has no answer if the score of [CLS] exceeds that of the best span by more than `null_threshold`.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        max_question_length: int = 64  # longest question, in tokens
        overlap: int = 128  # tokens that neighbouring windows share (run_qa: doc_stride)
        max_answer_length: int = 30  # longest answer, in tokens
        n_best: int = 20  # best start and end positions that are combined
        null_threshold: float | None = None  # margin of [CLS] above which there is no answer; None: always answer

    def __init__(self, trunk: Transformer, config: Config, labels: tuple[str, ...] = ()) -> None:
        super().__init__(trunk, config, ())
        self.pooler = make_pooler(trunk.config, whole_text=False)
        self.span = SpanHead(trunk.config.width)

    @classmethod
    def file_kind(cls, config: Config) -> Kind:
        return "answer"

    def forward(self, batch: LabelledBatch) -> dict[str, Term]:
        tokens = batch.tokens
        scores = _to_padded(self.span(self.pooler(self.trunk(tokens))).float(), tokens)[: len(batch.labels)]  # B L 2
        total = F.cross_entropy(scores, batch.labels, reduction="sum", ignore_index=-100)
        return {"span": Term(total / 2, None)}

    def preprocess(self, examples: Sequence[Question], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        questions = tokenizer.encode([example.question for example in examples])
        once = list(dict.fromkeys(example.context for example in examples))  # many questions share a context
        passages = dict(zip(once, tokenizer.encode_with_offsets(once), strict=True))
        items = []
        for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
            question = question[: self.config.max_question_length]
            ids, pairs = passages[example.context]
            room = max_length - len(question) - 2 - tokenizer.separator_count
            step = room - self.config.overlap
            if step < 1:
                fact = f"windows of {room} tokens cannot share {self.config.overlap}"
                raise RecipeError("task.overlap", fact, "Lower it, or raise data.max_length")
            offsets = np.array(pairs, np.int64).reshape(-1, 2)
            answer = _answer_tokens(example, offsets)
            for begin in range(0, max(1, len(ids) - room + step), step):
                end = min(begin + room, len(ids))
                row = with_special_tokens(tokenizer, question, ids[begin:end])
                # The position of the context's first token in the row.
                shift = len(tokenizer.template.before) + len(question) + tokenizer.separator_count
                target = _target(answer, begin, end, shift)
                items.append(Item(rows=(row,), example=number, target=target, notes=(shift, offsets[begin:end])))
        return items

    def collate(self, items: Sequence[Item], bucket: Bucket) -> LabelledBatch:
        tokens = bucket.collate([item.rows[0] for item in items], bucket.batch_size)
        labels = np.full((bucket.batch_size if bucket.pad_to_multiple_of else len(items), 2), -100)
        labels[: len(items)] = [item.target for item in items]
        counts = {"span": max(1, int((labels[:, 0] != -100).sum())), **count_tokens(items)}
        return LabelledBatch(tokens=tokens, labels=torch.from_numpy(labels), counts=counts)

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        scores = self.span(self.pooler(self.trunk(tokens)))
        return list(torch.split(scores, tokens.bounds.diff().tolist()))

    def postprocess(self, example: Question, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        return self._prediction(example, *self._spans(example, items, outputs, most=1))

    def postprocess_detailed(
        self, example: Question, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]
    ) -> Any:
        """The prediction with `spans`: the best, and those that share no word with a better one.

        Each has its probability among the n best, as BERT's run_squad counts it; where a question may have no answer,
        this is one of them.
        """
        spans, none = self._spans(example, items, outputs, most=self.config.n_best)
        spans = spans[: self.config.n_best]
        rivals = [one.score for one in spans] + ([none] if self.config.null_threshold is not None else [])
        total = float(np.logaddexp.reduce(rivals)) if rivals else 0.0
        apart = list[Span]()
        for one in spans:
            if not any(one.start < other.end and other.start < one.end for other in apart):
                apart.append(one)
        shown = [
            {"answer": one.text, "start": one.start, "end": one.end, "probability": math.exp(one.score - total)}
            for one in apart[:MAX_SPANS]
        ]
        return self._prediction(example, spans, none) | {"spans": shown}

    def _spans(
        self, example: Question, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]], most: int
    ) -> tuple[list[Span], float]:
        """The best spans of every window, the best first, and the lowest score of no answer."""
        found, none = dict[tuple[int, int], float](), np.inf
        for item, scores in zip(items, outputs, strict=True):
            shift, offsets = item.notes
            none = min(none, float(scores[0].sum()))
            inside = scores[shift : shift + len(offsets)]
            for score, first, last in _best_spans(inside, self.config.n_best, self.config.max_answer_length, most):
                bounds = int(offsets[first, 0]), _include_accents(example.context, int(offsets[last, 1]))
                found[bounds] = max(score, found.get(bounds, -np.inf))  # windows share tokens
        spans = [Span(score, *bounds, example.context[slice(*bounds)]) for bounds, score in found.items()]
        return sorted(spans, key=lambda span: -span.score), none

    def _prediction(self, example: Question, spans: Sequence[Span], none: float) -> dict[str, Any]:
        best, begin, text = (spans[0].score, spans[0].start, spans[0].text) if spans else (-np.inf, -1, "")
        gap = none - best if text else 0.0
        prediction = {"id": example.name, "answer": text, "start": begin, "score": best if text else none}
        if self.config.null_threshold is not None:
            prediction |= {"answer": "", "start": -1} if gap > self.config.null_threshold else {}
            prediction |= {"best_span": text}  # the answer if there had to be one
        return prediction | {"null_score_difference": gap}  # score of no answer minus that of the best span

    def score(self, examples: Sequence[Question], predictions: Sequence[Any]) -> dict[str, float]:
        known = {
            example.name: (tuple(answer.text for answer in example.answers), prediction)
            for example, prediction in zip(examples, predictions, strict=True)
            if example.answers is not None
        }
        gold = {name: answers for name, (answers, _) in known.items()}
        metrics = squad_scores(gold, {name: made["answer"] for name, (_, made) in known.items()})
        metrics = {"f1": metrics.pop("f1"), **metrics}
        if not all(gold.values()):
            candidates = {name: made.get("best_span", made["answer"]) for name, (_, made) in known.items()}
            margins = {name: made["null_score_difference"] for name, (_, made) in known.items()}
            threshold, best = best_threshold(gold, candidates, margins)
            metrics |= {"best_f1": best, "best_threshold": threshold}
        return metrics


def _to_padded(scores: Float[Tensor, "T 2"], tokens: Tokens) -> Float[Tensor, "B L 2"]:
    """Flat scores as one padded row per sequence, for the softmax."""
    rows = tokens.bounds.shape[0] - 1
    positions = torch.arange(scores.shape[0], device=scores.device, dtype=tokens.bounds.dtype)
    owners = torch.searchsorted(tokens.bounds[1:], positions, right=True)
    flat = scores.new_full((rows * tokens.max_length, 2), MASKED_SCORE)
    flat = flat.index_put((owners * tokens.max_length + tokens.positions,), scores)
    return flat.view(rows, tokens.max_length, 2)


def _answer_tokens(example: Question, offsets: NDArray[np.int64]) -> tuple[int, ...] | None:
    """The first and last token of the answer in the context; () if there is no answer, None without a label."""
    if not example.answers:
        return None if example.answers is None else ()
    begin = example.answers[0].start
    end = begin + len(example.answers[0].text)
    inside = np.flatnonzero((offsets[:, 1] > begin) & (offsets[:, 0] < end))  # blanks at its ends belong to no token
    return (int(inside[0]), int(inside[-1])) if len(inside) else ()


def _target(answer: tuple[int, ...] | None, begin: int, end: int, shift: int) -> tuple[int, int]:
    """The answer's positions in the row of a window; [CLS] if the window does not hold the whole answer."""
    if answer is None:
        return -100, -100
    if answer and begin <= answer[0] and answer[1] < end:
        return answer[0] - begin + shift, answer[1] - begin + shift
    return 0, 0


def _include_accents(passage: str, end: int) -> int:
    """The end after combining accents of the last letter, which a tokenizer may drop."""
    while end < len(passage) and unicodedata.combining(passage[end]):
        end += 1
    return end


def _best_spans(scores: NDArray[np.float32], count: int, max_length: int, most: int) -> list[tuple[float, int, int]]:
    """Score, first and last token of the best spans among the best starts and ends, the best first."""
    for tried in (count, len(scores)):  # all of them, if no two of the best form a span
        starts, ends = _top_k(scores[:, 0], tried), _top_k(scores[:, 1], tried)
        spans = ends - starts[:, None]
        sums = scores[starts, 0][:, None] + scores[ends, 1]
        sums = np.where((spans >= 0) & (spans < max_length), sums, -np.inf).ravel()
        best = [int(place) for place in np.argsort(-sums, kind="stable")[:most] if np.isfinite(sums[place])]
        if best:
            return [
                (float(sums[place]), int(starts[place // len(ends)]), int(ends[place % len(ends)])) for place in best
            ]
    return []


def _top_k(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Positions of the best scores."""
    if len(scores) <= count:
        return np.arange(len(scores))
    return np.asarray(np.argpartition(-scores, count)[:count])
