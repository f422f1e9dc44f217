"""Image files without labels: those that are named, and all of the folders that are named, in a fixed order."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from bertsmith.data.images.decoding import SUFFIXES
from bertsmith.errors import TextError, suggest


def is_image_path(name: str) -> bool:
    """Whether a path is that of an image: a file by its ending, a folder by the first file in it."""
    path = Path(name)
    try:
        if path.is_dir():
            return next(images_below(path), None) is not None
    except (OSError, ValueError):  # no path at all, as a long text
        return False
    return path.suffix.lower() in SUFFIXES


def list_images(names: Iterable[str | Path]) -> list[Path]:
    """The files that are named, and the images of the folders that are named, sorted by their names."""
    return [path for name in names for path in _listed(Path(name))]


def _listed(path: Path) -> list[Path]:
    if path.is_dir():
        if not (found := list(images_below(path))):
            raise TextError(path, "holds no image", f"Give a folder of {', '.join(SUFFIXES)}")
        return found
    if not path.exists():
        siblings = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        remedy = suggest(path.name, siblings)
        raise TextError(path, "does not exist", remedy if remedy.startswith("Did") else "Name an image or a folder")
    return [path]


def images_below(folder: Path) -> Iterator[Path]:
    """The images of a folder and of the folders in it, sorted by name; hidden ones are left out."""
    for home, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                yield Path(home, name)
