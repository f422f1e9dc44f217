"""How sure a model may be believed: the expected calibration error by hand, and a temperature that never harms."""

import numpy as np
import pytest

from bertsmith.metrics.calibration import (
    calibration,
    expected_calibration_error,
    fit_temperature,
    negative_log_likelihood,
    probabilities,
    reliability_bins,
)


def test_the_expected_calibration_error_is_the_one_computed_by_hand() -> None:
    # Two bins of four: (0.25, 0.5] holds 0.3 and 0.5, one of them right; (0.75, 1] holds 0.8, 0.9, 1.0, all right.
    sure, right = np.array([0.3, 0.5, 0.8, 0.9, 1.0]), np.array([True, False, True, True, True])
    bins = reliability_bins(sure, right, bins=4)
    assert [part["count"] for part in bins] == [0, 2, 0, 3]
    assert bins[1]["accuracy"] == 0.5
    assert expected_calibration_error(bins) == pytest.approx(2 / 5 * abs(0.4 - 0.5) + 3 / 5 * abs(0.9 - 1.0))


def test_confidences_of_zero_and_one_have_their_bins() -> None:
    bins = reliability_bins(np.array([0.0, 1.0]), np.array([False, True]), bins=10)
    assert (bins[0]["count"], bins[-1]["count"]) == (1, 1)
    assert expected_calibration_error(bins) == 0.0
    assert expected_calibration_error(reliability_bins(np.array([]), np.array([], bool))) == 0.0


@pytest.mark.parametrize("scale", [0.2, 1.0, 6.0])
def test_a_temperature_never_makes_the_likelihood_worse_and_finds_the_one_that_was_there(scale: float) -> None:
    dice = np.random.default_rng(int(10 * scale))
    true = dice.normal(size=(4000, 3)) * 1.5
    chances = probabilities(true, 1.0)
    gold = (chances.cumsum(-1) > dice.random((4000, 1))).argmax(-1)
    found = fit_temperature(true * scale, gold)
    before, after = (negative_log_likelihood(true * scale, gold, one) for one in (1.0, found))
    assert after <= before
    assert found == pytest.approx(scale, rel=0.1)
    nearby = [negative_log_likelihood(true * scale, gold, found * one) for one in (0.97, 1.03)]
    assert after <= min(nearby)


def test_with_few_examples_the_likelihood_is_not_worse_either() -> None:
    dice = np.random.default_rng(0)
    for count in range(1, 12):
        logits, gold = dice.normal(size=(count, 4)), dice.integers(0, 4, count)
        found = fit_temperature(logits, gold)
        assert negative_log_likelihood(logits, gold, found) <= negative_log_likelihood(logits, gold)


def test_where_every_example_is_right_there_is_nothing_to_fit() -> None:
    assert fit_temperature(np.eye(3), np.arange(3)) == 1.0
    assert fit_temperature(np.zeros((0, 3)), np.zeros(0, np.int64)) == 1.0


def test_a_temperature_that_is_known_is_taken_and_an_overconfident_model_is_mended() -> None:
    dice = np.random.default_rng(1)
    true = dice.normal(size=(3000, 2))
    gold = (dice.random(3000) < probabilities(true, 1.0)[:, 1]).astype(np.int64)
    found = calibration(true * 5, gold, 5.0)
    assert found["temperature"] == 5.0
    assert found["error_after"] < 0.05 < found["error_before"]
    assert sum(part["count"] for part in found["after"]) == 3000
