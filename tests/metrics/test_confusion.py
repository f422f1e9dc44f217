"""Class by class, and the confusion matrix: the same numbers as scikit-learn's, from counts alone."""

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    matthews_corrcoef,
    mean_absolute_error,
    precision_recall_fscore_support,
    root_mean_squared_error,
)

from bertsmith.metrics.confusion import OTHERS, ConfusionMatrix, averages
from bertsmith.tasks.value_findings import regression_errors

LABELS = ("no", "so-so", "yes", "never")


def drawn(count: int, seed: int, labels: tuple[str, ...] = LABELS) -> tuple[list[str], list[str]]:
    dice = np.random.default_rng(seed)
    weights = np.arange(1, len(labels) + 1) / sum(range(1, len(labels) + 1))
    gold, said = (dice.choice(labels, count, p=one).tolist() for one in (weights, weights[::-1]))
    return gold, [one if dice.random() < 0.4 else other for one, other in zip(gold, said, strict=True)]


@pytest.mark.parametrize("count", [3, 7, 500])
def test_scores_class_by_class_are_those_of_scikit_learn(count: int) -> None:
    gold, said = drawn(count, count)
    made = ConfusionMatrix(LABELS)
    for start in range(0, count, 64):  # in blocks, as a long file comes
        made.add(zip(gold[start : start + 64], said[start : start + 64], strict=True))
    rows = made.scores()
    names = [row.label for row in rows]
    theirs = precision_recall_fscore_support(gold, said, labels=names, zero_division=0)
    for place, figure in enumerate(("precision", "recall", "f1", "support")):
        assert [getattr(row, figure) for row in rows] == pytest.approx(theirs[place].tolist()), figure
    for average, mean in averages(rows).items():
        whole = precision_recall_fscore_support(gold, said, average=average, zero_division=0)
        assert [mean[name] for name in ("precision", "recall", "f1")] == pytest.approx(list(whole[:3]))
    labels, counts = made.matrix()
    assert counts == confusion_matrix(gold, said, labels=labels).tolist()
    assert made.metrics()["accuracy"] == pytest.approx(accuracy_score(gold, said))
    assert made.metrics()["macro_f1"] == pytest.approx(f1_score(gold, said, average="macro"))


def test_two_classes_also_have_the_f1_of_the_second_and_matthews_correlation() -> None:
    gold, said = drawn(200, 1, ("bark", "purr"))
    made = ConfusionMatrix(("bark", "purr"))
    made.add(zip(gold, said, strict=True))
    figures = made.metrics()
    assert figures["f1"] == pytest.approx(f1_score(gold, said, pos_label="purr"))
    assert figures["matthews"] == pytest.approx(matthews_corrcoef(gold, said))


def test_of_many_classes_the_largest_are_shown_and_the_others_are_one() -> None:
    labels = tuple(f"class {number:03d}" for number in range(50))
    made = ConfusionMatrix(labels)
    made.add((label, labels[0]) for number, label in enumerate(labels) for _ in range(50 - number))
    shown, counts = made.matrix(max_classes=30)
    assert shown == [*labels[:30], OTHERS]
    assert sum(map(sum, counts)) == made.total
    assert counts[-1][0] == sum(range(1, 21))


def test_the_majority_class_is_predicted_for_the_same_examples() -> None:
    made = ConfusionMatrix(("a", "b"))
    made.add([("a", "b"), ("a", "a"), ("b", "b")])
    assert made.constant_baseline("a").metrics()["accuracy"] == pytest.approx(2 / 3)
    assert made.constant_baseline("c").metrics()["accuracy"] == 0.0


def test_errors_of_numbers_are_those_of_scikit_learn() -> None:
    dice = np.random.default_rng(0)
    true, said = dice.normal(size=100), dice.normal(size=100)
    found = regression_errors(true, said)
    assert found["mae"] == pytest.approx(mean_absolute_error(true, said))
    assert found["rmse"] == pytest.approx(root_mean_squared_error(true, said))
