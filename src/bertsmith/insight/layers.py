"""Scores by layer: a curve over the layers of a network, as a self-contained SVG."""

from collections.abc import Sequence
from html import escape

from bertsmith.insight.charts import Axis

NamedCurve = tuple[str, Sequence[float]]  # its name, and its value at each layer; layer 0 is the embedding

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 520, 84, 36, 112, 74
LETTER_WIDTH = 7.4  # about the width of one, in the legend
MAX_TICKS = 26  # layers whose numbers have room below

STYLE = """
svg { --ink: #23262b; --soft: #6a707a; --line: #e4e5e1; --tone: #2f6fb3; --other: #c8651b; --paper: #fdfdfb; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e4e6e8; --soft: #979ea8; --line: #2f343a; --tone: #6fa8e0; --other: #eb9a57; --paper: #16181b; }
}
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
text { fill: var(--soft); font-variant-numeric: tabular-nums; }
.title { font-size: 21px; font-weight: 600; fill: var(--ink); letter-spacing: -.01em; }
.best { font-weight: 600; fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 5px; }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.paper { fill: var(--paper); } .level { stroke: var(--line); }
.line { fill: none; stroke: var(--tone); stroke-width: 2.5; stroke-linejoin: round; }
.dot { fill: var(--tone); } .ring { fill: var(--paper); stroke: var(--tone); stroke-width: 3; }
.wash { fill: var(--tone); opacity: .07; }
.control { stroke: var(--other); stroke-width: 1.8; } .dot.control { fill: var(--other); stroke: none; }
.majority { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 6 5; }
""".strip()
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>Layers</title><style>
body { max-width: 1080px; margin: 0 auto; background: #fdfdfb; }
@media (prefers-color-scheme: dark) { body { background: #16181b; } }
</style></head><body>
"""


def page(svg: str) -> str:
    """The picture as an HTML page."""
    return f"{PAGE}{svg}</body></html>\n"


def layer_chart(
    title: str,
    subtitle: str,
    y_label: str,
    curve: NamedCurve,
    *,
    reference: tuple[str, float],
    comparison: NamedCurve | None = None,
) -> str:
    """The curve as SVG with its best layer marked, a dashed baseline, and optionally a second curve.

    The subtitle stands below the title, and the vertical label next to the axis of the values.
    """
    values, others = curve[1], comparison[1] if comparison else ()
    low, high = min(*values, *others, reference[1]), max(*values, *others, reference[1])
    air = max(0.08 * (high - low), 0.01)
    y = Axis(max(0.0, low - air), min(1.0, high + air), HEIGHT - BOTTOM, TOP)
    x = Axis(0, len(values) - 1, LEFT + 22, WIDTH - RIGHT - 22)
    parts = [
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="28" y="40">{escape(title)}</text>',
        f'<text x="28" y="63">{escape(subtitle)}</text>',
        *_grid(x, y, len(values), y_label),
        f'<line class="majority" x1="{LEFT}" x2="{WIDTH - RIGHT}" {_level(y, reference[1])}/>',
    ]
    if others:
        parts.append(f'<path class="wash" d="M{_path(values, x, y)} L{_path(others, x, y, back=True)} Z"/>')
        parts += _curve(others, x, y, " control")
    parts += [*_curve(values, x, y), *_mark_best(values, x, y)]
    parts += _legend(curve[0], comparison[0] if comparison else None, f"{reference[0]}: {reference[1]:.1%}")
    said = f"By layer, from the embeddings: {', '.join(f'{value:.1%}' for value in values)}."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escape(title)}</title><desc>{said}</desc><style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _grid(x: Axis, y: Axis, layers: int, y_label: str) -> list[str]:
    """Grid lines, tick labels, and the names of both axes."""
    parts, ticks = [], y.ticks()
    digits = 0 if len(ticks) < 2 or ticks[1] - ticks[0] > 0.0099 else 1
    for tick in ticks:
        parts.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" {_level(y, tick)}/>')
        parts.append(
            f'<text class="end" x="{LEFT - 10}" y="{y.position(tick):.1f}" dy=".35em">{tick:.{digits}%}</text>'
        )
    for layer in range(0, layers, -(-layers // MAX_TICKS)):
        parts.append(f'<text class="middle" x="{x.position(layer):.1f}" y="{HEIGHT - BOTTOM + 26}">{layer}</text>')
    across, down = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text class="middle" x="{across:g}" y="{HEIGHT - 18}">layer (0: embeddings)</text>')
    parts.append(f'<text class="middle" transform="translate(26 {down:g}) rotate(-90)">{escape(y_label)}</text>')
    return parts


def _curve(values: Sequence[float], x: Axis, y: Axis, tone: str = "") -> list[str]:
    dots = [f'<circle class="dot{tone}" r="3.6" cx="{a}" cy="{b}"/>' for a, b in _points(values, x, y)]
    return [f'<path class="line{tone}" d="M{_path(values, x, y)}"/>', *dots]


def _mark_best(values: Sequence[float], x: Axis, y: Axis) -> list[str]:
    """A ring around the best layer with its value above, inside the picture."""
    best = list(values).index(max(values))
    across, down = _points(values, x, y)[best]
    at = min(max(float(across), LEFT + 56), WIDTH - RIGHT - 56)
    return [
        f'<circle class="ring" r="6.5" cx="{across}" cy="{down}"/>',
        f'<text class="best middle" x="{at:.1f}" y="{float(down) - 15:.1f}">layer {best}: {values[best]:.1%}</text>',
    ]


def _legend(curve: str, other: str | None, reference: str) -> list[str]:
    """The legend, below the heading."""
    entries = [("line", curve), *([("line control", other)] if other else []), ("majority", reference)]
    parts, left = [], 28.0
    for style, name in entries:
        parts.append(f'<line class="{style}" x1="{left:.0f}" x2="{left + 24:.0f}" y1="84" y2="84"/>')
        parts.append(f'<text x="{left + 32:.0f}" y="84" dy=".35em">{escape(name)}</text>')
        left += 32 + LETTER_WIDTH * len(name) + 24
    return parts


def _points(values: Sequence[float], x: Axis, y: Axis) -> list[tuple[str, str]]:
    return [(f"{x.position(layer):.1f}", f"{y.position(value):.1f}") for layer, value in enumerate(values)]


def _path(values: Sequence[float], x: Axis, y: Axis, *, back: bool = False) -> str:
    places = _points(values, x, y)
    return " ".join(",".join(place) for place in (reversed(places) if back else places))


def _level(y: Axis, value: float) -> str:
    return f'y1="{y.position(value):.1f}" y2="{y.position(value):.1f}"'
