"""Calibration: whether a model that says 80 % is right in 80 % of such cases. Guo et al. 2017.

The temperature divides all logits before the softmax. It changes how sure a model is and never what it says; it is
fitted on examples that were not trained on, by their negative log-likelihood.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

BINS = 15  # Guo et al. 2017, section 5
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.1, 10.0  # temperatures that are tried
_GOLDEN = (math.sqrt(5) - 1) / 2


def negative_log_likelihood(
    logits: Float[np.ndarray, "N C"], gold: Int[np.ndarray, " N"], temperature: float = 1.0
) -> float:
    """The mean of -log p(true class)."""
    scaled = logits / temperature
    scaled = scaled - scaled.max(-1, keepdims=True)
    log_sum = np.log(np.exp(scaled).sum(-1))
    return float((log_sum - scaled[np.arange(len(gold)), gold]).mean()) if len(gold) else 0.0


def fit_temperature(logits: Float[np.ndarray, "N C"], gold: Int[np.ndarray, " N"]) -> float:
    """The temperature of the lowest negative log-likelihood, by golden-section search.

    The likelihood is convex in 1/T, so there is one valley. Where every example is right, any colder model would be
    likelier, without end: then it stays 1.
    """
    if not len(gold) or (logits.argmax(-1) == gold).all():
        return 1.0
    low, high = math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE)

    def cost(place: float) -> float:
        return negative_log_likelihood(logits, gold, math.exp(place))

    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = cost(left), cost(right)
    while high - low > 1e-4:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = cost(right)
    best = (low + high) / 2
    return math.exp(best) if cost(best) < cost(0.0) else 1.0


def probabilities(logits: Float[np.ndarray, "N C"], temperature: float) -> Float[np.ndarray, "N C"]:
    """The softmax at a temperature."""
    raised = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def reliability_bins(
    confidence: Float[np.ndarray, " N"], correct: Bool[np.ndarray, " N"], bins: int = BINS
) -> list[dict[str, Any]]:
    """For each bin of confidence how many fall into it, how sure they are in the mean, and how many are right."""
    number = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)  # (low, high], as in the paper
    counts = np.bincount(number, minlength=bins)
    sure = np.bincount(number, confidence, minlength=bins)
    good = np.bincount(number, correct.astype(np.float64), minlength=bins)
    return [
        {
            "low": at / bins,
            "high": (at + 1) / bins,
            "count": int(counts[at]),
            "confidence": float(sure[at] / counts[at]) if counts[at] else None,
            "accuracy": float(good[at] / counts[at]) if counts[at] else None,
        }
        for at in range(bins)
    ]


def expected_calibration_error(bins: list[dict[str, Any]]) -> float:
    """Expected calibration error: the gap between confidence and accuracy, weighted by how many are in each bin."""
    total = sum(part["count"] for part in bins)
    gaps = (part["count"] * abs(part["confidence"] - part["accuracy"]) for part in bins if part["count"])
    return sum(gaps) / total if total else 0.0


def calibration(
    logits: Float[np.ndarray, "N C"], gold: Int[np.ndarray, " N"], temperature: float | None = None
) -> dict[str, Any]:
    """Calibration before and after the temperature; None is fitted to these very examples."""
    used = fit_temperature(logits, gold) if temperature is None else temperature
    right = logits.argmax(-1) == gold
    before, after = (reliability_bins(probabilities(logits, one).max(-1), right) for one in (1.0, used))
    return {
        "examples": len(gold),
        "temperature": used,
        "fitted": "on these examples" if temperature is None else "on the dev set of the training",
        "error_before": expected_calibration_error(before),
        "error_after": expected_calibration_error(after),
        "loss_before": negative_log_likelihood(logits, gold),
        "loss_after": negative_log_likelihood(logits, gold, used),
        "before": before,
        "after": after,
    }
