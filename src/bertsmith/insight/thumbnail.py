"""Thumbnails: small images inside of a page, as data: addresses, so that a page stays one file that loads nothing."""

import base64
from io import BytesIO

import numpy as np

from bertsmith.data.images.decoding import Pixels, import_pillow

SIDE = 160  # pixels of the longer side, by default
QUALITY = 85  # of JPEG, from 0 to 100


def thumbnail(pixels: Pixels, side: int = SIDE) -> str:
    """The image, scaled down where it is larger, as the data: address of a JPEG file."""
    image = import_pillow().Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else _rows(pixels)))
    image.thumbnail((side, side))
    stream = BytesIO()
    image.save(stream, format="JPEG", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


def _rows(pixels: Pixels) -> np.ndarray:
    return pixels.transpose(1, 2, 0)
