"""RandAugment: a few random operations of one strength for each image; Cubuk et al. 2019."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float64, Int64, UInt8
from torch import Tensor

from bertsmith.data.batch import on_device
from bertsmith.data.images import colours, geometry
from bertsmith.data.images.draws import Draws, Purpose, column
from bertsmith.data.images.geometry import AffineMaps

MAX_STRENGTH = 30  # of the paper's scale
MAX_SHEAR, MAX_SHIFT, MAX_DEGREES, MAX_BLEND = 0.3, 150 / 331, 30.0, 0.9
MAX_BITS = 4  # that posterizing takes away

Images = UInt8[Tensor, "B C H W"]
Levels = Float64[np.ndarray, "B"]  # a strength between -1 and 1 for each image
Operation = Callable[[Tensor, np.ndarray], Tensor]


def _blended(operation: Callable[[Tensor, Tensor], Tensor]) -> Operation:
    """A blend with the factor 1 + 0.9 times the level."""
    return lambda images, levels: operation(images, column(1 + MAX_BLEND * levels, images.device))


def _posterized(images: Images, levels: Levels) -> Images:
    bits = 8 - np.rint(MAX_BITS * np.abs(levels))
    return colours.posterize(images, column(bits, images.device, torch.int32))


def _solarized(images: Images, levels: Levels) -> Images:
    return colours.solarize(images, column(255 * (1 - np.abs(levels)), images.device))


COLOURS: dict[str, Operation] = {
    "identity": lambda images, _: images,
    "auto_contrast": lambda images, _: colours.auto_contrast(images),
    "equalize": lambda images, _: colours.equalize(images),
    "posterize": _posterized,
    "solarize": _solarized,
    "brightness": _blended(colours.brightness),
    "contrast": _blended(colours.contrast),
    "saturation": _blended(colours.saturation),
    "sharpness": _blended(colours.sharpness),
}
MAPS: dict[str, Callable[[Levels, int, int], AffineMaps]] = {  # of images of a height and a width
    "rotate": lambda levels, *_: geometry.rotations(MAX_DEGREES * levels),
    "shear_x": lambda levels, *_: geometry.shears(MAX_SHEAR * levels, 0 * levels),
    "shear_y": lambda levels, *_: geometry.shears(0 * levels, MAX_SHEAR * levels),
    "translate_x": lambda levels, _, width: geometry.translations(MAX_SHIFT * width * levels, 0 * levels),
    "translate_y": lambda levels, height, _: geometry.translations(0 * levels, MAX_SHIFT * height * levels),
}
NAMES = (*COLOURS, *MAPS)


def rand_augment(images: Images, draws: Draws, *, operations: int = 2, strength: float = 9.0) -> Images:
    """Some random operations on each image, one after the other, each in a random direction."""
    for turn in range(operations):
        chosen = draws.below(len(NAMES), Purpose.OPERATION, turn)
        signs = np.where(draws.uniform(Purpose.SIGN, turn) < 0.5, -1.0, 1.0)
        images = apply(images, chosen, signs * strength / MAX_STRENGTH)
    return images


def apply(images: Images, chosen: Int64[np.ndarray, "B"], levels: Levels) -> Images:
    """An operation on each image, by its number in `NAMES`: those on colours one by one, all affine maps at once.

    A GPU waits for the launch of each kernel, whatever the number of images: the fewer of them the better.
    """
    order = np.argsort(chosen, kind="stable")
    chosen, levels, where = chosen[order], levels[order], on_device(order, images.device)
    bounds = np.searchsorted(chosen, np.arange(len(COLOURS) + 1)).tolist()
    changed = torch.empty_like(images)
    for operation, (start, end) in zip(COLOURS.values(), pairwise(bounds), strict=True):
        if start < end:
            changed[where[start:end]] = operation(images[where[start:end]], levels[start:end])
    start = bounds[-1]
    if start < len(images):
        maps = np.empty((len(images) - start, 6))
        for number, make in enumerate(MAPS.values(), len(COLOURS)):
            rows = chosen[start:] == number
            maps[rows] = make(levels[start:][rows], *images.shape[2:])
        changed[where[start:]] = geometry.move(images[where[start:]], maps)
    return changed
