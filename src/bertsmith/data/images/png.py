"""PNG files: pixels as bytes that every browser shows, written without a library."""

import base64
import struct
import zlib

import numpy as np
from jaxtyping import UInt8

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, COLOUR = 0, 2  # of PNG


def encode(pixels: UInt8[np.ndarray, "C H W"]) -> bytes:
    """The bytes of a PNG file of one channel or of three."""
    channels, height, width = pixels.shape
    rows = np.ascontiguousarray(pixels.transpose(1, 2, 0)).reshape(height, width * channels)
    unfiltered = np.concatenate([np.zeros((height, 1), np.uint8), rows], 1)  # a byte before each row: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, GREY if channels == 1 else COLOUR, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(unfiltered.tobytes(), 9)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def data_uri(pixels: UInt8[np.ndarray, "C H W"], side: int = 96) -> str:
    """An image for a page that stands alone, made smaller than `side` by leaving out rows and columns."""
    step = -(-max(pixels.shape[1:]) // side)
    return "data:image/png;base64," + base64.b64encode(encode(pixels[:, ::step, ::step])).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
