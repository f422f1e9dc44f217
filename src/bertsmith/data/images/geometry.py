"""Geometry: crops, flips and affine maps of a batch of images, each a gather of pixels by their rows and columns."""

import math

import numpy as np
import torch
from jaxtyping import Float64, Int, UInt8
from torch import Tensor

from bertsmith.data.batch import on_device
from bertsmith.data.images.draws import Draws, Purpose
from bertsmith.errors import RecipeError

Images = UInt8[Tensor, "B C H W"]
AffineMaps = Float64[np.ndarray, "B 6"]  # a to f of each image
FILL = 128  # of pixels from outside an image: grey, as in RandAugment


def crop(images: Images, draws: Draws, size: tuple[int, int], *, padding: int = 0, flip: bool = False) -> Tensor:
    """A random window of [height, width] from images padded by reflection; half of them from right to left."""
    height, width = images.shape[2:]
    ranges = [side + 2 * padding - new + 1 for side, new in zip((height, width), size, strict=True)]
    if min(*ranges, *size) < 1:
        fact = f"a window of {size[1]} x {size[0]} pixels is not inside {width} x {height} padded by {padding}"
        raise RecipeError("crop", fact, "Make it smaller, or the padding larger")
    tops = draws.below(ranges[0], Purpose.CROP_ROW) - padding
    lefts = draws.below(ranges[1], Purpose.CROP_COLUMN) - padding
    rows = tops[:, None] + np.arange(size[0])
    columns = lefts[:, None] + np.arange(size[1])
    if flip:
        columns = np.where(draws.uniform(Purpose.FLIP)[:, None] < 0.5, columns[:, ::-1], columns)
    device = images.device
    return _gather(
        images,
        on_device(_reflected(rows, height), device)[:, :, None],
        on_device(_reflected(columns, width), device)[:, None, :],
    )


def centre_crop(image: UInt8[Tensor, "*B C H W"], size: tuple[int, int]) -> Tensor:
    """The window of [height, width] in the middle of an image, or of a batch of them."""
    height, width = image.shape[-2:]
    if size[0] > height or size[1] > width:
        fact = f"a window of {size[1]} x {size[0]} pixels is not inside {width} x {height}"
        raise RecipeError("crop", fact, "Make it smaller, or scale the images")
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    return image[..., top : top + size[0], left : left + size[1]]


def rotations(degrees: Float64[np.ndarray, "B"]) -> AffineMaps:
    """Turns around the centre, anticlockwise."""
    turns = [math.radians(angle) for angle in degrees.tolist()]
    cosines, sines = (np.array([function(turn) for turn in turns]) for function in (math.cos, math.sin))
    return np.stack([cosines, -sines, 0 * sines, sines, cosines, 0 * sines], 1)


def shears(by_row: Float64[np.ndarray, "B"], by_column: Float64[np.ndarray, "B"]) -> AffineMaps:
    """Each row is moved by `by_row` times its distance from the centre, and each column likewise."""
    one, zero = np.ones_like(by_row), np.zeros_like(by_row)
    return np.stack([one, by_row, zero, by_column, one, zero], 1)


def translations(right: Float64[np.ndarray, "B"], down: Float64[np.ndarray, "B"]) -> AffineMaps:
    """Moves by some pixels."""
    one, zero = np.ones_like(right), np.zeros_like(right)
    return np.stack([one, zero, -right, zero, one, -down], 1)


def move(images: Images, maps: AffineMaps) -> Images:
    """The nearest pixel at (a x + b y + c, d x + e y + f) for each (x, y), measured from the centre."""
    height, width = images.shape[2:]
    device = images.device
    matrix = on_device(maps, device, torch.float32)[:, :, None, None]
    x = (torch.arange(width, device=device) + (0.5 - width / 2))[None, None, :]
    y = (torch.arange(height, device=device) + (0.5 - height / 2))[None, :, None]
    a, b, c, d, e, f = matrix.unbind(1)
    columns = (a * x + b * y + c + width / 2).floor().long()
    rows = (d * x + e * y + f + height / 2).floor().long()
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    moved = _gather(images, rows.clamp(0, height - 1), columns.clamp(0, width - 1))
    return torch.where(inside[:, None], moved, FILL).to(torch.uint8)


def _gather(images: Images, rows: Int[Tensor, "B _ _"], columns: Int[Tensor, "B _ _"]) -> Tensor:
    """The pixel at each row and column of every image."""
    batch, channels = (torch.arange(size, device=images.device) for size in images.shape[:2])
    return images[batch[:, None, None, None], channels[:, None, None], rows[:, None], columns[:, None]]


def _reflected(places: np.ndarray, size: int) -> np.ndarray:
    """Places outside of 0 to size - 1, reflected at the first and the last pixel as often as it takes."""
    period = max(2 * (size - 1), 1)
    folded = places % period
    return np.minimum(folded, period - folded) if size > 1 else np.zeros_like(places)
