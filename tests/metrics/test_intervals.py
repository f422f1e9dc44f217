"""Intervals are those of scipy."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from bertsmith.metrics.intervals import Interval, confidence_interval, difference, student_quantile

quick = settings(deadline=None, max_examples=50)
VALUES = st.lists(st.integers(0, 1000).map(lambda number: number / 1000), min_size=2, max_size=12)


@pytest.mark.parametrize("probability", [0.75, 0.975, 0.9995])
def test_quantiles_are_those_of_student(probability):
    freedoms = range(1, 201)
    found = [student_quantile(probability, freedom) for freedom in freedoms]
    assert found == pytest.approx(stats.t.ppf(probability, freedoms), abs=1e-6, rel=1e-9)


@quick
@given(st.floats(0.001, 0.999), st.floats(1, 1e5))
def test_quantiles_are_those_of_student_for_any_freedom(probability, freedom):
    assert student_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), abs=1e-6)
    assert student_quantile(1 - probability, freedom) == pytest.approx(
        -student_quantile(probability, freedom), abs=1e-9
    )


def test_quantiles_far_out_and_of_great_freedom_are_found():
    assert student_quantile(1 - 1e-12, 1) == pytest.approx(stats.t.ppf(1 - 1e-12, 1), rel=1e-9)
    assert student_quantile(0.975, 1e7) == pytest.approx(stats.norm.ppf(0.975), abs=1e-6)
    assert student_quantile(0.5, 3) == 0


@quick
@given(VALUES, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_an_interval_is_that_of_student(values, level):
    assume(len(set(values)) > 1)
    found = confidence_interval(values, level)
    assert found.count == len(values)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.deviation == pytest.approx(np.std(values, ddof=1))
    expected = stats.t.interval(level, len(values) - 1, np.mean(values), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-9)


@quick
@given(VALUES, VALUES, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_a_difference_is_that_of_welch(ours, theirs, level):
    assume(len(set(ours)) > 1)
    assume(len(set(theirs)) > 1)
    found = difference(ours, theirs, level)
    test = stats.ttest_ind(ours, theirs, equal_var=False)
    expected = test.confidence_interval(level)
    assert found.mean == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert math.isclose(test.pvalue, 1 - level, abs_tol=1e-6) or found.includes_zero == (test.pvalue > 1 - level)


def test_about_so_many_intervals_hold_the_true_mean_as_they_say():
    runs = np.random.default_rng(7).normal(0.9, 0.01, (150, 5)).tolist()
    held = sum(found.low <= 0.9 <= found.high for found in map(confidence_interval, runs))
    assert 134 <= held < 150  # 142.5, give or take three deviations


def test_one_run_says_nothing_about_others():
    assert confidence_interval([0.912]) == Interval(mean=0.912, deviation=0.0, low=None, high=None, count=1)
    assert str(confidence_interval([0.912]).scaled(100)) == "91.2"
    found = difference([0.912], [0.9, 0.91])
    assert (found.low, found.high, found.includes_zero) == (None, None, None)
    assert str(found.scaled(100)) == "+0.7"


def test_an_interval_reads_as_mean_and_half_of_it():
    found = confidence_interval([0.910, 0.914, 0.912]).scaled(100)
    half = stats.t.ppf(0.975, 2) * 0.2 / math.sqrt(3)
    assert (found.mean, found.deviation, found.count) == pytest.approx((91.2, 0.2, 3))
    assert str(found) == f"91.2 ± {half:.1f}" == "91.2 ± 0.5"
    assert f"{found:.3f}" == f"91.200 ± {half:.3f}"
    assert str(confidence_interval([-0.001, 0.0])) == "0.0 ± 0.0"  # never -0.0


def test_a_difference_reads_with_its_sign():
    found = difference([0.91, 0.92], [0.90, 0.91])
    assert str(found.scaled(100)) == "+1.0 ± 3.0"
    assert str(difference([0.90, 0.91], [0.91, 0.92]).scaled(100)) == "-1.0 ± 3.0"
    assert f"{found:+.3f}" == "+0.010 ± 0.030"


def test_losses_scaled_by_a_negative_factor_keep_their_ends_in_order():
    found = confidence_interval([0.1, 0.2]).scaled(-1)
    assert found.low < found.mean < found.high
    assert found.deviation > 0


def test_runs_that_are_all_alike_leave_no_room():
    found = confidence_interval([0.1] * 3)
    assert (found.mean, found.deviation, found.low, found.high) == (0.1, 0, 0.1, 0.1)
    assert difference([0.1] * 3, [0.1] * 7).includes_zero is True
    assert difference([0.1] * 3, [0.2] * 3).includes_zero is False


def test_two_groups_far_apart_do_not_agree():
    assert difference([0.90, 0.91, 0.92], [0.80, 0.81, 0.82]).includes_zero is False
    assert difference([0.90, 0.91, 0.92], [0.90, 0.92, 0.92]).includes_zero is True


def test_a_run_that_went_astray_is_seen():
    found = confidence_interval([0.9, math.nan, 0.91])
    assert math.isnan(found.mean)
    assert str(found) == "nan ± nan"
    assert difference([0.9, math.inf], [0.9, 0.91]).includes_zero is False


def test_impossible_questions_are_refused():
    with pytest.raises(ValueError, match="an interval needs at least one value"):
        confidence_interval([])
    with pytest.raises(ValueError, match=r"a level lies between 0 and 1, and 95 does not"):
        confidence_interval([1, 2], level=95)
    with pytest.raises(ValueError, match=r"a probability lies between 0 and 1, and 1 does not"):
        student_quantile(1, 3)
    with pytest.raises(ValueError, match="nan degrees of freedom are too few"):
        student_quantile(0.9, math.nan)
