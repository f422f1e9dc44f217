"""Every score is that of scikit-learn or scipy, and 0 where theirs is undefined."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics
from sklearn.preprocessing import MultiLabelBinarizer

from bertsmith.metrics import scores

quick = settings(deadline=None, max_examples=60)


def pairs(values: st.SearchStrategy, least: int = 1) -> st.SearchStrategy:
    """Two lists of one length."""
    return st.lists(st.tuples(values, values), min_size=least, max_size=40).map(
        lambda rows: tuple(map(list, zip(*rows, strict=True)))
    )


NUMBERS = st.floats(-1e6, 1e6, width=32)
WORDS = st.sampled_from(["entailment", "neutral", "contradiction", "none"])
SETS = st.frozensets(st.sampled_from("abcde"), max_size=4)


@pytest.mark.slow
@quick
@given(pairs(WORDS))
def test_classes_are_scored_as_by_scikit_learn(both):
    gold, guessed = both
    assert scores.accuracy(gold, guessed) == pytest.approx(metrics.accuracy_score(gold, guessed))
    assert scores.macro_f1(gold, guessed) == pytest.approx(
        metrics.f1_score(gold, guessed, average="macro", zero_division=0)
    )
    assert scores.micro_f1(gold, guessed) == pytest.approx(metrics.f1_score(gold, guessed, average="micro"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a single class
        expected = metrics.matthews_corrcoef(gold, guessed)
    assert scores.matthews(gold, guessed) == pytest.approx(expected, abs=1e-12)


@quick
@given(pairs(st.integers(0, 1)))
def test_two_classes_are_scored_as_by_scikit_learn(both):
    gold, guessed = both
    assert scores.f1(gold, guessed) == pytest.approx(metrics.f1_score(gold, guessed, zero_division=0))
    assert scores.f1(gold, guessed, positive=0) == pytest.approx(
        metrics.f1_score(gold, guessed, pos_label=0, zero_division=0)
    )
    named = [["no", "yes"][label] for label in gold], [["no", "yes"][label] for label in guessed]
    assert scores.f1(*named, positive="yes") == scores.f1(gold, guessed)
    assert scores.matthews(*named) == scores.matthews(gold, guessed)


@pytest.mark.slow
@quick
@given(pairs(SETS))
@example(([frozenset()], [frozenset()]))
def test_several_labels_at_once_are_scored_as_by_scikit_learn(both):
    gold, guessed = both
    columns = MultiLabelBinarizer().fit(gold + guessed)
    assume(len(columns.classes_) != 1)  # one column alone would be taken for classes there
    ours = columns.transform(gold), columns.transform(guessed)
    for score, average in ((scores.micro_f1, "micro"), (scores.macro_f1, "macro")):
        expected = metrics.f1_score(*ours, average=average, zero_division=0) if len(columns.classes_) else 0.0
        assert score(gold, guessed) == pytest.approx(expected)
        assert score(*ours) == pytest.approx(expected)
        assert score([tuple(row) for row in gold], guessed) == pytest.approx(expected)


def test_a_column_that_never_occurs_counts_in_rows_of_0_and_1():
    gold, guessed = np.array([[1, 0, 0], [0, 1, 0]]), np.array([[1, 0, 0], [0, 0, 0]])
    assert scores.macro_f1(gold, guessed) == pytest.approx(1 / 3)
    assert scores.macro_f1(gold, guessed) == metrics.f1_score(gold, guessed, average="macro", zero_division=0)
    assert scores.macro_f1([{0}, {1}], [{0}, set()]) == pytest.approx(1 / 2)
    assert scores.micro_f1(gold, guessed) == pytest.approx(2 / 3)


@quick
@given(pairs(NUMBERS, least=2))
def test_correlations_are_those_of_scipy(both):
    gold, guessed = both
    assume(len(set(gold)) > 1)
    assume(len(set(guessed)) > 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of nearly equal numbers
        line, order = stats.pearsonr(gold, guessed).statistic, stats.spearmanr(gold, guessed).statistic
    assert scores.spearman(gold, guessed) == pytest.approx(order, abs=1e-9)
    near = any(np.std(side) < 1e-9 * np.abs(side).max() for side in both)
    assert near or scores.pearson(gold, guessed) == pytest.approx(line, abs=1e-6)


@quick
@given(pairs(st.integers(0, 4), least=2))
def test_ties_share_the_mean_of_their_ranks(both):
    gold, guessed = both
    assume(len(set(gold)) > 1)
    assume(len(set(guessed)) > 1)
    assert scores.spearman(gold, guessed) == pytest.approx(stats.spearmanr(gold, guessed).statistic, abs=1e-9)


def test_no_number_is_too_large_or_too_small_to_correlate():
    for factor in (1e-300, 1e300):
        assert scores.pearson([factor, 2 * factor, 4 * factor], [1, 2, 4]) == pytest.approx(1)
    assert scores.pearson([0.0, 5e-324], [1, 2]) == pytest.approx(1)


@pytest.mark.parametrize("score", [scores.pearson, scores.spearman])
def test_a_constant_correlates_with_nothing(score):
    assert score([0.1] * 3, [1, 2, 3]) == 0.0
    assert score([1, 2, 3], [0.1] * 3) == 0.0
    assert score([1.0], [2.0]) == 0.0
    assert score([], []) == 0.0


@pytest.mark.parametrize("score", [scores.pearson, scores.spearman])
def test_a_prediction_of_nan_is_not_hidden(score):
    assert math.isnan(score([1, 2, 3], [1, math.nan, 3]))


def test_predicting_one_class_has_no_matthews_correlation():
    assert scores.matthews([0, 1, 1], [1, 1, 1]) == 0.0
    assert scores.matthews([1, 1], [1, 1]) == 0.0


@pytest.mark.parametrize("score", [scores.accuracy, scores.f1, scores.macro_f1, scores.micro_f1, scores.matthews])
def test_scores_of_no_examples_are_zero(score):
    assert score([], []) == 0.0


@pytest.mark.parametrize("score", [scores.accuracy, scores.f1, scores.macro_f1, scores.micro_f1, scores.matthews])
def test_arrays_and_tensors_are_scored_as_lists_are(score):
    gold, guessed = [0, 1, 1, 2, 1, 0], [0, 1, 2, 2, 1, 1]
    assert 0 < score(gold, guessed) < 1
    assert score(np.array(gold), np.array(guessed)) == score(gold, guessed)
    assert score(list(torch.tensor(gold)), list(torch.tensor(guessed))) == score(gold, guessed)


@pytest.mark.parametrize("score", [scores.accuracy, scores.micro_f1, scores.matthews, scores.pearson])
def test_labels_and_predictions_must_be_as_many(score):
    with pytest.raises(ValueError, match="there are 2 labels, but 1 predictions"):
        score([0, 1], [0])


def test_rows_of_several_labels_must_be_clear():
    with pytest.raises(ValueError, match=r"holds 0 and 1, or is a set or a tuple, and not \[3, 4\]"):
        scores.micro_f1([[3, 4]], [[3, 4]])
