"""Labelled images: uint8 tensors of any size, each with the number of its class.

Those of one size are one tensor; others are a list in memory or, if they are many, a spool on disk, which is a sequence
too and needs eight bytes an image.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from bertsmith.data.images.bad_images import BadImages
from bertsmith.data.images.decoding import Pixels
from bertsmith.data.spool import Spool
from bertsmith.errors import TextError

MAX_BYTES_IN_MEMORY = 1 << 28  # pixels of files that are held in memory at most
SHAPE = np.dtype("<i4")

Image = UInt8[Tensor, "C H W"]
Found = tuple[str, str, Pixels]  # location, class and pixels of an image


@dataclass(frozen=True, kw_only=True)
class LabelledImages:
    """Images with the numbers of their classes, and what was dropped on the way."""

    images: Sequence[Image] | UInt8[Tensor, "N C H W"]
    labels: Int64[np.ndarray, "N"]
    classes: tuple[str, ...]
    locations: Sequence[str]  # the file of each image, with its number in the file if that holds several
    dropped: dict[str, int]  # how many images, by reason
    bad: str  # the same in one line, with the names of the first ones; empty if there are none
    fingerprint: str  # SHA-256 of pixels, labels and names of the classes
    digests: Int64[np.ndarray, "N"]  # of each image's pixels: those of identical images are the same

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Int64[np.ndarray, "_"]) -> "LabelledImages":
        """Some of the images, as the same kind of sequence."""
        images = self.images
        part: Any = images[torch.from_numpy(rows)] if isinstance(images, Tensor) else None
        if part is None:
            part = images.take(rows) if isinstance(images, Spool) else [images[row] for row in rows.tolist()]
        digest = hashlib.sha256(self.fingerprint.encode() + rows.astype("<i8").tobytes()).hexdigest()
        kept: dict[str, Any] = {"labels": self.labels[rows], "digests": self.digests[rows]}
        locations = [self.locations[row] for row in rows.tolist()]
        return replace(self, images=part, locations=locations, fingerprint=digest, **kept)

    def stacked(self) -> UInt8[Tensor, "N C H W"]:
        """All images as one tensor, if they have one size."""
        if isinstance(self.images, Tensor):
            return self.images
        first = self.images[0].shape
        for image, location in zip(self.images, self.locations, strict=True):
            if image.shape != first:
                sizes = [f"{shape[2]} x {shape[1]}" for shape in (image.shape, first)]
                raise TextError(location, f"has {sizes[0]} pixels and the first one {sizes[1]}", "Cut or scale them")
        return torch.stack(list(self.images))


def from_array(
    pixels: UInt8[np.ndarray, "N C H W"],
    labels: Int64[np.ndarray, "N"],
    classes: tuple[str, ...],
    locations: Sequence[str],
    bad: BadImages,
) -> LabelledImages:
    """Images of one size, from one array."""
    fingerprint = _Fingerprint()
    for image in pixels:
        fingerprint.add(image)
    return _finished(torch.from_numpy(pixels), labels, classes, locations, bad, fingerprint)


def collect(
    found: Iterable[Found],
    classes: tuple[str, ...],
    bad: BadImages,
    folder: Path | None = None,
) -> LabelledImages:
    """Images of any size, one after the other: a few in memory, many in a temporary file of the folder."""
    numbers = {name: number for number, name in enumerate(classes)}
    images: list[Image] | Spool[Image] = []
    size, labels, locations, fingerprint = 0, list[int](), list[str](), _Fingerprint()
    for location, name, pixels in found:
        size += pixels.nbytes
        if isinstance(images, list) and size > MAX_BYTES_IN_MEMORY:
            spool = Spool[Image](_from_record, folder)
            for image in images:
                spool.append(_to_record(image.numpy()))
            images = spool
        if isinstance(images, list):
            images.append(torch.from_numpy(pixels.copy()))  # writable, and not a view of a worker's answer
        else:
            images.append(_to_record(pixels))
        labels.append(numbers[name])
        locations.append(location)
        fingerprint.add(pixels)
    if isinstance(images, Spool):
        images.seal()
    return _finished(images, np.asarray(labels, np.int64), classes, locations, bad, fingerprint)


def _finished(
    images: Sequence[Image] | Tensor,
    labels: Int64[np.ndarray, "N"],
    classes: tuple[str, ...],
    locations: Sequence[str],
    bad: BadImages,
    fingerprint: "_Fingerprint",
) -> LabelledImages:
    return LabelledImages(
        images=images,
        labels=labels,
        classes=classes,
        locations=locations,
        dropped=dict(bad.counts),
        bad=bad.describe(),
        fingerprint=fingerprint.of(labels, classes),
        digests=np.frombuffer(fingerprint.images, np.int64),
    )


class _Fingerprint:
    """The SHA-256 of images that come one after the other, and of their labels; and eight bytes of each image's own."""

    def __init__(self) -> None:
        self._digest, self.images = hashlib.sha256(), bytearray()

    def add(self, pixels: Pixels) -> None:
        record = _to_record(pixels)
        self._digest.update(record)
        self.images += hashlib.blake2b(record, digest_size=8).digest()

    def of(self, labels: Int64[np.ndarray, "N"], classes: tuple[str, ...]) -> str:
        self._digest.update(labels.astype("<i8").tobytes())
        self._digest.update("\0".join(classes).encode("utf-8", "surrogateescape"))
        return self._digest.hexdigest()


def _to_record(pixels: Pixels) -> bytes:
    return np.asarray(pixels.shape, SHAPE).tobytes() + pixels.tobytes()


def _from_record(record: bytes) -> Image:
    head = 3 * SHAPE.itemsize
    pixels = np.frombuffer(record, np.uint8, offset=head).reshape(np.frombuffer(record[:head], SHAPE))
    return torch.from_numpy(pixels.copy())
