"""A test set of images: labelled images that a model is evaluated on, decoded one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.data.images import cifar, idx, reader, sheets
from bertsmith.data.images.bad_images import BadImages
from bertsmith.data.images.decoding import DecodingConfig
from bertsmith.data.images.listed import Listed
from bertsmith.data.images.listing import KNOWN, has_listed_part, list_part
from bertsmith.errors import TextError
from bertsmith.inference.image_inputs import NamedImage


@dataclass(frozen=True)
class ImageTestSet:
    """Images with their names and the names of their classes, and the rows that were left out, in one line."""

    images: Sequence[NamedImage]
    labels: Sequence[str]
    bad: str


def read_test_set(
    data: Path,
    channels: int,
    *,
    columns: tuple[str | None, str | None] = (None, None),
    root: Path | None = None,
) -> ImageTestSet:
    """The images of a folder by class, a table with paths, or CIFAR's and MNIST's files; of `test`, if there is one.

    Where there is none, of `val`. `columns` name those of paths and labels in a table, whose paths begin at `root`.
    """
    if not data.exists():
        raise TextError(data, "does not exist", "Name a folder of images by class, or a table with their paths")
    if data.is_dir() and any(one.find_files(data, "test") for one in (cifar, idx, sheets)):
        return _of_arrays(data, "test", channels)
    if data.is_file() and (cifar.is_binary(data) or idx.is_idx(data)):
        return _of_arrays(data, "train", channels)
    bad = BadImages()
    part = next((part for part in ("test", "dev") if has_listed_part(data, part)), "train")
    return _of_files(list_part(data, part, bad, columns=columns, root=root), data, bad)


def _of_files(listed: Sequence[Listed], data: Path, bad: BadImages) -> ImageTestSet:
    if not listed:
        found = f": {bad.describe()}" if bad.counts else ""
        raise TextError(data, f"holds no labelled image{found}", KNOWN)
    return ImageTestSet(
        [NamedImage(str(one.path), one.path) for one in listed], [one.name for one in listed], bad.describe()
    )


def _of_arrays(data: Path, part: str, channels: Any) -> ImageTestSet:
    found = reader.read(data, part, config=DecodingConfig(channels=channels))
    images = [NamedImage(name, pixels) for name, pixels in zip(found.locations, found.images, strict=True)]
    return ImageTestSet(images, [found.classes[label] for label in found.labels.tolist()], found.bad)
