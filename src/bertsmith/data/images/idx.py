"""MNIST's idx files: a header of big-endian sizes, then bytes; one file of images and one of labels; LeCun 1998."""

import re
from pathlib import Path

import numpy as np

from bertsmith.data.images.bad_images import BadImages
from bertsmith.data.images.binary import bare_name, find_file, read_bytes
from bertsmith.data.images.labelled_images import LabelledImages, from_array
from bertsmith.errors import TextError

PARTS = {"train": "train", "test": "t10k"}
IMAGES = re.compile(r"(.+)-images([-.])idx3-ubyte")  # with a dot, as some archives are unpacked
DIGITS = 10
UNSIGNED_BYTES = 8  # the type of elements, the third byte of a file
SIZE = np.dtype(">u4")


def find_files(folder: Path, part: str) -> tuple[Path, Path] | None:
    """The files of images and of labels of a part, `train` or `test`, in a folder."""
    found = (find_file(folder, f"{PARTS.get(part, part)}-images{mark}idx3-ubyte") for mark in "-.")
    images = next(filter(None, found), None)
    return beside(images) if images else None


def is_idx(path: Path) -> bool:
    """Whether a file has the name of a file of images."""
    return IMAGES.fullmatch(bare_name(path)) is not None


def beside(images: Path) -> tuple[Path, Path]:
    """A file of images, and that of their labels."""
    name = IMAGES.sub(r"\1-labels\2idx1-ubyte", bare_name(images))
    labels = find_file(images.parent, name)
    if labels is None:
        raise TextError(images, f"has no labels beside it ({name})", "Get that file, too")
    return images, labels


def read(paths: tuple[Path, Path], bad: BadImages, *, channels: int = 1) -> LabelledImages:
    """The images of one file with the labels of the other; grey ones are repeated for three channels."""
    pixels, labels = _array(paths[0], 3), _array(paths[1], 1).astype(np.int64)
    if len(pixels) != len(labels):
        fact = f"holds {len(pixels):,} images and {paths[1].name} {len(labels):,} labels"
        raise TextError(paths[0], fact, "Get the files of one part")
    classes = tuple(map(str, range(max(DIGITS, int(labels.max()) + 1))))  # the same for a part that lacks the last
    locations = [f"{paths[0]}:{number}" for number in range(len(labels))]
    return from_array(np.repeat(pixels[:, None], channels, 1), labels, classes, locations, bad)


def _array(path: Path, dimensions: int) -> np.ndarray:
    data = read_bytes(path)
    head = 4 + SIZE.itemsize * dimensions
    if len(data) < head or data[:4] != bytes([0, 0, UNSIGNED_BYTES, dimensions]):
        raise TextError(path, f"is no idx file of bytes in {dimensions} dimensions", "Get the file again")
    shape = tuple(map(int, np.frombuffer(data, SIZE, dimensions, 4)))
    size = 1
    for side in shape:
        size *= side  # of Python's integers, which do not overflow
    if not size or size != len(data) - head:
        fact = f"promises {' x '.join(map(str, shape))} bytes and holds {len(data) - head:,}"
        raise TextError(path, fact, "Get the file again")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)
