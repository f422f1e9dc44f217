"""Evaluation of a task on labelled examples: its metrics, and the findings for a report."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from bertsmith.objectives.base import Objective
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
    """The kind of findings for the predictions of this task."""
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
    """Classes that are generated as words, scored by the task; a generated text may name no class."""

    def __init__(self, task: TextToText, prior: Prior | None) -> None:
        super().__init__(task.labels, prior, headline=task.config.metric)
        self.task, self.kept, self.predictions = task, list[Any](), list[Any]()

    def add(self, examples: Sequence[Any], predictions: Sequence[Any]) -> None:
        super().add(examples, predictions)
        self.kept += [replace(example, texts=()) for example in examples]
        self.predictions += predictions

    def metrics(self) -> dict[str, float]:
        return self.task.score(self.kept, self.predictions)


class Evaluations(ABC):
    """Evaluates on a dev set during training, and keeps the findings of the best and the latest evaluation."""

    def __init__(self, task: Objective) -> None:
        self.task = task
        self.best_and_latest: list[tuple[dict[str, float], Findings]] = []
        self.progress: Callable[[float], object] = lambda _: None  # gets the share of an evaluation that is done

    @abstractmethod
    def measure(self) -> tuple[dict[str, float], Findings]:
        """The metrics of the current weights, and what a report says of them."""

    def __call__(self) -> dict[str, float]:
        metrics, found = self.measure()
        headline = next(iter(metrics))
        best = [one for one in self.best_and_latest if not one[0][headline] < metrics[headline]][:1]
        self.best_and_latest = [*best, (metrics, found)]
        return dict(metrics)

    def metric_name(self, key: str) -> str:
        """The name of a metric; an F1 of two classes is named with its class."""
        return name_of(key, {"positive": self.best_and_latest[-1][1].positive} if self.best_and_latest else None)

    def findings(self, metrics: dict[str, float]) -> dict[str, Any]:
        """The findings that belong to these metrics; evaluated again if the run was resumed since."""
        for known, found in self.best_and_latest:
            if known.items() <= metrics.items():
                return found.to_dict()
        self.task.eval()
        return self.measure()[1].to_dict()


class DevEvaluator(Evaluations):
    """Evaluates a task on its examples."""

    def __init__(
        self,
        task: Task,
        examples: Sequence[Any],
        items: Sequence[Item],
        device: torch.device,
        budget: int,
        prior: Prior | None = None,
    ) -> None:
        super().__init__(task)
        self.examples, self.items, self.device, self.budget, self.prior = examples, items, device, budget, prior
        self.predictor = task

    def measure(self) -> tuple[dict[str, float], Findings]:
        task = self.predictor
        options: dict[str, Any] = {
            "device": self.device,
            "budget": self.budget,
            "progress": self.progress,
        }
        predictions = predict(task, self.examples, self.items, detailed=True, **options)
        metrics = task.score(self.examples, predictions)
        if isinstance(task, TextToText) and task.config.translation:
            metrics["loss"] = task.loss(self.items, self.device, self.budget)
        found = findings_of(task, self.prior)
        found.add(self.examples, predictions)
        if isinstance(found, RegressionFindings):  # adds MAE and RMSE, in the unit of the numbers
            metrics |= {name: one for name, one in found.metrics().items() if name not in metrics}
        return metrics, found
