"""Augmentation: random changes of pictures in training, as tensors on their device; and normalisation."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from bertsmith.data.pictures.colours import jitter
from bertsmith.data.pictures.draws import Draws
from bertsmith.data.pictures.geometry import crop
from bertsmith.data.pictures.mixing import erase
from bertsmith.data.pictures.rand_augment import MAX_STRENGTH, OPERATIONS, rand_augment
from bertsmith.errors import RecipeError

Pictures = UInt8[Tensor, "B C H W"]

LIMITS = {
    "padding": 1 << 12,
    "operations": len(OPERATIONS),
    "strength": MAX_STRENGTH,
    "brightness": 1,
    "contrast": 1,
    "saturation": 1,
    "erasing": 1,
}


@dataclass(frozen=True, kw_only=True)
class AugmentationConfig:
    """The changes, in the order in which they are made; each default is none, but for crops and flips."""

    size: tuple[int, int] | None = None  # height and width of the crop; as large as the pictures by default
    padding: int = 4  # pixels on each side, by reflection, before the crop
    flip: bool = True  # half of the pictures are mirrored, left to right
    brightness: float = 0.0  # colour jitter: the largest change of each factor
    contrast: float = 0.0
    saturation: float = 0.0
    operations: int = 0  # of RandAugment on each picture
    strength: float = 9.0  # of these operations, 0 to 30
    erasing: float = 0.0  # the probability of random erasing

    def __post_init__(self) -> None:
        for name, most in LIMITS.items():
            if not 0 <= getattr(self, name) <= most:
                fact = f"{getattr(self, name)} is not between 0 and {most}"
                raise RecipeError(f"augmentation.{name}", fact, "Choose another number")


def augment(pictures: Pictures, draws: Draws, config: AugmentationConfig) -> UInt8[Tensor, "B C _ _"]:
    """The pictures, changed at random: each is a function of itself, the seed, the epoch and its index alone."""
    height, width = pictures.shape[2:]
    pictures = crop(pictures, draws, config.size or (height, width), padding=config.padding, flip=config.flip)
    by = {"brightness_by": config.brightness, "contrast_by": config.contrast, "saturation_by": config.saturation}
    pictures = jitter(pictures, draws, **by)
    pictures = rand_augment(pictures, draws, operations=config.operations, strength=config.strength)
    return erase(pictures, draws, probability=config.erasing) if config.erasing else pictures


def normalise(
    pictures: UInt8[Tensor, "*B C H W"], mean: Sequence[float], deviation: Sequence[float]
) -> Float[Tensor, "*B C H W"]:
    """Pictures as numbers, of mean 0 and standard deviation 1 where those of their channels, from 0 to 1, are given."""
    channels = pictures.shape[-3]
    if not len(mean) == len(deviation) == channels or min(deviation) <= 0:
        fact = f"{len(mean)} means and {len(deviation)} deviations for {channels} channels"
        raise RecipeError("normalise", fact, "Give one of each, and deviations above 0")
    middle, width = (torch.tensor(each, device=pictures.device)[:, None, None] for each in (mean, deviation))
    return (pictures.float() / 255 - middle) / width
