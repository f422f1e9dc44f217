"""RandAugment: a few random operations of one strength for each image; Cubuk et al. 2019."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float64, UInt8
from torch import Tensor

from bertsmith.data.images import colours, geometry
from bertsmith.data.images.draws import Draws, Purpose, column

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


OPERATIONS: dict[str, Operation] = {
    "identity": lambda images, _: images,
    "auto_contrast": lambda images, _: colours.auto_contrast(images),
    "equalize": lambda images, _: colours.equalize(images),
    "posterize": _posterized,
    "solarize": _solarized,
    "brightness": _blended(colours.brightness),
    "contrast": _blended(colours.contrast),
    "saturation": _blended(colours.saturation),
    "sharpness": _blended(colours.sharpness),
    "rotate": lambda images, levels: geometry.rotate(images, MAX_DEGREES * levels),
    "shear_x": lambda images, levels: geometry.shear(images, MAX_SHEAR * levels, 0 * levels),
    "shear_y": lambda images, levels: geometry.shear(images, 0 * levels, MAX_SHEAR * levels),
    "translate_x": lambda images, levels: geometry.translate(images, MAX_SHIFT * images.shape[3] * levels, 0 * levels),
    "translate_y": lambda images, levels: geometry.translate(images, 0 * levels, MAX_SHIFT * images.shape[2] * levels),
}


def rand_augment(images: Images, draws: Draws, *, operations: int = 2, strength: float = 9.0) -> Images:
    """Some random operations on each image, one after the other, each in a random direction."""
    for turn in range(operations):
        chosen = draws.below(len(OPERATIONS), Purpose.OPERATION, turn)
        signs = np.where(draws.uniform(Purpose.SIGN, turn) < 0.5, -1.0, 1.0)
        levels = signs * strength / MAX_STRENGTH
        changed = images.clone()
        for number, operation in enumerate(OPERATIONS.values()):
            rows = np.flatnonzero(chosen == number)
            if len(rows):
                where = torch.from_numpy(rows).to(images.device)
                changed[where] = operation(images[where], levels[rows])
        images = changed
    return images
