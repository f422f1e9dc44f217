"""Preparation: pixels as the numbers that a network reads, by the model folder's preprocessor_config.json.

By default an image is resized, its middle cut out, and normalised, as transformers does it. At its own size it is
normalised alone: a network of patches reads images of any size, whose positions are interpolated.
"""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from bertsmith.data.images.decoding import Pixels, import_pillow
from bertsmith.errors import TextError
from bertsmith.models.convnet import MIN_SIDE
from bertsmith.models.hf.image_classifiers import ImageConfig
from bertsmith.models.hf.image_processor import ImageProcessor, Size
from bertsmith.models.vision_config import VisionConfig

ImageSize = Literal["model", "own"]  # the size that the model folder asks for, or each image's own
MAX_PATCHES = 16_384  # of an image at its own size: attention compares each patch with each


def prepare(pixels: Pixels, processor: ImageProcessor, size: ImageSize = "model") -> Float[Tensor, "C _ _"]:
    """The numbers of an image: resized, cut and normalised; at its own size only normalised."""
    return normalise(pixels if size == "own" else resized(pixels, processor), processor)


def resized(pixels: Pixels, processor: ImageProcessor) -> UInt8[np.ndarray, "C _ _"]:
    """The pixels in the size that the network was trained on."""
    if processor.resize is not None and processor.resize != pixels.shape[1:]:
        pillow = import_pillow()
        height, width = processor.resize
        flat = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
        image = pillow.Image.fromarray(np.ascontiguousarray(flat))
        image = image.resize((width, height), pillow.Image.Resampling[processor.resample.upper()])
        pixels = np.asarray(image).reshape(height, width, -1).transpose(2, 0, 1)
    return pixels if processor.crop is None else middle(pixels, processor.crop)


def middle(pixels: Pixels, size: Size) -> UInt8[np.ndarray, "C _ _"]:
    """The window of [height, width] in the middle; a smaller image gets a black margin, as in transformers."""
    margins = [max(0, wanted - side) for wanted, side in zip(size, pixels.shape[1:], strict=True)]
    if any(margins):
        around = [((margin + 1) // 2, margin // 2) for margin in margins]
        pixels = np.pad(pixels, [(0, 0), *around])
    top, left = ((side - wanted) // 2 for wanted, side in zip(size, pixels.shape[1:], strict=True))
    return pixels[:, top : top + size[0], left : left + size[1]]


def normalise(pixels: Pixels, processor: ImageProcessor) -> Float[Tensor, "C _ _"]:
    """Values between 0 and 1, minus the mean of their channel, by its standard deviation."""
    values = torch.from_numpy(pixels.astype(np.float32)) / 255
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (processor.mean, processor.std))
    return (values - mean) / std


def check_size(name: str, image: Float[Tensor, "C _ _"], config: ImageConfig) -> None:
    """Refuse an image without a patch, or with too many; of a convolutional network, one that is too small."""
    height, width = image.shape[1:]
    patched = isinstance(config, VisionConfig)
    least = config.patch_size if isinstance(config, VisionConfig) else MIN_SIDE
    if min(height, width) < least:
        what = "a patch" if patched else "the least is"
        fact = f"has {width} x {height} pixels, and {what} {least} x {least}"
        raise TextError(name, fact, "Make it larger, or read it in the model's size")
    if (count := (height // least) * (width // least)) > MAX_PATCHES:
        fact = f"has {width} x {height} pixels, which are {count:,} patches and more than {MAX_PATCHES:,}"
        raise TextError(name, fact, "Scale it down, or read it in the model's size")
