"""Scores by layer: a curve over the layers of a network, as a self-contained SVG."""

from collections.abc import Sequence

from markupsafe import Markup

from bertsmith.insight.charts import Axis
from bertsmith.insight.page import render

NamedCurve = tuple[str, Sequence[float]]  # its name, and its value at each layer; layer 0 is the embedding

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 520, 84, 36, 112, 74
LETTER_WIDTH = 7.4  # about the width of one, in the legend
MAX_TICKS = 26  # layers whose numbers have room below


def page(picture: Markup) -> Markup:
    """The picture as an HTML page."""
    return render("layers.html", picture=picture)


def layer_chart(
    title: str,
    subtitle: str,
    y_label: str,
    curve: NamedCurve,
    *,
    reference: tuple[str, float],
    comparison: NamedCurve | None = None,
) -> Markup:
    """The curve as SVG with its best layer marked, a dashed baseline, and optionally a second curve.

    The subtitle stands below the title, and the vertical label next to the axis of the values.
    """
    values, others = curve[1], comparison[1] if comparison else ()
    low, high = min(*values, *others, reference[1]), max(*values, *others, reference[1])
    air = max(0.08 * (high - low), 0.01)
    y = Axis(max(0.0, low - air), min(1.0, high + air), HEIGHT - BOTTOM, TOP)
    x = Axis(0, len(values) - 1, LEFT + 22, WIDTH - RIGHT - 22)
    ticks, best = y.ticks(), list(values).index(max(values))
    digits = 0 if len(ticks) < 2 or ticks[1] - ticks[0] > 0.0099 else 1
    return render(
        "layers.svg",
        title=title,
        subtitle=subtitle,
        y_label=y_label,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=WIDTH - RIGHT,
        x=x,
        y=y,
        levels=y.labels(f"{{:.{digits}%}}".format),
        layers=range(0, len(values), -(-len(values) // MAX_TICKS)),
        reference=reference[1],
        shares=[f"{value:.1%}" for value in values],
        points=_points(values, x, y),
        others=_points(others, x, y),
        best=best,
        best_x=min(max(x.position(best), LEFT + 56), WIDTH - RIGHT - 56),  # its label stays inside the picture
        legend=_legend(curve[0], comparison[0] if comparison else None, f"{reference[0]}: {reference[1]:.1%}"),
    )


def _legend(curve: str, other: str | None, reference: str) -> list[tuple[str, int, str]]:
    """The entries of the legend, below the heading: style, left end and name."""
    entries = [("line", curve), *([("line control", other)] if other else []), ("majority", reference)]
    placed, left = [], 28.0
    for style, name in entries:
        placed.append((style, round(left), name))
        left += 32 + LETTER_WIDTH * len(name) + 24
    return placed


def _points(values: Sequence[float], x: Axis, y: Axis) -> list[tuple[str, str]]:
    return [(x.pixel(layer), y.pixel(value)) for layer, value in enumerate(values)]
