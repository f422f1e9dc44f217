"""Augmentation: random changes of images in training, as tensors on their device; and normalisation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from bertsmith.data.batch import on_device
from bertsmith.data.images.batch import FlatImages
from bertsmith.data.images.colours import jitter
from bertsmith.data.images.draws import Draws
from bertsmith.data.images.geometry import centre_crop, crop
from bertsmith.data.images.mixing import erase
from bertsmith.data.images.rand_augment import MAX_STRENGTH, NAMES, rand_augment
from bertsmith.data.images.resized_crop import random_resized_crop
from bertsmith.errors import RecipeError

Images = UInt8[Tensor, "B C H W"]

LIMITS = {
    "padding": 1 << 12,
    "min_area": 1,
    "operations": len(NAMES),
    "strength": MAX_STRENGTH,
    "brightness": 1,
    "contrast": 1,
    "saturation": 1,
    "erasing": 1,
}


@dataclass(frozen=True, kw_only=True)
class AugmentationConfig:
    """The changes, in the order in which they are made; each default is none, but for crops and flips."""

    size: tuple[int, int] | None = None  # height and width of the crop; as large as the images by default
    padding: int = 4  # pixels on each side, by reflection, before the crop
    min_area: float = 1.0  # below 1 a crop is a window of at least this share of the image, stretched to its size
    flip: bool = True  # half of the images are mirrored, left to right
    brightness: float = 0.0  # colour jitter: the largest change of each factor
    contrast: float = 0.0
    saturation: float = 0.0
    operations: int = 0  # of RandAugment on each image
    strength: float = 9.0  # of these operations, 0 to 30
    erasing: float = 0.0  # the probability of random erasing

    def __post_init__(self) -> None:
        if self.size is not None and min(self.size) < 1:
            raise RecipeError("augmentation.size", f"is {list(self.size)}", "Give a height and a width of at least 1")
        for name, most in LIMITS.items():
            if not 0 <= getattr(self, name) <= most:
                fact = f"{getattr(self, name)} is not between 0 and {most}"
                raise RecipeError(f"augmentation.{name}", fact, "Choose another number")


def augment(images: Images, draws: Draws, config: AugmentationConfig) -> UInt8[Tensor, "B C _ _"]:
    """The images, changed at random: each is a function of itself, the seed, the epoch and its index alone."""
    height, width = images.shape[2:]
    size = config.size or (height, width)
    if config.min_area < 1:
        images = random_resized_crop(images, draws, size, min_area=config.min_area, flip=config.flip)
    else:
        images = crop(images, draws, size, padding=config.padding, flip=config.flip)
    by = {"brightness_by": config.brightness, "contrast_by": config.contrast, "saturation_by": config.saturation}
    images = jitter(images, draws, **by)
    images = rand_augment(images, draws, operations=config.operations, strength=config.strength)
    return erase(images, draws, probability=config.erasing) if config.erasing else images


def augment_flat(
    images: FlatImages, draws: Draws | None, config: AugmentationConfig
) -> UInt8[Tensor, "B C _ _"] | list[UInt8[Tensor, "C _ _"]]:
    """The images of a batch, changed at random, or without draws only cut to size: one tensor if they have one size."""
    changed: list[tuple[Int64[np.ndarray, _], UInt8[Tensor, "_ C _ _"]]] = []
    for rows, group in images.by_size():
        if draws is not None:
            group = augment(group, draws[rows], config)
        elif config.size is not None:
            group = centre_crop(group, config.size)
        changed.append((rows, group))
    if len(changed) == 1:
        return changed[0][1]
    order = np.argsort(np.concatenate([rows for rows, _ in changed]))
    flat = [image for _, group in changed for image in group]
    inorder = [flat[place] for place in order.tolist()]
    return torch.stack(inorder) if len({image.shape for image in inorder}) == 1 else inorder


def normalise(
    images: UInt8[Tensor, "*B C H W"], mean: Sequence[float], deviation: Sequence[float]
) -> Float[Tensor, "*B C H W"]:
    """Images as numbers, of mean 0 and standard deviation 1 where those of their channels, from 0 to 1, are given."""
    return standardise(images.float() / 255, mean, deviation)


def standardise(
    images: Float[Tensor, "*B C H W"], mean: Sequence[float], deviation: Sequence[float]
) -> Float[Tensor, "*B C H W"]:
    """The same for images whose numbers are already from 0 to 1, as mixtures are."""
    channels = images.shape[-3]
    if not len(mean) == len(deviation) == channels or min(deviation) <= 0:
        fact = f"{len(mean)} means and {len(deviation)} deviations for {channels} channels"
        raise RecipeError("normalise", fact, "Give one of each, and deviations above 0")
    middle, width = (
        on_device(np.array(each), images.device, torch.float32)[:, None, None] for each in (mean, deviation)
    )
    return (images - middle) / width
