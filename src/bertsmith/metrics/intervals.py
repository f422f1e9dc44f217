"""Confidence intervals over random seeds, and of the difference between two groups of runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

LEVEL = 0.95  # the share of such intervals that contain the true mean
_SMALL = 1e-300  # instead of 0 in a denominator
_STEPS = 10_000  # enough for ten million degrees of freedom


@dataclass(frozen=True, kw_only=True)
class Interval:
    """The mean of several runs with its confidence interval. Printed as mean ± half the interval."""

    mean: float
    deviation: float  # the sample standard deviation of the runs, with n - 1 in the denominator
    low: float | None  # None for a single run
    high: float | None
    count: int

    def scaled(self, factor: float) -> "Interval":
        """The same in other units: 100 turns shares into per cent."""
        return Interval(
            mean=self.mean * factor,
            deviation=self.deviation * abs(factor),
            **_ends(self.low, self.high, factor),
            count=self.count,
        )

    def __format__(self, form: str) -> str:
        return _written(self.mean, self.high, form or "z.1f")

    def __str__(self) -> str:
        return format(self)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of two means, with its confidence interval."""

    mean: float
    low: float | None
    high: float | None

    @property
    def includes_zero(self) -> bool | None:
        """Whether the interval includes 0, so that the difference is not significant; None with too few runs."""
        return None if self.low is None or self.high is None else self.low <= 0 <= self.high

    def scaled(self, factor: float) -> "Difference":
        """The same in other units: 100 turns shares into per cent."""
        return Difference(mean=self.mean * factor, **_ends(self.low, self.high, factor))

    def __format__(self, form: str) -> str:
        return _written(self.mean, self.high, form or "+z.1f")

    def __str__(self) -> str:
        return format(self)


def confidence_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Student's interval of the mean. Student 1908."""
    if len(values) == 0:
        raise ValueError("an interval needs at least one value")
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, and {level} does not")
    numbers, count = [float(value) for value in values], len(values)
    if count == 1:
        return Interval(mean=numbers[0], deviation=0.0, low=None, high=None, count=1)
    if not all(map(math.isfinite, numbers)):  # a run that diverged shall be seen
        return Interval(mean=math.nan, deviation=math.nan, low=math.nan, high=math.nan, count=count)
    center = mean(numbers)
    deviation = stdev(numbers)
    half = student_quantile((1 + level) / 2, count - 1) * deviation / math.sqrt(count)
    return Interval(mean=center, deviation=deviation, low=center - half, high=center + half, count=count)


def difference(ours: Sequence[float], theirs: Sequence[float], level: float = LEVEL) -> Difference:
    """Welch's interval of our mean minus theirs: variances and numbers of runs may differ. Welch 1947."""
    one, other = confidence_interval(ours, level), confidence_interval(theirs, level)
    gap = one.mean - other.mean
    if one.count == 1 or other.count == 1:
        return Difference(mean=gap, low=None, high=None)
    variances = [side.deviation**2 / side.count for side in (one, other)]
    error = math.sqrt(sum(variances))
    if not error > 0:  # all runs of each group are equal, or one is not a number
        return Difference(mean=gap, low=gap, high=gap)
    shares = [variance / sum(variances) for variance in variances]
    freedom = 1 / sum(share**2 / (side.count - 1) for share, side in zip(shares, (one, other), strict=True))
    min_freedom = min(one.count, other.count) - 1  # rounding might go below this bound
    half = student_quantile((1 + level) / 2, max(freedom, min_freedom)) * error
    return Difference(mean=gap, low=gap - half, high=gap + half)


def student_quantile(probability: float, degrees_of_freedom: float) -> float:
    """The quantile of Student's t distribution with these degrees of freedom."""
    if not 0 < probability < 1:
        raise ValueError(f"a probability lies between 0 and 1, and {probability} does not")
    if not degrees_of_freedom >= 1:
        raise ValueError(f"{degrees_of_freedom} degrees of freedom are too few")
    if probability <= 0.5:
        return -student_quantile(1 - probability, degrees_of_freedom) if probability < 0.5 else 0.0
    tails = 2 * (1 - probability)  # both together
    low, high = 0.0, 1.0
    while _two_sided_tail(high, degrees_of_freedom) > tails:
        low, high = high, 2 * high
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _two_sided_tail(middle, degrees_of_freedom) > tails else (low, middle)
    return (low + high) / 2


def _two_sided_tail(bound: float, freedom: float) -> float:
    """The probability that the absolute value of Student's t exceeds the bound."""
    squares = freedom + bound * bound
    return _beta(freedom / 2, 0.5, freedom / squares, bound * bound / squares)


def _beta(first: float, second: float, share: float, rest: float) -> float:
    """The regularised incomplete beta function at `share`, which is 1 - `rest`. DLMF 8.17.22."""
    if share > (first + 1) / (first + second + 2):  # where the continued fraction converges slowly
        return 1 - _beta(second, first, rest, share)
    if share == 0:
        return 0.0
    scale = math.lgamma(first + second) - math.lgamma(first) - math.lgamma(second)
    power = math.exp(scale + first * math.log(share) + second * math.log(rest))
    return power / first / _fraction(first, second, share)


def _fraction(first: float, second: float, share: float) -> float:
    """The continued fraction 1 + c1 / (1 + c2 / (1 + ...)), by the ratios of successive convergents. Lentz 1976."""
    value = above = 1.0
    below = 0.0
    for step in range(1, _STEPS):
        half, odd = divmod(step, 2)
        if odd:
            part = -(first + half) * (first + second + half) / ((first + step - 1) * (first + step))
        else:
            part = half * (second - half) / ((first + step - 1) * (first + step))
        above = 1 + part * share / above or _SMALL
        below = 1 / (1 + part * share * below or _SMALL)
        value *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return value


def _ends(low: float | None, high: float | None, factor: float) -> dict[str, float | None]:
    """Both ends in other units, the lower one still first."""
    if low is None or high is None:
        return {"low": None, "high": None}
    return dict(zip(("low", "high"), sorted((low * factor, high * factor)), strict=True))


def _written(center: float, high: float | None, form: str) -> str:
    """Mean ± half the interval; the mean alone where there is none."""
    if high is None:
        return f"{center:{form}}"
    return f"{center:{form}} ± {high - center:{form.lstrip('+')}}"
