"""The confusion matrix: how often each class was predicted where each was true, and the scores that follow from it.

Counted as predictions come, so that a file of any length takes as much memory as it has classes.
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
        """What cannot be divided is 0.0, as scikit-learn has it."""
        return cls(
            label, _ratio(correct, predicted), _ratio(correct, true), _ratio(2 * correct, true + predicted), true
        )


class ConfusionMatrix:
    """Counts of (true, predicted) pairs of classes."""

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self.order = {label: number for number, label in enumerate(labels)}  # others follow, by the alphabet
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.counts.update(pairs)

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def true_counts(self) -> Counter[str]:
        """How many examples have each class."""
        return self._side(0)

    @property
    def predicted_counts(self) -> Counter[str]:
        """How often each class was predicted."""
        return self._side(1)

    @property
    def classes(self) -> list[str]:
        """All classes that are true or predicted somewhere, in the order of their numbers."""
        found = {label for pair in self.counts for label in pair}
        return sorted(found, key=lambda label: (self.order.get(label, len(self.order)), label))

    def scores(self) -> list[ClassScores]:
        """A row for each class."""
        true, predicted = self.true_counts, self.predicted_counts
        return [
            ClassScores.from_counts(label, self.counts[label, label], true[label], predicted[label])
            for label in self.classes
        ]

    @property
    def positive(self) -> str | None:
        """The class that F1 is of, where two classes are known: the second."""
        return list(self.order)[1] if len(self.order) == 2 else None

    def metrics(self) -> dict[str, float]:
        """Accuracy, macro F1 and Matthews correlation; for two known classes, also the F1 of the second."""
        rows, right = self.scores(), sum(self.counts[label, label] for label in self.classes)
        found = {"accuracy": _ratio(right, self.total), "macro_f1": _ratio(sum(row.f1 for row in rows), len(rows))}
        if (positive := self.positive) is not None:
            found["f1"] = next((row.f1 for row in rows if row.label == positive), 0.0)
            found["matthews"] = self._matthews(right)
            found["accuracy_f1"] = (found["accuracy"] + found["f1"]) / 2  # as GLUE scores MRPC and QQP
        return found

    def matrix(self, max_classes: int = MAX_CLASSES) -> tuple[list[str], list[list[int]]]:
        """The counts as rows of true classes; of many classes the largest, and the others as one."""
        labels = self.classes
        if len(labels) > max_classes:
            true = self.true_counts
            largest = set(sorted(labels, key=lambda label: -true[label])[:max_classes])
            labels = [*(label for label in labels if label in largest), OTHERS]
        place = {label: number for number, label in enumerate(labels)}
        rows = [[0] * len(labels) for _ in labels]
        for (gold, said), count in self.counts.items():
            rows[place.get(gold, len(labels) - 1)][place.get(said, len(labels) - 1)] += count
        return labels, rows

    def constant_baseline(self, label: str) -> "ConfusionMatrix":
        """The same examples, if one class were predicted for all of them."""
        made = ConfusionMatrix(list(self.order))
        made.counts.update({(gold, label): count for gold, count in self.true_counts.items()})
        return made

    def _side(self, side: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for pair, count in self.counts.items():
            found[pair[side]] += count
        return found

    def _matthews(self, right: int) -> float:
        """Gorodkin 2004. Whole numbers of any size: nothing is rounded before the root."""
        true, predicted, count = self.true_counts, self.predicted_counts, self.total
        both = right * count - sum(number * predicted[label] for label, number in true.items())
        spread = count**2 - sum(number**2 for number in true.values())
        spread *= count**2 - sum(number**2 for number in predicted.values())
        return both / math.sqrt(spread) if spread else 0.0


def averages(rows: Sequence[ClassScores]) -> dict[str, dict[str, Any]]:
    """Macro and weighted means of precision, recall and F1; weighted by support."""
    support = sum(row.support for row in rows)
    found: dict[str, dict[str, Any]] = {}
    for name in ("macro", "weighted"):
        weights = [1 if name == "macro" else row.support for row in rows]
        whole = sum(weights)
        found[name] = {
            figure: _ratio(sum(weight * getattr(row, figure) for weight, row in zip(weights, rows, strict=True)), whole)
            for figure in ("precision", "recall", "f1")
        } | {"support": support}
    return found


def to_dicts(rows: Sequence[ClassScores]) -> list[dict[str, Any]]:
    """Rows as JSON can hold them."""
    return [asdict(row) for row in rows]


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
