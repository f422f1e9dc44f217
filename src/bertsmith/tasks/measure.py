"""Measuring a task on labelled examples: scores as before, and the findings that a report is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bertsmith.tasks.answer import Answer
from bertsmith.tasks.base import Item, Task, predict
from bertsmith.tasks.choose import Choose
from bertsmith.tasks.class_findings import Choices, Classes, Labels, Tags
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.embed import Embed
from bertsmith.tasks.findings import Findings, Prior
from bertsmith.tasks.value_findings import Answers, Numbers, Pairs, Texts
from bertsmith.tasks.write import Write


def findings_of(task: Task, prior: Prior | None = None, temperature: float | None = None) -> Findings:
    """What is to be gathered about predictions of this task."""
    match task:
        case Classify(config=config) if config.answer == "number":
            return Numbers(prior)
        case Classify(config=config) if config.answer == "labels":
            return Labels(task.labels, prior)
        case Classify(config=config):
            return Classes(task.labels, prior, temperature, config.measure)
        case Choose():
            return Choices(task.labels, prior, temperature)
        case Embed():
            return Pairs(task.score)
        case Answer():
            return Answers(task.score)
        case Write(config=config):
            if config.answer == "stretch":
                return Answers(task.score)
            if config.answer == "number":
                return Numbers(prior, score=task.score)
            return Written(task, prior) if task.labels else Texts(task.score)
    return Tags(task.labels, prior) if type(task).reads(task.config) == "tag" else Classes(task.labels, prior)


class Written(Classes):
    """Classes that are written as words, scored as the task scores them: no class at all may have been written."""

    def __init__(self, task: Write, prior: Prior | None) -> None:
        super().__init__(task.labels, prior, headline=task.config.measure)
        self.task, self.kept, self.said = task, list[Any](), list[Any]()

    def add(self, examples: Sequence[Any], predictions: Sequence[Any]) -> None:
        super().add(examples, predictions)
        self.kept += [replace(example, texts=()) for example in examples]
        self.said += predictions

    def figures(self) -> dict[str, float]:
        return self.task.score(self.kept, self.said)


@dataclass
class Measure:
    """A dev set, scored again and again while a task learns; what was found at the best and the last time is kept."""

    task: Task
    examples: Sequence[Any]
    items: Sequence[Item]
    device: torch.device
    budget: int
    prior: Prior | None = None
    kept: list[tuple[dict[str, float], Findings]] = field(default_factory=list)  # the best so far, and the newest

    def __call__(self) -> dict[str, float]:
        figures, found = self._measured()
        headline = next(iter(figures))
        best = [one for one in self.kept if not one[0][headline] < figures[headline]][:1]
        self.kept = [*best, (figures, found)]
        return dict(figures)

    def findings(self, figures: dict[str, float]) -> dict[str, Any]:
        """What was found when these figures were measured; measured again where that was before an interruption."""
        for known, found in self.kept:
            if known.items() <= figures.items():
                return found.plain()
        self.task.eval()
        return self._measured()[1].plain()

    def _measured(self) -> tuple[dict[str, float], Findings]:
        how: dict[str, Any] = {"device": self.device, "budget": self.budget, "detailed": True}
        predictions = predict(self.task, self.examples, self.items, **how)
        figures = self.task.score(self.examples, predictions)
        if isinstance(self.task, Write) and self.task.config.translates:
            figures["loss"] = self.task.loss(self.items, self.device, self.budget)
        found = findings_of(self.task, self.prior)
        found.add(self.examples, predictions)
        if isinstance(found, Numbers):  # errors are in the units of the numbers, and no part of the task's own scores
            figures |= {name: one for name, one in found.figures().items() if name not in figures}
        return figures, found
