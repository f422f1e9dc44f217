"""A survey of images before they are read: whether a path holds any, how large they are, and whether they are grey.

Only the headers of a few files are opened, so that sizes can be chosen before thousands of photographs are decoded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertsmith.data.images import cifar, idx, sheets
from bertsmith.data.images.bad_images import BadImages
from bertsmith.data.images.binary import bare_name
from bertsmith.data.images.decoding import SUFFIXES, import_pillow
from bertsmith.data.images.listed import Listed, anywhere, holds_paths, in_folders, in_table, part_folder
from bertsmith.data.images.reader import read
from bertsmith.data.labelled.tables import TABLE_SUFFIXES
from bertsmith.errors import BertsmithError

SAMPLE = 64  # files whose headers are opened, evenly spaced
GREY_MODES = ("1", "L", "LA", "I", "I;16")  # of Pillow


@dataclass(frozen=True)
class Survey:
    """What the images of a path are like."""

    count: int  # images for training, of which some may turn out to be damaged
    height: int  # in pixels; the median, if they differ
    width: int
    grey: bool
    one_size: bool


def holds_images(path: Path, *, alone: bool = False) -> bool:
    """Whether a path is a folder, a table or a file of images, as far as names and the first rows tell.

    `alone`: a table that has other columns besides paths and labels is not, since it may be of texts as well.
    """
    if path.is_dir():
        if any(_arrays(path, part) for part in ("train", "test")):
            return True
        return next(_images_below(part_folder(path, "train") or path), None) is not None
    if not path.is_file():
        return False
    if cifar.is_binary(path) or idx.is_idx(path):
        return True
    if Path(bare_name(path)).suffix.lower() not in TABLE_SUFFIXES:
        return False
    try:
        return holds_paths(path, alone=alone)
    except BertsmithError:  # no table at all, which is said by whoever reads it
        return False


def has_part(path: Path, part: str) -> bool:
    """Whether a folder has this part, `train` or `test`, as a folder or as files of its own."""
    return path.is_dir() and (_arrays(path, part) or part_folder(path, part) is not None)


def survey(
    path: Path,
    *,
    columns: tuple[str | None, str | None] = (None, None),
    root: Path | None = None,
    labelled: bool = True,
) -> Survey | None:
    """The sizes and colours of the images of a path; None where no file can be opened."""
    if (path.is_dir() and _arrays(path, "train")) or cifar.is_binary(path) or idx.is_idx(path):
        images = read(path)
        grey = idx.is_idx(path) or bool(path.is_dir() and idx.find_files(path, "train"))
        height, width = images.stacked().shape[2:]
        return Survey(len(images), height, width, grey=grey, one_size=True)
    if path.is_dir():
        listed = list((in_folders if labelled else anywhere)(part_folder(path, "train") or path))
    else:
        listed = list(in_table(path, BadImages(), columns=columns, root=root, labelled=labelled))
    headers = [found for one in listed[:: max(1, len(listed) // SAMPLE)] if (found := _header(one))]
    if not headers:
        return None
    heights, widths = (np.array([size[side] for size, _ in headers]) for side in (1, 0))
    return Survey(
        len(listed),
        int(np.median(heights)),
        int(np.median(widths)),
        grey=all(mode in GREY_MODES for _, mode in headers),
        one_size=len({size for size, _ in headers}) == 1,
    )


def _header(one: Listed) -> tuple[tuple[int, int], str] | None:
    try:
        with import_pillow().Image.open(one.path) as image:
            return image.size, image.mode
    except BertsmithError:
        raise
    except Exception:  # decoders raise anything on hostile bytes; such a file is counted when it is read
        return None


def _arrays(path: Path, part: str) -> bool:
    try:
        return bool(cifar.find_files(path, part) or idx.find_files(path, part) or sheets.find_files(path, part))
    except BertsmithError:  # some of their files are missing, which is said when they are read
        return True


def _images_below(folder: Path) -> Iterator[Path]:
    return (
        path
        for one in sorted(folder.iterdir())
        if one.is_dir() and not one.name.startswith(".")
        for path in one.rglob("*")
        if path.suffix.lower() in SUFFIXES
    )
