"""Colours: operations on the colours of a batch of images, with an amount for each; the arithmetic of Pillow.

All sums are of whole numbers, whose order changes nothing, and all products are of single numbers: so an image comes
out with the same bits whatever its neighbours.
"""

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from bertsmith.data.images.draws import Draws, Purpose, column

Images = UInt8[Tensor, "B C H W"]
Amounts = Float[Tensor, "B 1 1 1"]
RED, GREEN, BLUE = 19595, 38470, 7471  # luma of ITU-R 601, in parts of 65,536


def grey(images: Images) -> Int[Tensor, "B 1 H W"]:
    """The brightness of each pixel, 0 to 255."""
    whole = images.int()
    if images.shape[1] == 1:
        return whole
    return (whole[:, :1] * RED + whole[:, 1:2] * GREEN + whole[:, 2:] * BLUE + 0x8000) >> 16


def blend(start: Tensor, images: Images, amounts: Amounts) -> Images:
    """From `start` (amount 0) through the images (1) and beyond."""
    first = start.float()
    return (first + amounts * (images.float() - first)).clamp(0, 255).to(torch.uint8)


def brightness(images: Images, amounts: Amounts) -> Images:
    """From black (0) to the image (1) and beyond."""
    return blend(torch.zeros((), device=images.device), images, amounts)


def contrast(images: Images, amounts: Amounts) -> Images:
    """From the mean brightness of the image (0) to the image (1) and beyond."""
    pixels = images.shape[2] * images.shape[3]
    total = grey(images).sum((1, 2, 3), dtype=torch.int64, keepdim=True)
    return blend((2 * total + pixels) // (2 * pixels), images, amounts)  # the mean, rounded


def saturation(images: Images, amounts: Amounts) -> Images:
    """From grey (0) to the image (1) and beyond."""
    return blend(grey(images), images, amounts)


def sharpness(images: Images, amounts: Amounts) -> Images:
    """From a smoothed image (0) to the image (1) and beyond; pixels at the border have no smoothed value."""
    whole = images.int()
    smooth = whole.clone()
    rows, columns = whole.shape[2] - 2, whole.shape[3] - 2
    if rows > 0 and columns > 0:
        three = whole[:, :, :rows] + whole[:, :, 1:-1] + whole[:, :, 2:]
        nine = three[..., :columns] + three[..., 1:-1] + three[..., 2:]
        around = 4 * whole[:, :, 1:-1, 1:-1] + nine
        smooth[:, :, 1:-1, 1:-1] = (2 * around + 13) // 26  # a thirteenth, rounded
    return blend(smooth, images, amounts)


def posterize(images: Images, bits: Int[Tensor, "B 1 1 1"]) -> Images:
    """Only the highest bits of each colour."""
    return (images.int() >> (8 - bits) << (8 - bits)).to(torch.uint8)


def solarize(images: Images, thresholds: Amounts) -> Images:
    """Colours from a threshold on are inverted."""
    return torch.where(images < thresholds, images, 255 - images)


def auto_contrast(images: Images) -> Images:
    """Each colour is stretched from its lowest and highest value to 0 and 255."""
    low, high = images.amin((2, 3), keepdim=True).int(), images.amax((2, 3), keepdim=True).int()
    stretched = (images.int() - low) * 255 // (high - low).clamp(min=1)
    return torch.where(high > low, stretched, images.int()).to(torch.uint8)


def equalize(images: Images) -> Images:
    """Each colour is spread so that its histogram becomes as flat as it can."""
    count, channels, height, width = images.shape
    flat = images.reshape(count * channels, height * width).long()
    histogram = torch.zeros(len(flat), 256, dtype=torch.int64, device=flat.device)
    histogram.scatter_add_(1, flat, torch.ones_like(flat))
    last = histogram.gather(1, flat.amax(1, keepdim=True))
    step = (height * width - last) // 255
    before = histogram.cumsum(1) - histogram
    table = ((step // 2 + before) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table.gather(1, flat), flat).to(torch.uint8).reshape(images.shape)


def jitter(
    images: Images,
    draws: Draws,
    *,
    brightness_by: float = 0.0,
    contrast_by: float = 0.0,
    saturation_by: float = 0.0,
) -> Images:
    """Brightness, contrast and saturation, in this order, each times a random factor of 1 - by to 1 + by."""
    for by, purpose, operation in (
        (brightness_by, Purpose.BRIGHTNESS, brightness),
        (contrast_by, Purpose.CONTRAST, contrast),
        (saturation_by, Purpose.SATURATION, saturation),
    ):
        if by:
            factors = 1 + by * (2 * draws.uniform(purpose) - 1)
            images = operation(images, column(factors, images.device))
    return images
