"""Pictures of an inspection as PNG, for papers and slides: heads, predictions by layer, and attributions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.insight import png
from bertsmith.insight.inspection.inspected_text import InspectedText

ALTERNATIVE = "write .html, which needs nothing"
KINDS = ("itself", "previous", "next", "separator", "first", "same word", "broad", "mixed")
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#bbbbbb", "#e8e8e8")  # Okabe and Ito 2008
MAX_WORDS = 24  # words of an attribution, the most decisive ones
MAX_CURVES = 8  # positions whose rank is drawn


def draw(path: Path, names: Sequence[str], readings: Sequence[InspectedText]) -> None:
    """The first text of every model: a row for each, with the figures that it has."""
    rows = [one for one in readings if one.text == 0]
    panels = [_panels(one) for one in rows]
    columns = max(1, max(map(len, panels)))
    figure = png.figure(path, 5.2 * columns, 4.2 * len(rows), ALTERNATIVE)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for line, one, drawn in zip(grid, rows, panels, strict=True):
        for axes, panel in zip(line, drawn, strict=False):
            panel(axes, one)
        for axes in line[len(drawn) :]:
            axes.set_axis_off()
        _title(line[0], f"{names[one.model]}: {line[0].get_title('left')}")
    png.save(path, figure)


def _panels(one: InspectedText) -> list[Any]:
    """The pictures that a reading has figures for."""
    ranked = one.reading.masked or one.reading.predictions
    return [
        *([_heads] if one.attentions else []),
        *([_ranks] if ranked is not None else []),
        *([_words] if one.attributions else []),
    ]


def _heads(axes: Any, one: InspectedText) -> None:
    """Layers x heads, coloured by kind; stronger for a larger share."""
    maps = one.attentions[0]
    colours = np.array([[int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)] for colour in COLOURS])
    kinds = np.array([[KINDS.index(head.kind) for head in layer] for layer in maps.heads])
    strength = np.array([[0.35 + 0.65 * min(1.0, head.share) for head in layer] for layer in maps.heads])[..., None]
    axes.imshow(1 - strength * (1 - colours[kinds]), aspect="auto")
    axes.set(xlabel="head", ylabel="layer")
    _title(axes, f"{maps.name}, kinds of heads")
    axes.set_yticks(range(len(kinds)), [str(layer + 1) for layer in range(len(kinds))], fontsize=7)
    axes.set_xticks(range(kinds.shape[1]), [str(head + 1) for head in range(kinds.shape[1])], fontsize=7)
    for kind in sorted(set(kinds.ravel().tolist())):
        axes.plot([], [], "s", color=COLOURS[kind], label=KINDS[kind])
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _ranks(axes: Any, one: InspectedText) -> None:
    """The rank of the true token by layer, of words that are masked where the model fills masks."""
    found = one.reading.masked.predictions if one.reading.masked is not None else one.reading.predictions
    assert found is not None
    tokens = (one.reading.targets or one.tokens) if found.where == "targets" else one.tokens
    known = [row for row, truth in enumerate(found.truths) if truth is not None][:MAX_CURVES]
    for row in known:
        axes.plot(found.ranks[row], marker=".", linewidth=1.4, label=tokens[found.positions[row]].shown)
    axes.set_yscale("log")
    axes.invert_yaxis()
    axes.set_xticks(range(len(found.layers)), found.layers, fontsize=7, rotation=45)
    axes.set(xlabel="layer", ylabel="rank")
    _title(axes, "rank of the true token")
    axes.grid(alpha=0.3)
    if known:
        for text in axes.legend(fontsize=7, frameon=False).get_texts():
            text.set_parse_math(False)


def _words(axes: Any, one: InspectedText) -> None:
    """The most decisive words of the first output, in the order of the text."""
    attribution = one.attributions[0]
    largest = sorted(range(len(attribution.words)), key=lambda at: -abs(attribution.words[at][1]))[:MAX_WORDS]
    words = [attribution.words[at] for at in sorted(largest)]
    values = [score for _, score in words]
    axes.barh(range(len(words)), values, color=[COLOURS[0] if value >= 0 else COLOURS[5] for value in values])
    axes.set_yticks(range(len(words)), [word for word, _ in words], fontsize=7, parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0, color="#888888", linewidth=0.8)
    _title(axes, f"{attribution.name}, gap {attribution.gap:.1%}")


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, fontsize=9, loc="left", parse_math=False)
