"""Images that are drawn: shapes of any colour, size and angle, on any ground. The demo learns to name them.

They are functions of the seed and their number, so that the package ships no files, and everybody has the same ones.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float64, UInt8

from bertsmith import files
from bertsmith.data.images.png import encode
from bertsmith.random_bits import IMAGE, mix, uniform

SIDE = 24  # pixels
NOISE = 20.0  # of each pixel, up and down
CONTRAST = 70  # between the brightness of a shape and that of its ground, at least

Plane = Float64[np.ndarray, "H W"]


def _moon(x: Plane, y: Plane) -> Plane:
    distance: Plane = np.maximum(np.hypot(x, y) - 1, 0.8 - np.hypot(x - 0.5, y))
    return distance


def _cross(x: Plane, y: Plane) -> Plane:
    wide, high = np.abs(x), np.abs(y)
    distance: Plane = np.minimum(np.maximum(wide - 1, high - 0.3), np.maximum(wide - 0.3, high - 1))
    return distance


def _star(x: Plane, y: Plane) -> Plane:
    spoke = np.abs((np.arctan2(y, x) + np.pi / 5) % (2 * np.pi / 5) - np.pi / 5)  # from the nearest of five rays
    distance: Plane = np.hypot(x, y) * (np.cos(spoke) + 1.9 * np.sin(spoke)) - 1.1
    return distance


# About how far a point is outside of a shape, in units of its radius; negative inside.
DISTANCES: dict[str, Callable[[Plane, Plane], Plane]] = {
    "circle": lambda x, y: np.hypot(x, y) - 0.9,
    "cross": _cross,
    "half": lambda x, y: np.maximum(np.hypot(x, y) - 1, y),
    "moon": _moon,
    "ring": lambda x, y: np.abs(np.hypot(x, y) - 0.75) - 0.25,
    "square": lambda x, y: np.maximum(np.abs(x), np.abs(y)) - 0.8,
    "star": _star,
    "triangle": lambda x, y: np.maximum(np.abs(x) * 0.866 + y * 0.5, -y) - 0.55,
}
SHAPES = tuple(DISTANCES)


def draw(name: str, seed: int, number: int) -> UInt8[np.ndarray, "3 H W"]:
    """One image of a shape."""
    key = (seed, IMAGE, SHAPES.index(name), number)
    size, angle, right, down = (float(uniform(*key, turn)) for turn in range(4))
    scale = SIDE * (0.26 + 0.14 * size)
    turned = (angle - 0.5) * np.pi / 2  # up to 45 degrees to either side
    centre = (SIDE - 1) / 2 + (np.array([right, down]) - 0.5) * SIDE * 0.2
    offsets = np.arange(SIDE) - centre[:, None]
    x, y = np.meshgrid(offsets[0] / scale, offsets[1] / scale)
    rotated = np.cos(turned) * x + np.sin(turned) * y, np.cos(turned) * y - np.sin(turned) * x
    inside = np.clip(0.5 - DISTANCES[name](*rotated) * scale, 0, 1)  # smooth at its edge, over one pixel
    ground, shape = _colours(*key)
    noise = (uniform(*key, 20, np.arange(3 * SIDE * SIDE)).reshape(3, SIDE, SIDE) - 0.5) * 2 * NOISE
    pixels = ground[:, None, None] * (1 - inside) + shape[:, None, None] * inside + noise
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def write(folder: Path, train: int, test: int, seed: int = 0) -> None:
    """Images of all shapes as PNG files, in folders by class; so many of each for training, and for testing."""
    with files.explain_os_errors(folder):
        for part, first, count in (("test", 0, test), ("train", test, train)):
            for name in SHAPES:
                (folder / part / name).mkdir(parents=True, exist_ok=True)
                for number in range(first, first + count):
                    (folder / part / name / f"{number:05}.png").write_bytes(encode(draw(name, seed, number)))


def _colours(*key: int) -> tuple[Float64[np.ndarray, "3"], Float64[np.ndarray, "3"]]:
    """A colour of the ground and one of the shape, of different brightness."""
    ground, shape = (uniform(*key, turn, np.arange(3)) * 255 for turn in (4, 5))
    gap = shape.mean() - ground.mean()
    if abs(gap) < CONTRAST:
        upward = bool(int(mix(*key, 6)) & 1) if abs(gap) < 1 else gap > 0
        shape = shape + (CONTRAST - abs(gap)) * (1 if upward else -1)
    return ground, np.clip(shape, 0, 255)
