"""The confusion matrix: counts of predicted against true classes, and the scores that follow from it.

Counted while predicting, so that memory grows with the classes and not with the examples.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MAX_CLASSES = 30  # classes of a matrix that a person can still read
OTHERS = "(others)"


@dataclass(frozen=True)
class ClassScores:
    """Precision, recall, F1 and support of one class; support is how many examples truly have it."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int

    @classmethod
    def from_counts(cls, label: str, correct: int, true: int, predicted: int) -> "ClassScores":
        """Scores from counts; a ratio with a denominator of 0 is 0.0, as in scikit-learn."""
        f1 = _ratio(2 * correct, true + predicted)
        return cls(label, precision=_ratio(correct, predicted), recall=_ratio(correct, true), f1=f1, support=true)


class ConfusionMatrix:
    """Counts of (true, predicted) pairs of classes."""

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self.order = {label: number for number, label in enumerate(labels)}  # others follow in alphabetical order
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.counts.update(pairs)

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def true_counts(self) -> Counter[str]:
        """The number of examples of each class."""
        return self._side(0)

    @property
    def predicted_counts(self) -> Counter[str]:
        """The number of predictions of each class."""
        return self._side(1)

    @property
    def classes(self) -> list[str]:
        """All classes that occur, true or predicted, in the order of their numbers."""
        labels = {label for pair in self.counts for label in pair}
        return sorted(labels, key=lambda label: (self.order.get(label, len(self.order)), label))

    def scores(self) -> list[ClassScores]:
        """The scores of each class."""
        true, predicted = self.true_counts, self.predicted_counts
        return [
            ClassScores.from_counts(label, self.counts[label, label], true[label], predicted[label])
            for label in self.classes
        ]

    @property
    def positive(self) -> str | None:
        """The positive class of binary F1: the second of two known classes."""
        return list(self.order)[1] if len(self.order) == 2 else None

    def metrics(self) -> dict[str, float]:
        """Accuracy, macro F1 and Matthews correlation; for two known classes, also the F1 of the second."""
        rows, correct = self.scores(), sum(self.counts[label, label] for label in self.classes)
        macro_f1 = _ratio(sum(row.f1 for row in rows), len(rows))
        metrics = {"accuracy": _ratio(correct, self.total), "macro_f1": macro_f1}
        if (positive := self.positive) is not None:
            metrics["f1"] = next((row.f1 for row in rows if row.label == positive), 0.0)
            metrics["matthews"] = self._matthews(correct)
            metrics["accuracy_f1"] = (metrics["accuracy"] + metrics["f1"]) / 2  # as GLUE scores MRPC and QQP
        return metrics

    def matrix(self, max_classes: int = MAX_CLASSES) -> tuple[list[str], list[list[int]]]:
        """The counts as rows of true classes; of many classes the largest, and the others together as one."""
        labels = self.classes
        if len(labels) > max_classes:
            true = self.true_counts
            largest = set(sorted(labels, key=lambda label: -true[label])[:max_classes])
            labels = [*(label for label in labels if label in largest), OTHERS]
        index, last = {label: number for number, label in enumerate(labels)}, len(labels) - 1
        rows = [[0] * len(labels) for _ in labels]
        for (gold, predicted), count in self.counts.items():
            rows[index.get(gold, last)][index.get(predicted, last)] += count
        return labels, rows

    def constant_baseline(self, label: str) -> "ConfusionMatrix":
        """The matrix of a model that predicts one class for all examples."""
        baseline = ConfusionMatrix(list(self.order))
        baseline.counts.update({(gold, label): count for gold, count in self.true_counts.items()})
        return baseline

    def _side(self, side: int) -> Counter[str]:
        totals: Counter[str] = Counter()
        for pair, count in self.counts.items():
            totals[pair[side]] += count
        return totals

    def _matthews(self, correct: int) -> float:
        """Matthews correlation of any number of classes. Gorodkin 2004. In integers: no rounding before the root."""
        true, predicted, count = self.true_counts, self.predicted_counts, self.total
        covariance = correct * count - sum(number * predicted[label] for label, number in true.items())
        variances = count**2 - sum(number**2 for number in true.values())
        variances *= count**2 - sum(number**2 for number in predicted.values())
        return covariance / math.sqrt(variances) if variances else 0.0


def averages(rows: Sequence[ClassScores]) -> dict[str, dict[str, Any]]:
    """Macro and weighted means of precision, recall and F1; weighted by support."""
    support = sum(row.support for row in rows)
    means: dict[str, dict[str, Any]] = {}
    for name in ("macro", "weighted"):
        weights = [1 if name == "macro" else row.support for row in rows]
        total = sum(weights)
        means[name] = {
            score: _ratio(sum(weight * getattr(row, score) for weight, row in zip(weights, rows, strict=True)), total)
            for score in ("precision", "recall", "f1")
        } | {"support": support}
    return means


def to_dicts(rows: Sequence[ClassScores]) -> list[dict[str, Any]]:
    """The scores as JSON values."""
    return [asdict(row) for row in rows]


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
