"""Findings: metrics, tables, samples and mistakes of a model's predictions, collected in chunks for a report.

Only counts, samples and the worst mistakes are kept, so that a file of millions of rows takes no more memory than a
short one. The result is plain JSON, for `result.json` and the page.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bertsmith.data.labelled.examples import Example, Sentence
from bertsmith.tasks.mistakes import Mistakes
from bertsmith.terminal import count_of

MAX_COUNTED = 200_000  # training examples whose labels are counted, evenly spaced
MAX_NAMED = 1_000  # labels whose frequency is kept, the most frequent first

METRIC_NAMES = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "accuracy_f1": "mean of accuracy and F1",
    "matthews": "Matthews correlation",
    "spearman": "Spearman",
    "pearson": "Pearson",
    "mae": "MAE",
    "rmse": "RMSE",
    "exact": "exact match",
    "bleu": "BLEU",
    "best_f1": "best F1",
    "no_answer_f1": "F1, no answer",
    "has_answer_f1": "F1, with answer",
}
ERRORS = ("mae", "rmse", "loss")  # metrics of which the smaller is the better
FEW_EXAMPLES = 50  # fewer are too few to tell: the 95 % interval of an accuracy is 0.28 wide, or wider
OF_ONE_CLASS = ("f1", "accuracy_f1")  # metrics of one of two classes, which is named with them


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The distribution of labels in the training data, for baselines: label counts, or the mean of numbers."""

    counts: Mapping[str, int] = field(default_factory=dict)
    mean: float | None = None
    deviation: float = 0.0  # standard deviation of the numbers
    source: str = "training"

    @property
    def most_frequent(self) -> str | None:
        """The most frequent label; ties in alphabetical order."""
        return min(self.counts, key=lambda label: (-self.counts[label], label)) if self.counts else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON, for a model folder."""
        return {"counts": dict(self.counts), "mean": self.mean}

    @classmethod
    def of(cls, examples: Sequence[Any], source: str = "training") -> "Prior":
        """Count the labels of examples; of very many, evenly spaced ones."""
        counts: Counter[str] = Counter()
        numbers: list[float] = []
        for at in range(0, len(examples), max(1, len(examples) // MAX_COUNTED)):
            match examples[at]:
                case Sentence(tags=tuple(tags)):
                    counts.update(tags)
                case Example(label=float(number)):
                    numbers.append(number)
                case Example(label=tuple(labels)):
                    counts.update(labels)
                case Example(label=str(label)):
                    counts[label] += 1
        named = dict(counts.most_common(MAX_NAMED))
        if not numbers:
            return cls(counts=named, source=source)
        return cls(counts=named, mean=float(np.mean(numbers)), deviation=float(np.std(numbers)), source=source)


class Findings(ABC):
    """Predictions compared with true labels, as far as a report needs them."""

    kind = ""  # of predictions

    def __init__(self, labels: Sequence[str], prior: Prior | None, temperature: float | None = None) -> None:
        self.labels, self.prior, self.temperature = tuple(labels), prior, temperature
        self.examples, self.mistakes = 0, Mistakes()

    @property
    def positive(self) -> str | None:
        """Of two classes, the one that F1 is about; None where there are not two."""
        return None

    @abstractmethod
    def add(self, examples: Sequence[Any], predictions: Sequence[Any]) -> None:
        """Add examples and their predictions."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """The metrics, as by `Task.score`; the first is the headline."""

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """Tables, a baseline, samples; `constant` if all predictions are the same."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        found = {"kind": self.kind, "examples": self.examples, "metrics": self.metrics(), **self.details()}
        if self.mistakes.count:
            found |= {"mistakes": self.mistakes.to_list(), "mistake_count": self.mistakes.count}
        return found


def warnings(found: Mapping[str, Any], headline: str, score: float, untrained: float | None = None) -> list[str]:
    """Warnings for the user: few examples, constant predictions, scores not above the baseline, unknown labels."""
    lines = []
    if found["examples"] < FEW_EXAMPLES:
        examples = count_of(found["examples"], "example")
        lines.append(f"the scores are of {examples}, too few to tell how good it is: have {FEW_EXAMPLES} or more")
    if constant := found.get("constant"):
        lines.append(f"the model predicts {constant}: it has learnt nothing that separates examples")
    baseline = found.get("baseline") or {}
    name = headline if headline in baseline.get("metrics", {}) else ""
    if name and not score >= 1.0 and not score > baseline["metrics"][name]:
        compared = f"{baseline['name']} ({baseline['metrics'][name]:.4f})"
        lines.append(f"{name_of(name, found)} {score:.4f} is not better than {compared}")
    elif len(worse := _worse_than_baseline(found)) > len(baseline.get("metrics", {})) / 2:
        scores = ", ".join(f"{name_of(one, found)} {found['metrics'][one]:.4f}" for one in worse)
        lines.append(f"most scores are below those of {baseline['name']}: {scores}")
    rmse, plain = found["metrics"].get("rmse"), baseline.get("metrics", {}).get("rmse")
    if rmse is not None and plain is not None and plain > 0 and not rmse < plain:
        lines.append(f"its error (RMSE {rmse:.4g}) is not smaller than that of {baseline['name']} ({plain:.4g})")
    if untrained is not None and not score >= 1.0 and not score > untrained:
        lines.append(f"{name_of(headline, found)} {score:.4f} is not better than before training ({untrained:.4f})")
    if unknown := found.get("unknown"):
        some = ", ".join(f"'{label}'" for label in list(unknown)[:5])
        lines.append(f"{sum(unknown.values()):,} have labels that the model never learnt ({some}): counted as wrong")
    return lines


def _worse_than_baseline(found: Mapping[str, Any]) -> list[str]:
    """The metrics in which the baseline is better than the model."""
    metrics, baseline = found["metrics"], (found.get("baseline") or {}).get("metrics", {})
    signs = {name: -1 if name in ERRORS else 1 for name in baseline.keys() & metrics.keys()}
    return [name for name in baseline if name in signs and signs[name] * (baseline[name] - metrics[name]) > 0]


def name_of(key: str, found: Mapping[str, Any] | None = None) -> str:
    """The name of a metric; with findings on two classes, an F1 is named with its class."""
    name, positive = METRIC_NAMES.get(key, key.replace("_", " ")), (found or {}).get("positive")
    return f"{name} of '{positive}'" if positive is not None and key in OF_ONE_CLASS else name
