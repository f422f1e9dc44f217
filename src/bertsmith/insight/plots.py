"""Plots of single points and of bins, as inline SVG: predicted against true numbers, and reliability diagrams."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from bertsmith.insight.charts import Axis, element_name, format_number
from bertsmith.insight.page import render

SIDE, LEFT, RIGHT, TOP, BOTTOM = 420, 52, 12, 14, 44


def scatter(title: str, points: Sequence[Sequence[float]], x_label: str, y_label: str, *, diagonal: bool) -> Markup:
    """A dot for each example; with a diagonal where both axes are one scale, and a dot on it is right."""
    points = [point for point in points if all(map(math.isfinite, point))]
    if not points:
        return Markup()
    x_low, x_high = _axis_limits([point[0] for point in points])
    y_low, y_high = _axis_limits([point[1] for point in points])
    if diagonal:
        x_low, y_low = (min(x_low, y_low),) * 2
        x_high, y_high = (max(x_high, y_high),) * 2
    x, y = Axis(x_low, x_high, LEFT, SIDE - RIGHT), Axis(y_low, y_high, SIDE - BOTTOM, TOP)
    dots = [(x.pixel(one), y.pixel(other)) for one, other in points]
    description = f"{len(points):,} examples; {x_label} from {format_number(x_low)} to {format_number(x_high)}"
    labels = {"x_label": x_label, "y_label": y_label, "description": description}
    return _plot(title, x, y, **labels, dots=dots, diagonal=diagonal)


def reliability_diagram(title: str, bins: Sequence[Mapping[str, Any]], note: str = "") -> Markup:
    """How many are right among those of about equal confidence. A calibrated model's bars end on the diagonal.

    A bar is the stronger, the more examples it stands for.
    """
    x, y = Axis(0, 1, LEFT, SIDE - RIGHT), Axis(0, 1, SIDE - BOTTOM, TOP)
    used = [part for part in bins if part["count"]]
    most = max((part["count"] for part in used), default=0)
    bars = [
        {
            "left": x.position(part["low"]),
            "right": x.position(part["high"]),
            "top": y.position(part["accuracy"]),
            "opacity": 0.35 + 0.65 * (part["count"] / most) ** 0.5,
            "tooltip": f"{part['count']:,} examples, {part['confidence']:.1%} sure, {part['accuracy']:.1%} right",
        }
        for part in used
    ]
    description = "; ".join(f"{part['confidence']:.0%} sure, {part['accuracy']:.0%} right" for part in used)
    labels = {"x_label": "confidence", "y_label": "share that is right", "description": description}
    return _plot(title, x, y, **labels, note=note, bars=bars)


def _plot(title: str, x: Axis, y: Axis, **more: Any) -> Markup:
    parts = {"note": "", "dots": (), "bars": (), "diagonal": True} | more
    return render("plot.html", title=title, name=element_name(title), side=SIDE, x=x, y=y, **parts)


def _axis_limits(values: Sequence[float]) -> tuple[float, float]:
    """The limits of an axis: all values and a margin."""
    low, high = min(values), max(values)
    air = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    return low - air, high + air
