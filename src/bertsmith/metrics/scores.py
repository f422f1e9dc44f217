"""Scores: how well guesses agree with what people have said. Parts of one, not of a hundred.

What cannot be told, since there is nothing to tell it from, is 0.0 and no warning.
"""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Labels = Sequence[Any] | NDArray[Any]  # a label for each example; or several: sets, tuples, or rows of 0 and 1


def accuracy(gold: Labels, predicted: Labels) -> float:
    """The share of guesses that are right."""
    truth, guesses = _columns(gold, predicted)
    return _share(sum(one == other for one, other in zip(truth, guesses, strict=True)), len(truth))


def f1(gold: Labels, predicted: Labels, positive: Hashable = 1) -> float:
    """How well one class is found: the harmonic mean of its precision and its recall."""
    truth, guesses = _columns(gold, predicted)
    right = sum(one == other == positive for one, other in zip(truth, guesses, strict=True))
    return _harmonic(right, truth.count(positive), guesses.count(positive))


def macro_f1(gold: Labels, predicted: Labels) -> float:
    """The mean F1 of all classes that occur, rare ones counting as much as frequent ones.

    Rows of 0 and 1 have as many classes as columns, even such as never occur.
    """
    classes, right, true, given = _counts(gold, predicted)
    return _share(sum(_harmonic(right[label], true[label], given[label]) for label in classes), len(classes))


def micro_f1(gold: Labels, predicted: Labels) -> float:
    """F1 over all labels of all examples together. With one label for each example it is the accuracy."""
    _, right, true, given = _counts(gold, predicted)
    return _harmonic(right.total(), true.total(), given.total())


def matthews(gold: Labels, predicted: Labels) -> float:
    """Correlation between classes, which guessing one class alone cannot raise. Matthews 1975; Gorodkin 2004."""
    truth, guesses = _columns(gold, predicted)
    true, given, count = Counter(truth), Counter(guesses), len(truth)
    right = sum(one == other for one, other in zip(truth, guesses, strict=True))
    # Whole numbers of any size: nothing is rounded before the root.
    both = right * count - sum(true[label] * given[label] for label in true)
    spread = count**2 - sum(number**2 for number in true.values())
    spread *= count**2 - sum(number**2 for number in given.values())
    return both / math.sqrt(spread) if spread else 0.0


def classification_scores(gold: Sequence[int], predicted: Sequence[int], classes: int) -> dict[str, float]:
    """All that is told of so many classes by number; a guess that is no number of a class is wrong, and no class."""
    found = sorted({*gold, *predicted} & set(range(classes)))
    figures = {
        "accuracy": accuracy(gold, predicted),
        "macro_f1": _share(sum(f1(gold, predicted, one) for one in found), len(found)),
    }
    if classes == 2:
        figures |= {"f1": f1(gold, predicted), "matthews": matthews(gold, predicted)}
        figures["accuracy_f1"] = (figures["accuracy"] + figures["f1"]) / 2  # as GLUE scores MRPC and QQP
    return figures


def pearson(gold: Labels, predicted: Labels) -> float:
    """How close two series of numbers come to a straight line."""
    truth, guesses = _numbers(gold, predicted)
    if len(truth) == 0 or np.ptp(truth) == 0 or np.ptp(guesses) == 0:
        return 0.0
    truth, guesses = _unit(truth), _unit(guesses)
    return float(np.clip(truth @ guesses, -1.0, 1.0))


def spearman(gold: Labels, predicted: Labels) -> float:
    """How close two series of numbers come to one order; equal numbers share the mean of their ranks."""
    truth, guesses = _numbers(gold, predicted)
    if np.isnan(truth).any() or np.isnan(guesses).any():
        return math.nan  # what is no number has no rank
    return pearson(_ranks(truth), _ranks(guesses))


def _columns(gold: Labels, guessed: Labels) -> tuple[list[Any], list[Any]]:
    """Both as lists of plain values, one for each example."""
    if len(gold) != len(guessed):
        raise ValueError(f"there are {len(gold)} labels, but {len(guessed)} guesses")
    # The parts of an array or a tensor are no plain values: tensors that are equal do not even hash alike.
    truth, guesses = ([part.tolist() if hasattr(part, "tolist") else part for part in side] for side in (gold, guessed))
    return truth, guesses


def _counts(gold: Labels, guessed: Labels) -> tuple[list[Hashable], Counter, Counter, Counter]:
    """The classes; and how often each was guessed rightly, was true, and was guessed."""
    right: Counter[Hashable] = Counter()
    true: Counter[Hashable] = Counter()
    given: Counter[Hashable] = Counter()
    for one, other in zip(*_columns(gold, guessed), strict=True):
        truth, guess = _label_set(one), _label_set(other)
        right.update(truth & guess)
        true.update(truth)
        given.update(guess)
    wide = getattr(gold, "ndim", 1) == 2
    return list(range(np.shape(gold)[1])) if wide else list(true | given), right, true, given


def _label_set(row: Any) -> set[Hashable]:
    """The labels of an example, however they are written."""
    if isinstance(row, set | frozenset | tuple):
        return set(row)
    if isinstance(row, list):  # of an array
        if not all(number in (0, 1) for number in row):
            raise ValueError(f"a row of several labels holds 0 and 1, or is a set or a tuple, and not {row}")
        return {place for place, number in enumerate(row) if number}
    return {row}


def _numbers(gold: Labels, guessed: Labels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    truth, guesses = _columns(gold, guessed)
    return np.array(truth, np.float64), np.array(guesses, np.float64)


def _unit(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers that are not all equal, about their mean, as a vector of length one."""
    numbers = (numbers - numbers.min()) / np.ptp(numbers)  # so that no square is too large or too small
    numbers = numbers - numbers.mean()
    return numbers / np.linalg.norm(numbers)


def _ranks(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _harmonic(right: int, true: int, given: int) -> float:
    return _share(2 * right, true + given)


def _share(part: float, whole: int) -> float:
    return part / whole if whole else 0.0
