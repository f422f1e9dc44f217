"""Decoding: the bytes of an image file as pixels, by Pillow, within limits.

The content decides about the format, not the ending of the name. Turned images (EXIF) are turned upright, an animated
one is its first frame, transparency lies on white, and 16 bits become 8. A header is believed about the size of a
image before a pixel is decoded, so that a small file cannot cost much (a decompression bomb).
"""

import stat
import warnings
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8

from bertsmith.data.images.bad_images import BROKEN, EMPTY, NO_FILE, NO_IMAGE, TOO_LARGE, TOO_SMALL, ImageError
from bertsmith.errors import RunError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
# Few on purpose: Pillow knows more, some of which start other programs (EPS) or are seldom read by anyone.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8")  # of a JPEG, a PNG and a GIF
MAX_PIXELS = 64_000_000
MAX_FILE_BYTES = 1 << 27
WHITE = (255, 255, 255, 255)

Pixels = UInt8[np.ndarray, "C H W"]


@dataclass(frozen=True)
class DecodingConfig:
    """What images become."""

    channels: Literal[1, 3] = 3  # grey, or red, green and blue
    shorter_side: int = 0  # in pixels, to which every image is scaled; 0 keeps each size
    size: tuple[int, int] | None = None  # height and width to which every image is stretched; None keeps each size
    resample: Literal["bilinear", "bicubic"] = "bicubic"  # how it is stretched
    max_pixels: int = MAX_PIXELS  # of an image, before and after it is scaled
    min_side: int = 1  # in pixels, of an image that is read in its own size


def read_file(path: Path, config: DecodingConfig) -> Pixels:
    """The pixels of an image file. Raises ImageError."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # reading a pipe might never end
            raise ImageError(NO_IMAGE, "is not a plain file")
        if not found.st_size:
            raise ImageError(EMPTY, "is empty")
        if found.st_size > MAX_FILE_BYTES:
            raise ImageError(TOO_LARGE, f"is larger than {MAX_FILE_BYTES >> 20} MiB")
        data = path.read_bytes()
    except FileNotFoundError:
        raise ImageError(NO_FILE, "does not exist") from None
    except OSError as error:
        raise ImageError(BROKEN, f"cannot be read ({error.strerror})") from None
    return decode(data, config)


def decode(data: bytes, config: DecodingConfig) -> Pixels:
    """The pixels in the bytes of an image file. Raises ImageError."""
    pillow = import_pillow()
    try:
        image = pillow.Image.open(BytesIO(data), formats=FORMATS)
    except pillow.Image.DecompressionBombError:
        raise ImageError(TOO_LARGE, f"has more than {config.max_pixels:,} pixels") from None
    except Exception:  # decoders raise anything on hostile bytes
        if data.startswith(BEGINNINGS):
            raise ImageError(BROKEN, "cannot be decoded (the file is truncated or damaged)") from None
        raise ImageError(NO_IMAGE, f"is no image of a known format ({', '.join(FORMATS)})") from None
    return from_pillow(image, config)


def from_pillow(image: Any, config: DecodingConfig) -> Pixels:
    """The pixels of an image that Pillow holds already, within the same limits. Raises ImageError."""
    _check_pixels(image.size, config)
    try:
        return _pixels(image, config)
    except ImageError:
        raise
    except Exception as error:  # it may be of a file that was opened and not yet decoded
        raise ImageError(BROKEN, f"cannot be decoded ({error or type(error).__name__})") from None


@cache
def import_pillow() -> Any:
    """Pillow, or one line that says how to install it."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise RunError("images", "Pillow is missing", "Install it with: pip install 'bertsmith[images]'") from None
    # Of odd metadata; sizes are checked here. Once and for all: filters belong to the process, and many threads decode.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    return PIL


def _check_pixels(size: tuple[int, int], config: DecodingConfig) -> None:
    width, height = size
    if width * height > config.max_pixels:
        raise ImageError(TOO_LARGE, f"has {width} x {height} pixels, more than {config.max_pixels:,} in all")


def _pixels(image: Any, config: DecodingConfig) -> Pixels:
    pillow = import_pillow()
    if config.shorter_side:  # JPEG decodes to half, a quarter or an eighth of a side in a fraction of the time
        image.draft(image.mode, (config.shorter_side, config.shorter_side))
    image = pillow.ImageOps.exif_transpose(image)
    if image.mode == "F":
        raise ImageError(BROKEN, "holds fractions and no pixels of 8 or 16 bits")
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip at 255 instead of scaling them
        wide = np.asarray(image).astype(np.int64).clip(0, 0xFFFF)
        image = pillow.Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = pillow.Image.alpha_composite(pillow.Image.new("RGBA", image.size, WHITE), image)
    image = image.convert("RGB" if config.channels == 3 else "L")
    if config.shorter_side and min(image.size) != config.shorter_side:
        size = tuple(max(1, round(side * config.shorter_side / min(image.size))) for side in image.size)
        _check_pixels((size[0], size[1]), config)  # a strip of 1 x 10,000 pixels would grow
        image = image.resize(size, pillow.Image.Resampling.BICUBIC)
    if config.size is not None:
        height, width = config.size
        how = pillow.Image.Resampling.BICUBIC if config.resample == "bicubic" else pillow.Image.Resampling.BILINEAR
        image = image if image.size == (width, height) else image.resize((width, height), how)
    if min(image.size) < config.min_side:
        raise ImageError(TOO_SMALL, f"has {image.width} x {image.height} pixels, less than {config.min_side} a side")
    pixels = np.asarray(image).reshape(image.height, image.width, config.channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
