"""Arrays in JSON: bytes from 0 to 255, compressed by zlib and written as base64, and numbers of four digits."""

import base64
import math
import zlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, UInt8

LONG_TEXT = 128  # tokens above which small weights are dropped, so that a page of 512 tokens stays small
THUMBNAIL = 32  # rows and columns of a thumbnail, at most
COARSE = 8  # steps in which rollout is stored for long texts: its rows are smooth, and fine steps hardly compress
LEVEL = 6  # of compression: 9 takes ten times as long for a tenth less
DIGITS = 4  # significant digits of numbers


def encode(values: UInt8[np.ndarray, "..."]) -> str:
    """Bytes as base64 of their zlib compression."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), LEVEL)).decode()


def decode(text: str, *shape: int) -> UInt8[np.ndarray, "..."]:
    """The bytes of such a text, in their shape."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(shape)


def to_bytes(shares: Float32[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Shares from 0 to 1 as bytes from 0 to 255; what is no number is 0."""
    return np.asarray(np.rint(255 * np.clip(np.nan_to_num(shares), 0.0, 1.0)), np.uint8)


def attention_bytes(weights: Float32[np.ndarray, "*_ R C"]) -> UInt8[np.ndarray, "*_ R C"]:
    """Attention weights as bytes; in a long text even ones: weights below 1/255 are 0, and a page is smaller."""
    if max(weights.shape[-2:]) <= LONG_TEXT:
        return to_bytes(weights)
    return np.asarray(np.minimum(2.0 * np.rint(127.5 * np.nan_to_num(weights)), 255), np.uint8)


def scaled_bytes(rows: Float32[np.ndarray, "*_ R C"]) -> UInt8[np.ndarray, "*_ R C"]:
    """Rows as bytes, each scaled so that its largest number is 255; in coarse steps in a long text."""
    largest = rows.max(-1, keepdims=True, initial=0.0)
    stored = to_bytes(rows / np.where(largest > 0, largest, 1.0))
    if max(rows.shape[-2:]) > LONG_TEXT:
        fine = np.where(stored == 255, 255, stored.astype(np.int16) // COARSE * COARSE)
        stored = fine.astype(np.uint8)
    return stored


def thumbnails(weights: Float32[np.ndarray, "L H R C"]) -> UInt8[np.ndarray, "L H N M"]:
    """Each matrix as block maxima of at most 32 rows and columns, scaled so that its largest number is 255."""
    for axis in (2, 3):
        size = weights.shape[axis]
        starts = np.arange(min(size, THUMBNAIL)) * size // min(size, THUMBNAIL)
        weights = np.maximum.reduceat(weights, starts, axis)
    largest = weights.max((2, 3), keepdims=True)
    return to_bytes(weights / np.where(largest > 0, largest, 1.0))


def number(value: float | None) -> float | None:
    """A number with four significant digits; null for none, and for what JSON has no word for."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def numbers(values: Sequence[float | None]) -> list[float | None]:
    """The same for each of several."""
    return [number(value) for value in values]
