"""Calibration: whether predictions with a confidence of 80 % are right in 80 % of cases. Guo et al. 2017.

Temperature scaling divides all logits by a temperature before the softmax. It changes the confidence and never the
predicted class; the temperature is fitted on held-out examples, by their negative log-likelihood.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

BINS = 15  # Guo et al. 2017, section 5
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.1, 10.0
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

    The loss is convex in 1/T, so there is one minimum. Where every example is right the loss falls without end as T
    falls: then T stays 1.
    """
    if not len(gold) or (logits.argmax(-1) == gold).all():
        return 1.0
    low, high = math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE)

    def cost(log_temperature: float) -> float:
        return negative_log_likelihood(logits, gold, math.exp(log_temperature))

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
    exponentials = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))


def reliability_bins(
    confidence: Float[np.ndarray, " N"], correct: Bool[np.ndarray, " N"], bins: int = BINS
) -> list[dict[str, Any]]:
    """The reliability diagram: for each bin of confidence the count, the mean confidence and the accuracy."""
    index = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)  # (low, high], as in the paper
    counts = np.bincount(index, minlength=bins)
    confidences = np.bincount(index, confidence, minlength=bins)
    corrects = np.bincount(index, correct.astype(np.float64), minlength=bins)
    return [
        {
            "low": number / bins,
            "high": (number + 1) / bins,
            "count": int(counts[number]),
            "confidence": float(confidences[number] / counts[number]) if counts[number] else None,
            "accuracy": float(corrects[number] / counts[number]) if counts[number] else None,
        }
        for number in range(bins)
    ]


def expected_calibration_error(bins: list[dict[str, Any]]) -> float:
    """Expected calibration error (ECE): the gap between confidence and accuracy, weighted by the count of each bin."""
    total = sum(part["count"] for part in bins)
    gaps = (part["count"] * abs(part["confidence"] - part["accuracy"]) for part in bins if part["count"])
    return sum(gaps) / total if total else 0.0


def calibration(
    logits: Float[np.ndarray, "N C"], gold: Int[np.ndarray, " N"], temperature: float | None = None
) -> dict[str, Any]:
    """Calibration before and after temperature scaling; None fits the temperature on these examples."""
    used = fit_temperature(logits, gold) if temperature is None else temperature
    correct = logits.argmax(-1) == gold
    before, after = (reliability_bins(probabilities(logits, scale).max(-1), correct) for scale in (1.0, used))
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
