"""Small images that a network can complete: stripes of random direction, width and colour, the same everywhere."""

from pathlib import Path

import numpy as np

from bertsmith.data.images import png
from bertsmith.random_bits import uniform


def grating(number: int, side: int = 16) -> np.ndarray:
    """The image of this number, as bytes of [3, side, side]."""
    angle, width, phase = uniform(number, np.arange(3)).tolist()
    colours = uniform(number, 1, np.arange(6)).reshape(2, 3, 1, 1)
    row, column = np.mgrid[0:side, 0:side] / side
    way = np.cos(np.pi * angle) * row + np.sin(np.pi * angle) * column
    share = 0.5 + 0.5 * np.sin(2 * np.pi * ((1 + 3 * width) * way + phase))
    return np.asarray(255 * (colours[0] * share + colours[1] * (1 - share))).astype(np.uint8)


def write_gratings(folder: Path, count: int, side: int = 16) -> Path:
    """A folder of them, some in folders of their own."""
    for number in range(count):
        home = folder / "more" if number % 3 == 0 else folder
        home.mkdir(parents=True, exist_ok=True)
        (home / f"{number:03}.png").write_bytes(png.encode(grating(number, side)))
    return folder
