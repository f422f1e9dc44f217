"""Images as people give them: paths, bytes, Pillow's images, numpy arrays or tensors; one, many, or a folder of them.

Each becomes pixels of uint8, whatever it was. An image that cannot be read is one clear line with its name.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertsmith.data.images.bad_images import ImageError
from bertsmith.data.images.decoding import DecodingConfig, Pixels, decode, from_pillow, import_pillow, read_file
from bertsmith.data.images.image_files import list_images
from bertsmith.errors import TextError
from bertsmith.inference.inputs import short_repr

REMEDY = "Give a path, bytes, an image of Pillow, a numpy array or a tensor, or a list of these"
CHANNELS = (1, 3, 4)  # grey, colours, and colours with transparency
ADDRESSES = ("http://", "https://", "data:", "s3://", "gs://")


class NamedImage(NamedTuple):
    """An image as it was given, and its name in results and messages."""

    name: str
    given: Any


def as_images(given: Any) -> tuple[list[NamedImage], bool]:
    """The images, and whether a single one was given. A folder stands for all images in it."""
    if isinstance(given, str | Path):
        if str(given).startswith(ADDRESSES):
            raise TextError(short_repr(given), "is an address, and no file", "Download it, and give the path or bytes")
        if _is_folder(given):
            return [NamedImage(str(path), path) for path in list_images([given])], False
        return [NamedImage(str(given), Path(given))], True
    if _is_one(given):
        return [NamedImage("image", given)], True
    if given is None or isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise TextError("images", f"is {short_repr(given)}", REMEDY)
    images = []
    for number, one in enumerate(given, 1):
        if isinstance(one, str | Path):
            images.append(NamedImage(str(one), Path(one)))
        elif _is_one(one):
            images.append(NamedImage(f"image {number}", one))
        else:
            raise TextError(f"image {number}", f"is {short_repr(one)}", REMEDY)
    return images, False


def pixels_of(image: NamedImage, config: DecodingConfig) -> Pixels:
    """The pixels of an image, within the limits of `data/images/decoding.py`."""
    name, given = image
    try:
        if isinstance(given, Path):
            return read_file(given, config)
        if isinstance(given, bytes | bytearray | memoryview):
            return decode(bytes(given), config)
        if isinstance(given, Tensor | np.ndarray):
            return _from_array(given, config)
        return from_pillow(given, config)
    except ImageError as error:
        raise TextError(name, error.fact, "Give an image such as a .png or .jpg") from None


def _is_folder(given: str | Path) -> bool:
    try:
        return Path(given).is_dir()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        raise TextError(short_repr(given), "is no path", REMEDY) from None


def _is_one(given: Any) -> bool:
    if isinstance(given, Tensor | np.ndarray):
        return given.ndim < 4
    pillow = hasattr(given, "getbands") and hasattr(given, "convert")  # without importing what may not be installed
    return isinstance(given, bytes | bytearray | memoryview) or pillow


def _from_array(given: Any, config: DecodingConfig) -> Pixels:
    """An array of bytes, or of fractions from 0 to 1, with its channels first or last, or of grey pixels alone.

    Where both ends could be channels, a tensor has them first and an array last, as torch and Pillow have them.
    """
    array = given.detach().cpu() if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    if array.dtype.is_floating_point:
        if not bool(((array >= 0) & (array <= 1)).all()):  # also refuses what is not a number
            raise ImageError("", "holds fractions outside of 0 to 1; give those, or bytes from 0 to 255")
        array = (255 * array.float()).round().to(torch.uint8)
    if array.dtype != torch.uint8:
        raise ImageError("", f"holds {array.dtype}; give bytes (uint8), or fractions from 0 to 1")
    if array.ndim == 2:
        array = array[None]
    elif (
        array.ndim == 3
        and array.shape[-1] in CHANNELS
        and not (array.shape[0] in CHANNELS and isinstance(given, Tensor))
    ):
        array = array.permute(2, 0, 1)
    if array.ndim != 3 or array.shape[0] not in CHANNELS or 0 in array.shape:
        raise ImageError("", f"has the shape {tuple(given.shape)}; give height, width and 1, 3 or 4 channels")
    if len(array) == config.channels:
        if array[0].numel() > config.max_pixels:
            raise ImageError("", f"has more than {config.max_pixels:,} pixels")
        return array.contiguous().numpy()
    pillow = import_pillow()
    pixels = array.permute(1, 2, 0).contiguous().numpy()
    return from_pillow(pillow.Image.fromarray(pixels[..., 0] if len(array) == 1 else pixels), config)
