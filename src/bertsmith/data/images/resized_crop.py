"""Random resized crops: a window of random area and shape, stretched to one size. Szegedy et al. 2014.

Two matrix products stretch rows and columns. Their weights are whole numbers, so that the bytes are the same on every
device, in whatever order a product adds up.
"""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float64, UInt8
from torch import Tensor

from bertsmith.data.batch import on_device
from bertsmith.data.images.draws import Draws, Purpose

ASPECT = 4 / 3  # the largest width / height, of an image that is square; its inverse is the smallest
ONE = 1 << 12  # the sum of the weights of a pixel

Images = UInt8[Tensor, "B C H W"]


def random_resized_crop(
    images: Images, draws: Draws, size: tuple[int, int], *, min_area: float, flip: bool = False
) -> UInt8[Tensor, "B C _ _"]:
    """A window of each image, of at least this share of its area, at this size; half of them from right to left."""
    height, width = images.shape[2:]
    area = height * width * (min_area + (1 - min_area) * draws.uniform(Purpose.CROP_AREA))
    aspect = np.exp(math.log(ASPECT) * (2 * draws.uniform(Purpose.CROP_ASPECT) - 1)) * width / height
    heights = np.sqrt(area / aspect).clip(1, height)
    widths = (area / heights).clip(1, width)
    tops = draws.uniform(Purpose.CROP_ROW) * (height - heights)
    lefts = draws.uniform(Purpose.CROP_COLUMN) * (width - widths)
    mirrored = draws.uniform(Purpose.FLIP) < 0.5 if flip else np.zeros(len(draws), np.bool_)
    return resize_windows(images, np.stack([tops, heights, lefts, widths], 1), size, mirrored)


def resize_windows(
    images: Images,
    windows: Float64[np.ndarray, "B 4"],
    size: tuple[int, int],
    mirrored: Bool[np.ndarray, "B"] | None = None,
) -> UInt8[Tensor, "B C _ _"]:
    """The window (top, height, left, width) of each image at this size: bilinear, as by Pillow."""
    tops, heights, lefts, widths = on_device(windows, images.device).unbind(1)
    rows = _weights(tops, heights, size[0], images.shape[2])
    columns = _weights(lefts, widths, size[1], images.shape[3])
    if mirrored is not None:
        columns = torch.where(on_device(mirrored, images.device)[:, None, None], columns.flip(1), columns)
    sums = rows[:, None] @ images.double() @ columns[:, None].mT
    return ((sums + ONE**2 // 2) / ONE**2).floor().to(torch.uint8)


def _weights(starts: Tensor, lengths: Tensor, new: int, old: int) -> Tensor:
    """What each of `old` pixels contributes to each of `new` ones of a window: whole numbers, [B, new, old]."""
    scale = (lengths / new)[:, None, None]
    pixels = torch.arange(old, device=starts.device, dtype=torch.float64) + 0.5
    centres = starts[:, None, None] + (torch.arange(new, device=starts.device)[:, None] + 0.5) * scale
    near = (1 - (pixels - centres).abs() / scale.clamp(min=1)).clamp(min=0)
    inside = (pixels >= starts[:, None, None]) & (pixels <= (starts + lengths)[:, None, None])
    near = near * inside
    weights = (near / near.sum(2, keepdim=True) * ONE).round()
    largest = weights.argmax(2, keepdim=True)  # gets what rounding has lost or added
    return weights.scatter_add(2, largest, ONE - weights.sum(2, keepdim=True))
