"""RandAugment: a few random operations of one strength for each picture; Cubuk et al. 2019."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float64, UInt8
from torch import Tensor

from bertsmith.data.pictures import colours, geometry
from bertsmith.data.pictures.draws import Draws, Purpose, column

MAX_STRENGTH = 30  # of the paper's scale
MAX_SHEAR, MAX_SHIFT, MAX_DEGREES, MAX_BLEND = 0.3, 150 / 331, 30.0, 0.9
MAX_BITS = 4  # that posterizing takes away

Pictures = UInt8[Tensor, "B C H W"]
Levels = Float64[np.ndarray, "B"]  # a strength between -1 and 1 for each picture
Operation = Callable[[Tensor, np.ndarray], Tensor]


def _blended(operation: Callable[[Tensor, Tensor], Tensor]) -> Operation:
    """A blend with the factor 1 + 0.9 times the level."""
    return lambda pictures, levels: operation(pictures, column(1 + MAX_BLEND * levels, pictures.device))


def _posterized(pictures: Pictures, levels: Levels) -> Pictures:
    bits = 8 - np.rint(MAX_BITS * np.abs(levels))
    return colours.posterize(pictures, column(bits, pictures.device, torch.int32))


def _solarized(pictures: Pictures, levels: Levels) -> Pictures:
    return colours.solarize(pictures, column(255 * (1 - np.abs(levels)), pictures.device))


OPERATIONS: dict[str, Operation] = {
    "identity": lambda pictures, _: pictures,
    "auto_contrast": lambda pictures, _: colours.auto_contrast(pictures),
    "equalize": lambda pictures, _: colours.equalize(pictures),
    "posterize": _posterized,
    "solarize": _solarized,
    "brightness": _blended(colours.brightness),
    "contrast": _blended(colours.contrast),
    "saturation": _blended(colours.saturation),
    "sharpness": _blended(colours.sharpness),
    "rotate": lambda pictures, levels: geometry.rotate(pictures, MAX_DEGREES * levels),
    "shear_x": lambda pictures, levels: geometry.shear(pictures, MAX_SHEAR * levels, 0 * levels),
    "shear_y": lambda pictures, levels: geometry.shear(pictures, 0 * levels, MAX_SHEAR * levels),
    "translate_x": lambda pictures, levels: geometry.translate(
        pictures, MAX_SHIFT * pictures.shape[3] * levels, 0 * levels
    ),
    "translate_y": lambda pictures, levels: geometry.translate(
        pictures, 0 * levels, MAX_SHIFT * pictures.shape[2] * levels
    ),
}


def rand_augment(pictures: Pictures, draws: Draws, *, operations: int = 2, strength: float = 9.0) -> Pictures:
    """Some random operations on each picture, one after the other, each in a random direction."""
    for turn in range(operations):
        chosen = draws.below(len(OPERATIONS), Purpose.OPERATION, turn)
        signs = np.where(draws.uniform(Purpose.SIGN, turn) < 0.5, -1.0, 1.0)
        levels = signs * strength / MAX_STRENGTH
        changed = pictures.clone()
        for number, operation in enumerate(OPERATIONS.values()):
            rows = np.flatnonzero(chosen == number)
            if len(rows):
                where = torch.from_numpy(rows).to(pictures.device)
                changed[where] = operation(pictures[where], levels[rows])
        pictures = changed
    return pictures
