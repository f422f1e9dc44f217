"""The alignment picture: attention weights between the tokens of a translation and its source. Bahdanau et al. 2015."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from bertsmith import files
from bertsmith.errors import TextError
from bertsmith.insight import png
from bertsmith.insight.page import render

SUFFIXES = (".html", ".png")
ALTERNATIVE = "write .html, which needs nothing"
CELL, LETTER, SLANT = 26, 7.4, 0.72  # sizes in a drawing: of a square, of a letter, and what of its length a name rises


@dataclass(frozen=True)
class Alignment:
    """Two texts in pieces, and the weights between them: a row for each piece written, which sums to one."""

    title: str
    source: Sequence[str]
    target: Sequence[str]
    weights: Float[np.ndarray, "L M"]


def write(path: Path, title: str, alignments: Sequence[Alignment]) -> None:
    """All pictures in one file: a page, or a PNG where the name ends so."""
    check_path(path)
    if path.suffix == ".png":
        png.save(path, _figure(path, alignments))
    else:
        files.write_atomic(path, page(title, alignments).encode())


def check_path(path: Path) -> None:
    """Whether a picture can be written there, asked before the work is done."""
    if path.suffix not in SUFFIXES:
        raise TextError(path, f"has the unknown ending '{path.suffix}'", "Use .html or .png")
    if path.suffix == ".png":
        png.figure(path, 1, 1, ALTERNATIVE)


def page(title: str, alignments: Sequence[Alignment]) -> Markup:
    """One page that loads nothing."""
    return render("alignment.html", title=title, pictures=map(svg, alignments))


def svg(one: Alignment) -> Markup:
    """One picture as SVG, its squares as dark as the weights; pointing at a square shows its weight."""
    left = 16 + LETTER * max(map(len, one.target), default=0)
    top = 20 + LETTER * SLANT * max(map(len, one.source), default=0)
    ahead = LETTER * SLANT * len(one.source[-1]) if one.source else 0  # slanted names reach beyond the last column
    width, height = left + CELL * len(one.source) + ahead + 8, top + CELL * len(one.target) + 8
    return render("alignment_picture.html", one=one, cell=CELL, left=left, top=top, width=width, height=height)


def _figure(path: Path, alignments: Sequence[Alignment]) -> Any:
    """All pictures below each other, in one figure."""
    sizes = [(1.6 + 0.34 * len(one.source), 1.5 + 0.34 * len(one.target)) for one in alignments] or [(4.0, 2.0)]
    figure = png.figure(path, max(wide for wide, _ in sizes), sum(high for _, high in sizes), ALTERNATIVE)
    grid = figure.subplots(len(sizes), 1, squeeze=False, height_ratios=[high for _, high in sizes])
    for axes, one in zip(grid[:, 0], alignments, strict=False):
        axes.imshow(one.weights, cmap="Blues", vmin=0.0, vmax=1.0)
        how: dict[str, Any] = {"rotation": 45, "ha": "left", "rotation_mode": "anchor", "parse_math": False}
        axes.set_xticks(range(len(one.source)), one.source, **how)
        axes.set_yticks(range(len(one.target)), one.target, parse_math=False)
        axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    if not alignments:
        grid[0, 0].set_axis_off()
    return figure
