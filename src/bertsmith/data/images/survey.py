"""A survey of images before they are read: whether a path holds any, how large they are, and whether they are grey.

Only the headers of a few files are opened, so that sizes can be chosen before thousands of photographs are decoded.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertsmith.data.images import cifar, idx, sheets
from bertsmith.data.images.bad_images import BadImages
from bertsmith.data.images.decoding import import_pillow
from bertsmith.data.images.image_files import images_below
from bertsmith.data.images.image_table import holds_paths, metadata_table
from bertsmith.data.images.listed import Listed, folders_in, part_folder
from bertsmith.data.images.listing import has_listed_part, is_table, list_part
from bertsmith.data.images.reader import read
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
        folder = part_folder(path, "train") or path
        return any(any(images_below(one)) for one in folders_in(folder)) or metadata_table(folder, None) is not None
    if not path.is_file():
        return False
    if cifar.is_binary(path) or idx.is_idx(path):
        return True
    try:
        return is_table(path) and holds_paths(path, alone=alone)
    except BertsmithError:  # no table at all, which is said by whoever reads it
        return False


def has_part(path: Path, part: str) -> bool:
    """Whether a path has this part, such as `test`, as a folder, as files of its own, or as rows of a table."""
    return (path.is_dir() and _arrays(path, part)) or has_listed_part(path, part)


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
    listed = list_part(path, "train", BadImages(), columns=columns, root=root, labelled=labelled)
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
