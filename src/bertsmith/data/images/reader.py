"""Labelled images: read from folders by class, tables with paths, CIFAR's and MNIST's files, or sheets.

Bad images are dropped, counted and named, or refused at once, by the policy.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from bertsmith.data.images import cifar, idx, sheets
from bertsmith.data.images.bad_images import UNKNOWN, BadImages, ImageError
from bertsmith.data.images.decoding import DecodingConfig
from bertsmith.data.images.labelled_images import Found, LabelledImages, collect
from bertsmith.data.images.listed import PARTS, Listed
from bertsmith.data.images.listing import KNOWN, list_part
from bertsmith.data.images.workers import decode_all
from bertsmith.data.labelled.bad_rows import Policy
from bertsmith.errors import RecipeError, TextError, suggest

IMAGES_PER_REPORT = 1000  # images between two reports of progress


def read(
    path: str | Path,
    part: str = "train",
    *,
    classes: Sequence[str] = (),
    columns: tuple[str | None, str | None] = (None, None),
    root: Path | None = None,
    config: DecodingConfig | None = None,
    policy: Policy = "skip",
    workers: int = 0,
    folder: Path | None = None,
    progress: Callable[[int], object] = int,
    labelled: bool = True,
) -> LabelledImages:
    """The labelled images of a folder or a file.

    A folder by class may have `train` and `test` folders around the classes. `classes` are those of the training part,
    so that a test part has the same numbers. `columns` name those of paths and labels in a table, whose paths begin at
    `root`. Many images are not held in memory but in a temporary file of `folder`; `progress` is called with the
    number of files decoded so far. Without `labelled` the images of a folder may lie anywhere in it, as one class.
    """
    if part not in PARTS:
        raise RecipeError("part", f"unknown choice '{part}'", suggest(part, PARTS))
    path, bad, chosen = Path(path), BadImages(policy), config or DecodingConfig()
    if not path.exists():
        raise TextError(path, "does not exist")
    images = _read_arrays(path, part, bad, chosen)
    if images is None:
        listed = list_part(path, part, bad, columns=columns, root=root, labelled=labelled)
        names = tuple(classes) or tuple(sorted({one.name for one in listed}, key=_in_order))
        images = collect(_decoded(listed, names, chosen, bad, workers, progress), names, bad, folder)
    if not len(images):
        raise TextError(
            path, f"holds no {'labelled ' if labelled else ''}image" + (f": {images.bad}" if images.bad else ""), KNOWN
        )
    return images


def _read_arrays(path: Path, part: str, bad: BadImages, config: DecodingConfig) -> LabelledImages | None:
    """The images of files that hold many of one size; None where there are none of them."""
    if path.is_dir():
        if found := cifar.find_files(path, part):
            return cifar.read(found, bad)
        if pair := idx.find_files(path, part):
            return idx.read(pair, bad, channels=config.channels)
        return sheets.read(found, bad) if (found := sheets.find_files(path, part)) else None
    if cifar.is_binary(path):
        return cifar.read([path], bad)
    return idx.read(idx.beside(path), bad, channels=config.channels) if idx.is_idx(path) else None


def _decoded(
    listed: list[Listed],
    names: tuple[str, ...],
    config: DecodingConfig,
    bad: BadImages,
    workers: int,
    progress: Callable[[int], object],
) -> Iterator[Found]:
    known = set(names)
    for one in listed:
        if one.name not in known:
            bad.drop(UNKNOWN, one.location, f"has the class {one.name!r}, which is none of {', '.join(names)}")
    files = ((one, one.path) for one in listed if one.name in known)
    with closing(decode_all(files, config, workers)) as decoded:  # a refusal stops the workers
        for count, (one, pixels) in enumerate(decoded, 1):
            if isinstance(pixels, ImageError):
                bad.drop(pixels.reason, one.location, pixels.fact)
            else:
                yield one.location, one.name, pixels
            if count % IMAGES_PER_REPORT == 0:
                progress(count)


def _in_order(name: str) -> tuple[int, str]:
    """Names of classes by the alphabet, and whole numbers by their value."""
    return (int(name) if name.isascii() and name.isdigit() and len(name) < 10 else -1, name)
