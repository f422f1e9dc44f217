"""Reconstructions of images as a section of a page."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8
from markupsafe import Markup

from bertsmith.data.images import png
from bertsmith.insight.page import render

SIDE = 224  # pixels of an image on the page, at most
LEAD = "Held-out images. Left: what the network sees. Middle: the masked patches as it predicts them. Right: the image."
RELATIVE = " It predicts pixels relative to the mean and the deviation of their patch, which are those of the image."

Bytes = UInt8[np.ndarray, "C _ _"]


def section(rows: Sequence[tuple[Bytes, Bytes, Bytes]]) -> Markup:
    """A row of pictures for each image: masked, reconstructed, original."""
    return render("reconstructions.html", rows=[[png.data_uri(one, SIDE) for one in row] for row in rows])
