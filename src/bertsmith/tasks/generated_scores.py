"""Scores of generated texts that stand for classes, numbers or spans, by the rules of T5's authors."""

from collections.abc import Sequence
from typing import Any

from bertsmith.data.labelled.examples import Example, Question
from bertsmith.metrics import scores
from bertsmith.metrics.squad import squad_scores


def class_scores(gold: Sequence[str], predicted: Sequence[str | None], labels: tuple[str, ...]) -> dict[str, float]:
    """The metrics of classification. Of two classes, a text that names none counts as the wrong one."""
    number = {label: index for index, label in enumerate(labels)}
    true_ids = [number.get(label, -2) for label in gold]
    predicted_ids = [-1 if label is None else number[label] for label in predicted]
    if len(labels) == 2:
        pairs = zip(true_ids, predicted_ids, strict=True)
        predicted_ids = [1 - max(0, true) if predicted_id < 0 else predicted_id for true, predicted_id in pairs]
    return scores.classification_scores(true_ids, predicted_ids, len(labels)) | {
        "no_class": predicted.count(None) / max(1, len(predicted))
    }


def regression_scores(gold: Sequence[float], predicted: Sequence[float | None]) -> dict[str, float]:
    """Correlations. A text that is no number counts as the end of the scale that is farther from the label."""
    low, high = min(gold), max(gold)
    worst = [high if high - one > one - low else low for one in gold]
    numbers = [bad if number is None else number for number, bad in zip(predicted, worst, strict=True)]
    metrics = {"spearman": scores.spearman(gold, numbers), "pearson": scores.pearson(gold, numbers)}
    return metrics | {"no_number": predicted.count(None) / max(1, len(predicted))}


def span_scores(examples: Sequence[Example | Question], predictions: Sequence[Any]) -> dict[str, float]:
    """The metrics of SQuAD."""
    gold, predicted = {}, {}
    for example, prediction in zip(examples, predictions, strict=True):
        if isinstance(example, Question) and example.answers is not None:
            gold[example.name] = tuple(answer.text for answer in example.answers)
            predicted[example.name] = prediction["answer"]
    metrics = squad_scores(gold, predicted)
    return {"f1": metrics.pop("f1"), **metrics}
