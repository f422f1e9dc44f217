"""Line charts as inline SVG, such as learning curves over the steps of a run."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from bertsmith.insight.page import render

Point = tuple[float, float]
Formatter = Callable[[float], str]  # a value as an axis or a legend writes it

WIDTH, WIDE, HEIGHT = 520, 720, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 14, 30
MAX_POINTS = 320  # points of a line; more cannot be seen and would make the page heavy
SMOOTHING = 40  # the running mean spans a fortieth of the line to either side
COLOURS = 8  # colours of the page's style, used in turn
UNITS = ((1e18, " E"), (1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"))


@dataclass(frozen=True)
class Series:
    """One line: its name and its points, from left to right.

    A noisy line is drawn faint, with its running mean strong on top; a sparse one has a dot at every point.
    """

    name: str
    points: Sequence[Point]
    noisy: bool = False

    @cached_property
    def main_line(self) -> list[Point]:
        """The points of the strong line: the running mean of noisy values."""
        return downsample(smooth(self.points, len(self.points) // SMOOTHING) if self.noisy else self.points)


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic scale: from values to pixels."""

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool = False

    def position(self, value: float) -> float:
        low, high, value = (self._scaled(number) for number in (self.low, self.high, value))
        return self.start + (value - low) / ((high - low) or 1.0) * (self.stop - self.start)

    def pixel(self, value: float) -> str:
        return f"{self.position(value):.1f}"

    def labels(self, label: Formatter = "{:g}".format) -> list[tuple[str, str]]:
        """The position and the label of each tick."""
        return [(self.pixel(tick), label(tick)) for tick in self.ticks()]

    def ticks(self, wanted: int = 5) -> list[float]:
        """About `wanted` ticks at round values: 1, 2 and 5 times powers of ten."""
        if not self.logarithmic:
            step = _round_step((self.high - self.low) / wanted)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [index * step for index in range(first, last + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        digits = (1, 2, 5) if self.high < 1000 * self.low else (1,)
        found = [digit * 10.0**decade for decade in decades for digit in digits]
        return [tick for tick in found if self.low <= tick <= self.high]

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value


def format_number(value: float) -> str:
    """A number to three digits, as a person writes it: 5.00e-4, 4.80, 1,250, 42.1 k, 3.10 M."""
    size = abs(value)
    if 1000 <= size < 10_000 or not value:
        return f"{value:,.0f}"
    for unit, name in UNITS:
        if size >= max(unit, 1e4):
            return f"{value / unit:.{_decimals(size / unit)}f}{name}"
    if size < 0.01:
        digits, _, exponent = f"{value:.2e}".partition("e")
        return f"{digits}e{int(exponent)}"
    return f"{value:.{_decimals(size)}f}"


def format_percent(value: float) -> str:
    return f"{value:.1%}"


def format_integer(value: float) -> str:
    return f"{value:,.0f}"


@dataclass(frozen=True)
class HorizontalAxis:
    """The horizontal axis: its name, and the formats of its ticks and of single values."""

    name: str
    tick_label: Formatter
    value_label: Formatter
    unit: str = ""  # where a description needs one that the name says already


STEP_AXIS = HorizontalAxis("step", format_number, format_integer, " steps")


def points_of(records: Sequence[Mapping[str, Any]], *keys: str) -> list[Point]:
    """One figure of every record that has it, over the steps; what is not a number is left out."""
    found = []
    for record in records:
        value: Any = record
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        step: Any = record.get("step")
        if is_number(step) and is_number(value):
            found.append((float(step), float(value)))
    return sorted(found)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def smooth(points: Sequence[Point], radius: int) -> list[Point]:
    """The centred running mean over `radius` neighbours to either side."""
    sums = [0.0]
    for _, value in points:
        sums.append(sums[-1] + value)
    result = []
    for index, (place, _) in enumerate(points):
        first, last = max(index - radius, 0), min(index + radius + 1, len(points))
        result.append((place, (sums[last] - sums[first]) / (last - first)))
    return result


def downsample(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """At most `limit` of the points, evenly spaced, with the first and the last."""
    if len(points) <= limit:
        return list(points)
    step = (len(points) - 1) / (limit - 1)
    return [points[round(index * step)] for index in range(limit)]


def chart(
    title: str,
    series: Sequence[Series],
    *,
    format_value: Formatter = format_number,
    reference: tuple[str, float] | None = None,
    from_zero: bool = False,
    logarithmic: bool = False,
    wide: bool = False,
    horizontal: HorizontalAxis = STEP_AXIS,
) -> Markup:
    """A figure: heading, legend with the last values, and the drawing; empty where there is nothing to draw.

    `reference` is a dashed line with a name; `from_zero` lets the vertical axis begin at 0; a wide chart is
    meant for the whole width of a page, the others for half of it. A line has the colour of its place among the
    series, also where another has no points: so it is the same colour in all charts of a page.
    """
    toned = [(index % COLOURS + 1, line) for index, line in enumerate(series) if line.points]
    series = [line for _, line in toned]
    if not series:
        return Markup()
    levels = [value for line in series for _, value in line.points]
    levels += [reference[1]] if reference else []
    width, last = WIDE if wide else WIDTH, max(line.points[-1][0] for line in series)
    x = Axis(0, last, LEFT, width - RIGHT)
    y = _vertical_axis(levels, from_zero=from_zero, logarithmic=logarithmic and min(levels) > 0)
    ends = [
        f"{line.name} from {format_value(line.points[0][1])} to {format_value(line.points[-1][1])}" for line in series
    ]
    return render(
        "chart.html",
        title=title,
        name=element_name(title),
        description="; ".join(ends),
        wide=wide,
        width=width,
        height=HEIGHT,
        x=x,
        y=y,
        levels=y.labels(lambda tick: _strip_zeros(format_value(tick))),
        places=x.labels(lambda tick: _strip_zeros(horizontal.tick_label(tick))),
        horizontal=horizontal,
        extent=horizontal.value_label(last),
        reference=_reference(*reference, _nearest_end(series, reference[1]), y) if reference else None,
        lines=[_line(line, x, y, format_value, horizontal) | {"tone": tone} for tone, line in toned],
    )


def element_name(title: str) -> str:
    """The beginning of the ids of a figure's elements."""
    return re.sub(r"\W+", "-", title.lower())


def _vertical_axis(values: Sequence[float], *, from_zero: bool, logarithmic: bool) -> Axis:
    """The scale of the values: their range and a margin, never empty."""
    low, high = min(values), max(values)
    if logarithmic:
        low, high = low / 1.2, high * 1.2
    else:
        low = min(low, 0.0) if from_zero else low
        air = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        low, high = low if from_zero else low - air, high + air
    return Axis(low, high, HEIGHT - BOTTOM, TOP, logarithmic)


def _reference(name: str, value: float, end: float, y: Axis) -> dict[str, Any]:
    """A dashed reference line; its label stands on the side where the nearest curve does not end."""
    at = y.position(value)
    return {"name": name, "at": f"{at:.1f}", "label_at": f"{at - 6 if end < value else at + 16:.1f}"}


def _nearest_end(series: Sequence[Series], value: float) -> float:
    return min((line.points[-1][1] for line in series), key=lambda end: abs(end - value))


def _line(line: Series, x: Axis, y: Axis, format_value: Formatter, horizontal: HorizontalAxis) -> dict[str, Any]:
    """A line and its entry in the legend, which carries the points, for the page to read out under the pointer."""
    drawn = [(round(x.position(place), 1), round(y.position(value), 1)) for place, value in line.main_line]
    labels = [(horizontal.value_label(place), format_value(value)) for place, value in line.main_line]
    sparse = len(line.points) == 1 or (not line.noisy and len(line.points) <= 40)
    return {
        "name": line.name,
        "data": json.dumps([[*at, *said] for at, said in zip(drawn, labels, strict=True)], separators=(",", ":")),
        "last": labels[-1][1],
        "faint": _path(downsample(line.points), x, y) if line.noisy else "",
        "path": _path(line.main_line, x, y),
        "dots": drawn if sparse else [],
    }


def _path(points: Sequence[Point], x: Axis, y: Axis) -> str:
    return " ".join(f"{x.pixel(place)},{y.pixel(value)}" for place, value in points)


def _decimals(size: float) -> int:
    """Decimals that give three significant digits."""
    return max(0, 2 - math.floor(math.log10(size)))


def _strip_zeros(number: str) -> str:
    """Without the zeros that a tick does not need: 4.00 is 4, 2.50 k is 2.5 k."""
    return re.sub(r"\.(?!\d)", "", re.sub(r"(\.\d*?)0+(?!\d)", r"\1", number))


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(power * digit for digit in (1, 2, 5, 10) if step <= power * digit * 1.000001)
