"""How images are prepared for a network: sizes, mean and deviation, in transformers' preprocessor_config.json."""

from dataclasses import dataclass, replace
from math import isclose
from typing import Any, Literal, TypeGuard

from bertsmith.errors import FolderError
from bertsmith.files import short_repr
from bertsmith.models.hf.values import number, require

PREPROCESSOR = "preprocessor_config.json"
Resample = Literal["bilinear", "bicubic"]
UNSUPPORTED = {0: "nearest", 1: "lanczos", 4: "box", 5: "hamming"}
RESAMPLES: dict[Resample, int] = {"bilinear": 2, "bicubic": 3}  # Pillow's numbers
Size = tuple[int, int]  # height and width in pixels
MAX_SIDE = 1 << 14  # pixels
RESCALE = 1 / 255  # from bytes to numbers between 0 and 1


@dataclass(frozen=True, kw_only=True)
class ImageProcessor:
    """How an image becomes numbers: resized, its middle cut out, and normalised by channel."""

    resize: Size | None = (224, 224)
    crop: Size | None = None  # of the middle, after resizing
    resample: Resample = "bilinear"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)  # of each channel, of values between 0 and 1
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    def for_network(self, image_size: int, channels: int) -> "ImageProcessor":
        """The same for images of another size, and with as many channels."""
        square = (image_size, image_size)
        scaled = None if self.resize is None or self.crop is None else self.resize[0] * image_size // self.crop[0]
        resize, crop = (square, None) if scaled is None else ((scaled, scaled), square)
        fitting = replace(self, resize=resize, crop=crop)
        if len(self.mean) == channels:
            return fitting
        return replace(fitting, mean=self.mean[:1] * channels, std=self.std[:1] * channels)

    def to_json(self, beginning: str) -> dict[str, Any]:
        """The contents of preprocessor_config.json, for the class whose name has this beginning."""
        keys: dict[str, Any] = {
            "image_processor_type": f"{beginning}ImageProcessor",
            "do_resize": self.resize is not None,
            "do_center_crop": self.crop is not None,
            "do_rescale": True,
            "do_normalize": True,
            "rescale_factor": RESCALE,
            "resample": RESAMPLES[self.resample],
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }
        for key, size in (("size", self.resize), ("crop_size", self.crop)):
            if size is not None:
                keys[key] = {"height": size[0], "width": size[1]}
        return keys


def processor_from_json(keys: dict[str, Any], defaults: ImageProcessor, channels: int, path: object) -> ImageProcessor:
    """The processor of a preprocessor_config.json. Keys that are left out have the defaults' values."""
    require(keys, "do_rescale", True, path)
    factor = number(keys.get("rescale_factor", RESCALE), "rescale_factor", False, path)
    if not isclose(factor, RESCALE, rel_tol=1e-6):
        raise FolderError(path, f"rescale_factor is {factor}", f"Only {RESCALE} can be opened")
    named = keys.get("resample", RESAMPLES[defaults.resample])
    resample = next((ours for ours, theirs in RESAMPLES.items() if theirs == named), None)
    if resample is None:
        name = f" ({UNSUPPORTED[named]})" if isinstance(named, int) and named in UNSUPPORTED else ""
        fact = f"resample is {short_repr(named)}{name}, which is not supported"
        raise FolderError(path, fact, "Only 2 (bilinear) or 3 (bicubic) can be opened")
    mean, std = defaults.mean, defaults.std
    if _is_on(keys, "do_normalize", True, path):
        mean = _by_channel(keys, "image_mean", mean, channels, path)
        std = _by_channel(keys, "image_std", std, channels, path)
    else:
        mean, std = (0.0,) * channels, (1.0,) * channels
    if min(std) <= 0:
        raise FolderError(path, f"image_std is {short_repr(std)}", "Give numbers above 0")
    resizes = _is_on(keys, "do_resize", defaults.resize is not None, path)
    crops = _is_on(keys, "do_center_crop", defaults.crop is not None, path)
    return ImageProcessor(
        resize=_size(keys, "size", defaults.resize, path) if resizes else None,
        crop=_size(keys, "crop_size", defaults.crop, path) if crops else None,
        resample=resample,
        mean=mean,
        std=std,
    )


def _is_on(keys: dict[str, Any], key: str, default: bool, path: object) -> bool:
    value = keys.get(key, default)
    if not isinstance(value, bool):
        raise FolderError(path, f"{key} is {short_repr(value)}", "Give true or false")
    return value


def _by_channel(
    keys: dict[str, Any], key: str, default: tuple[float, ...], channels: int, path: object
) -> tuple[float, ...]:
    values = keys.get(key, default)
    if not isinstance(values, list | tuple) or len(values) != channels:
        raise FolderError(path, f"{key} is {short_repr(values)}", f"Give a number for each of {channels} channels")
    return tuple(number(value, key, False, path) for value in values)


def _size(keys: dict[str, Any], key: str, default: Size | None, path: object) -> Size:
    """A size as older versions wrote it, one number for both sides, or as height and width."""
    value = keys.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, dict) and "shortest_edge" in value:
        fact = f"{key} names the shortest_edge ({short_repr(value)}), which is not supported"
        raise FolderError(path, fact, "Only a height and a width can be opened")
    height, width = (value.get("height"), value.get("width")) if isinstance(value, dict) else (value, value)
    if not _is_side(height) or not _is_side(width):
        remedy = f"Give a height and a width of at most {MAX_SIDE} pixels"
        raise FolderError(path, f"{key} is {short_repr(value)}", remedy)
    return height, width


def _is_side(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIDE
