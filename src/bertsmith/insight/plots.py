"""Plots of single points and of bins, as inline SVG: predicted against true numbers, and reliability diagrams."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from bertsmith.insight.charts import Axis, format_number

SIDE, LEFT, RIGHT, TOP, BOTTOM = 420, 52, 12, 14, 44


def scatter(title: str, points: Sequence[Sequence[float]], x_label: str, y_label: str, *, diagonal: bool) -> str:
    """A dot for each example; with a diagonal where both axes are one scale, and a dot on it is right."""
    points = [point for point in points if all(map(math.isfinite, point))]
    if not points:
        return ""
    x_low, x_high = _axis_limits([point[0] for point in points])
    y_low, y_high = _axis_limits([point[1] for point in points])
    if diagonal:
        x_low, y_low = (min(x_low, y_low),) * 2
        x_high, y_high = (max(x_high, y_high),) * 2
    x = Axis(x_low, x_high, LEFT, SIDE - RIGHT)
    y = Axis(y_low, y_high, SIDE - BOTTOM, TOP)
    parts = _grid(x, y, x_label, y_label)
    if diagonal:
        parts.append(_segment("reference", (x.start, y.start), (x.stop, y.stop)))
    parts += [
        f'<circle class="dot" r="3" cx="{x.position(one):.1f}" cy="{y.position(other):.1f}"/>' for one, other in points
    ]
    description = f"{len(points):,} examples; {x_label} from {format_number(x_low)} to {format_number(x_high)}"
    return _figure(title, "", description, parts)


def reliability_diagram(title: str, bins: Sequence[Mapping[str, Any]], note: str = "") -> str:
    """How many are right among those of about equal confidence. A calibrated model's bars end on the diagonal.

    A bar is the stronger, the more examples it stands for.
    """
    x, y = Axis(0, 1, LEFT, SIDE - RIGHT), Axis(0, 1, SIDE - BOTTOM, TOP)
    most = max((part["count"] for part in bins), default=0)
    parts = _grid(x, y, "confidence", "share that is right")
    for part in bins:
        if part["count"]:
            left, right, top = x.position(part["low"]), x.position(part["high"]), y.position(part["accuracy"])
            strength = 0.35 + 0.65 * (part["count"] / most) ** 0.5
            tooltip = f"{part['count']:,} examples, {part['confidence']:.1%} sure, {part['accuracy']:.1%} right"
            parts.append(
                f'<rect class="bin" x="{left + 1:.1f}" y="{top:.1f}" width="{right - left - 2:.1f}" '
                f'height="{max(1.0, y.start - top):.1f}" opacity="{strength:.2f}"><title>{tooltip}</title></rect>'
            )
    parts.append(_segment("reference", (x.start, y.start), (x.stop, y.stop)))
    used = [part for part in bins if part["count"]]
    description = "; ".join(f"{part['confidence']:.0%} sure, {part['accuracy']:.0%} right" for part in used)
    return _figure(title, note, description, parts)


def _figure(title: str, note: str, description: str, parts: Sequence[str]) -> str:
    name = re.sub(r"\W+", "-", title.lower())
    legend = f'<p class="legend"><span>{escape(note)}</span></p>' if note else ""
    return f"""<figure class="plot"><figcaption><h3>{escape(title)}</h3>{legend}</figcaption>
<svg viewBox="0 0 {SIDE} {SIDE}" role="img" aria-labelledby="{name}-title {name}-desc">
<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}.</desc>
{"".join(parts)}</svg></figure>"""


def _grid(x: Axis, y: Axis, x_label: str, y_label: str) -> list[str]:
    """Grid lines, tick labels, and the names of both axes."""
    parts = []
    for tick in y.ticks():
        at = f"{y.position(tick):.1f}"
        parts.append(f'<line class="level" x1="{LEFT}" x2="{x.stop:g}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="value" x="{LEFT - 8}" y="{at}" dy=".35em">{tick:g}</text>')
    for tick in x.ticks():
        parts.append(f'<text class="place" x="{x.position(tick):.1f}" y="{SIDE - BOTTOM + 18}">{tick:g}</text>')
    middle, low = (x.start + x.stop) / 2, (y.start + y.stop) / 2
    parts.append(f'<text class="place" x="{middle:.1f}" y="{SIDE - 6}">{escape(x_label)}</text>')
    turned = f'transform="translate(12 {low:.1f}) rotate(-90)"'
    parts.append(f'<text class="place" {turned}>{escape(y_label)}</text>')
    return parts


def _segment(kind: str, begin: tuple[float, float], end: tuple[float, float]) -> str:
    return f'<line class="{kind}" x1="{begin[0]:g}" y1="{begin[1]:g}" x2="{end[0]:g}" y2="{end[1]:g}"/>'


def _axis_limits(values: Sequence[float]) -> tuple[float, float]:
    """The limits of an axis: all values and a margin."""
    low, high = min(values), max(values)
    air = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    return low - air, high + air
