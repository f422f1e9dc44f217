"""Polar Express: the polynomials that bring singular values to one in the fewest matrix products.

Amsel et al. 2025, "The Polar Express: Optimal Matrix Sign Methods and Their Application to the Muon Algorithm". Every
iteration has its own polynomial, the best of its degree for the range that the values are in by then.
"""

import numpy as np

Quintic = tuple[float, float, float]  # p(s) = a s + b s^3 + c s^5

SAFETY = 1.01  # a value may exceed its range by this factor, since products in bfloat16 are rounded
CUSHION = 0.02407327424182761  # the smallest value counts as at least this share of the largest (section 4.4)
PUBLISHED_STEPS, PUBLISHED_SMALLEST = 5, 1e-3


def polar_express(steps: int) -> tuple[Quintic, ...]:
    """The polynomials of this many iterations, with the safety factor.

    Five are those of the paper: values from 1/1000 of the norm on end between 0.84 and 1.13. One iteration more or less
    brings values of a quarter or of four times that size into nearly the same range.
    """
    smallest = PUBLISHED_SMALLEST * 4.0 ** (PUBLISHED_STEPS - steps)
    return tuple((a / SAFETY, b / SAFETY**3, c / SAFETY**5) for a, b, c in optimal_quintics(steps, smallest))


def optimal_quintics(steps: int, smallest: float) -> list[Quintic]:
    """The polynomials for singular values from `smallest` to 1, in exact arithmetic. Algorithm 1 of the paper."""
    low, high = smallest, 1.0
    found = []
    for _ in range(steps):
        a, b, c = _best_quintic(max(low, CUSHION * high), high)
        # With a cushion the values are not centred at one any more.
        centre = (evaluate((a, b, c), low) + evaluate((a, b, c), high)) / 2
        found.append((a / centre, b / centre, c / centre))
        low = evaluate(found[-1], low)
        high = 2 - low
    return found


def evaluate(quintic: Quintic, value: float) -> float:
    a, b, c = quintic
    return a * value + b * value**3 + c * value**5


def _best_quintic(low: float, high: float) -> Quintic:
    """The odd polynomial of degree 5 with the smallest largest distance from 1 on a range, by Remez' algorithm."""
    if low >= (1 - 5e-6) * high:  # where the equations are singular: the limit is Newton and Schulz' own
        return 15 / 8 / high, -10 / 8 / high**3, 3 / 8 / high**5
    inner, error = np.array([(3 * low + high) / 4, (low + 3 * high) / 4]), np.inf
    while True:
        # The error alternates between its extremes: at both ends, and at two points between them.
        points = np.array([low, *inner, high])
        a, b, c, now = np.linalg.solve(np.stack([points, points**3, points**5, [1, -1, 1, -1]], 1), np.ones(4))
        if abs(now - error) < 1e-15:
            return float(a), float(b), float(c)
        error = now
        inner = np.sqrt((-3 * b + np.array([-1, 1]) * np.sqrt(9 * b * b - 20 * a * c)) / (10 * c))
