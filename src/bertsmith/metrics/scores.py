"""Classification and regression metrics: accuracy, F1, Matthews, Pearson and Spearman correlation. Shares of one.

A score that is undefined, such as the F1 of a class that never occurs, is 0.0.
"""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Labels = Sequence[Any] | NDArray[Any]  # a label for each example; or several: sets, tuples, or rows of 0 and 1


def accuracy(gold: Labels, predicted: Labels) -> float:
    """The share of correct predictions."""
    true, guessed = _plain(gold, predicted)
    return _ratio(sum(one == other for one, other in zip(true, guessed, strict=True)), len(true))


def f1(gold: Labels, predicted: Labels, positive: Hashable = 1) -> float:
    """F1 of one class: the harmonic mean of its precision and its recall."""
    true, guessed = _plain(gold, predicted)
    correct = sum(one == other == positive for one, other in zip(true, guessed, strict=True))
    return _f1(correct, true.count(positive), guessed.count(positive))


def macro_f1(gold: Labels, predicted: Labels) -> float:
    """The mean F1 of all classes that occur, rare ones counting as much as frequent ones.

    Multi-hot rows of 0 and 1 have as many classes as columns, including those that never occur.
    """
    classes, correct, true, guessed = _counts(gold, predicted)
    return _ratio(sum(_f1(correct[label], true[label], guessed[label]) for label in classes), len(classes))


def micro_f1(gold: Labels, predicted: Labels) -> float:
    """F1 over all labels of all examples together. With one label for each example it is the accuracy."""
    _, correct, true, guessed = _counts(gold, predicted)
    return _f1(correct.total(), true.total(), guessed.total())


def matthews(gold: Labels, predicted: Labels) -> float:
    """Matthews correlation, which is 0 for a constant prediction. Matthews 1975; Gorodkin 2004."""
    true_labels, labels = _plain(gold, predicted)
    true, guessed, count = Counter(true_labels), Counter(labels), len(true_labels)
    correct = sum(one == other for one, other in zip(true_labels, labels, strict=True))
    # In integers: no rounding before the root.
    covariance = correct * count - sum(true[label] * guessed[label] for label in true)
    variances = count**2 - sum(number**2 for number in true.values())
    variances *= count**2 - sum(number**2 for number in guessed.values())
    return covariance / math.sqrt(variances) if variances else 0.0


def classification_scores(gold: Sequence[int], predicted: Sequence[int], classes: int) -> dict[str, float]:
    """All scores of classes by number; a prediction that is the number of no class is wrong, and of no class."""
    occurring = sorted({*gold, *predicted} & set(range(classes)))
    scores = {
        "accuracy": accuracy(gold, predicted),
        "macro_f1": _ratio(sum(f1(gold, predicted, label) for label in occurring), len(occurring)),
    }
    if classes == 2:
        scores |= {"f1": f1(gold, predicted), "matthews": matthews(gold, predicted)}
        scores["accuracy_f1"] = (scores["accuracy"] + scores["f1"]) / 2  # as GLUE scores MRPC and QQP
    return scores


def pearson(gold: Labels, predicted: Labels) -> float:
    """Pearson's (linear) correlation."""
    true, guessed = _numbers(gold, predicted)
    if len(true) == 0 or np.ptp(true) == 0 or np.ptp(guessed) == 0:
        return 0.0
    return float(np.clip(_standardised(true) @ _standardised(guessed), -1.0, 1.0))


def spearman(gold: Labels, predicted: Labels) -> float:
    """Spearman's rank correlation; equal numbers share the mean of their ranks."""
    true, guessed = _numbers(gold, predicted)
    if np.isnan(true).any() or np.isnan(guessed).any():
        return math.nan  # NaN has no rank
    return pearson(_ranks(true), _ranks(guessed))


def _plain(gold: Labels, predicted: Labels) -> tuple[list[Any], list[Any]]:
    """Both as lists of plain values, one for each example."""
    if len(gold) != len(predicted):
        raise ValueError(f"there are {len(gold)} labels, but {len(predicted)} predictions")
    # The elements of an array or a tensor are no plain values: equal tensors do not even hash alike.
    lists = ([part.tolist() if hasattr(part, "tolist") else part for part in side] for side in (gold, predicted))
    true, guessed = lists
    return true, guessed


def _counts(gold: Labels, predicted: Labels) -> tuple[list[Hashable], Counter, Counter, Counter]:
    """The classes; and for each the number of correct predictions, of true labels and of predictions."""
    correct: Counter[Hashable] = Counter()
    true: Counter[Hashable] = Counter()
    guessed: Counter[Hashable] = Counter()
    for one, other in zip(*_plain(gold, predicted), strict=True):
        true_labels, labels = _label_set(one), _label_set(other)
        correct.update(true_labels & labels)
        true.update(true_labels)
        guessed.update(labels)
    multi_hot = getattr(gold, "ndim", 1) == 2
    return list(range(np.shape(gold)[1])) if multi_hot else list(true | guessed), correct, true, guessed


def _label_set(row: Any) -> set[Hashable]:
    """The labels of an example, in any of the forms of `Labels`."""
    if isinstance(row, set | frozenset | tuple):
        return set(row)
    if isinstance(row, list):  # a multi-hot row of an array
        if not all(number in (0, 1) for number in row):
            raise ValueError(f"a row of several labels holds 0 and 1, or is a set or a tuple, and not {row}")
        return {index for index, number in enumerate(row) if number}
    return {row}


def _numbers(gold: Labels, predicted: Labels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    true, guessed = _plain(gold, predicted)
    return np.array(true, np.float64), np.array(guessed, np.float64)


def _standardised(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers that are not all equal, centred on their mean, as a vector of length one."""
    numbers = (numbers - numbers.min()) / np.ptp(numbers)  # so that no square overflows or underflows
    numbers = numbers - numbers.mean()
    return numbers / np.linalg.norm(numbers)


def _ranks(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _f1(correct: int, true: int, predicted: int) -> float:
    return _ratio(2 * correct, true + predicted)


def _ratio(part: float, whole: int) -> float:
    return part / whole if whole else 0.0
