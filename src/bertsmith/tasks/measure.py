"""Measuring a task on labelled examples: scores as before, and the findings that a report is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bertsmith.tasks.base import Item, Task, predict
from bertsmith.tasks.class_findings import (
    ClassificationFindings,
    MultiLabelFindings,
    MultipleChoiceFindings,
    TaggingFindings,
)
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.embedding import SentenceEmbedding
from bertsmith.tasks.findings import Findings, Prior, name_of
from bertsmith.tasks.multiple_choice import MultipleChoice
from bertsmith.tasks.question_answering import QuestionAnswering
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.tasks.value_findings import (
    QuestionAnsweringFindings,
    RegressionFindings,
    SimilarityFindings,
    TextFindings,
)


def findings_of(task: Task, prior: Prior | None = None, temperature: float | None = None) -> Findings:
    """What is to be gathered about predictions of this task."""
    match task:
        case SequenceClassification(config=config) if config.problem == "regression":
            return RegressionFindings(prior)
        case SequenceClassification(config=config) if config.problem == "multi_label":
            return MultiLabelFindings(task.labels, prior)
        case SequenceClassification(config=config):
            return ClassificationFindings(task.labels, prior, temperature, config.metric)
        case MultipleChoice():
            return MultipleChoiceFindings(task.labels, prior, temperature)
        case SentenceEmbedding():
            return SimilarityFindings(task.score)
        case QuestionAnswering():
            return QuestionAnsweringFindings(task.score)
        case TextToText(config=config):
            if config.output == "span":
                return QuestionAnsweringFindings(task.score)
            if config.output == "number":
                return RegressionFindings(prior, score=task.score)
            return GeneratedClassFindings(task, prior) if task.labels else TextFindings(task.score)
    return (
        TaggingFindings(task.labels, prior)
        if type(task).file_kind(task.config) == "tag"
        else ClassificationFindings(task.labels, prior)
    )


class GeneratedClassFindings(ClassificationFindings):
    """Classes that are written as words, scored as the task scores them: no class at all may have been written."""

    def __init__(self, task: TextToText, prior: Prior | None) -> None:
        super().__init__(task.labels, prior, headline=task.config.metric)
        self.task, self.kept, self.predictions = task, list[Any](), list[Any]()

    def add(self, examples: Sequence[Any], predictions: Sequence[Any]) -> None:
        super().add(examples, predictions)
        self.kept += [replace(example, texts=()) for example in examples]
        self.predictions += predictions

    def metrics(self) -> dict[str, float]:
        return self.task.score(self.kept, self.predictions)


@dataclass
class DevEvaluator:
    """A dev set, scored again and again while a task learns; what was found at the best and the last time is kept."""

    task: Task
    examples: Sequence[Any]
    items: Sequence[Item]
    device: torch.device
    budget: int
    prior: Prior | None = None
    best_and_latest: list[tuple[dict[str, float], Findings]] = field(
        default_factory=list
    )  # the best so far, and the newest

    def __call__(self) -> dict[str, float]:
        figures, found = self._evaluate()
        headline = next(iter(figures))
        best = [one for one in self.best_and_latest if not one[0][headline] < figures[headline]][:1]
        self.best_and_latest = [*best, (figures, found)]
        return dict(figures)

    def metric_name(self, key: str) -> str:
        """The name of a metric; an F1 of two classes is named with its class."""
        return name_of(key, {"positive": self.best_and_latest[-1][1].positive} if self.best_and_latest else None)

    def findings(self, metrics: dict[str, float]) -> dict[str, Any]:
        """What was found when these figures were measured; measured again where that was before an interruption."""
        for known, found in self.best_and_latest:
            if known.items() <= metrics.items():
                return found.to_dict()
        self.task.eval()
        return self._evaluate()[1].to_dict()

    def _evaluate(self) -> tuple[dict[str, float], Findings]:
        how: dict[str, Any] = {"device": self.device, "budget": self.budget, "detailed": True}
        predictions = predict(self.task, self.examples, self.items, **how)
        figures = self.task.score(self.examples, predictions)
        if isinstance(self.task, TextToText) and self.task.config.translation:
            figures["loss"] = self.task.loss(self.items, self.device, self.budget)
        found = findings_of(self.task, self.prior)
        found.add(self.examples, predictions)
        if isinstance(
            found, RegressionFindings
        ):  # errors are in the units of the numbers, and no part of the task's own scores
            figures |= {name: one for name, one in found.metrics().items() if name not in figures}
        return figures, found
