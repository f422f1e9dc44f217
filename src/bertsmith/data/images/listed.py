"""Listed images: the paths and classes of image files in folders; nothing is decoded."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertsmith.data.images.image_files import images_below
from bertsmith.errors import TextError

PART_NAMES = {  # of the folders around the classes, and of rows in a table, in any case
    "train": ("train", "training"),
    "dev": ("val", "valid", "validation", "dev", "eval", "evaluation"),
    "test": ("test", "testing"),
}
PARTS = tuple(PART_NAMES)


class Listed(NamedTuple):
    """An image file, its place for messages, and the name of its class."""

    path: Path
    location: str
    name: str


def part_of(name: object) -> str | None:
    """The part that a folder or a value is named after; None for any other name."""
    plain = str(name).strip().casefold()
    return next((part for part, names in PART_NAMES.items() if plain in names), None)


def part_folder(path: Path, part: str) -> Path | None:
    """The folder of a part, such as `train`, around the classes; None where a class itself has that name.

    Images may also lie in it without classes, as far as nothing else lies beside it.
    """
    folders = folders_in(path)
    named = sorted((one for one in folders if part_of(one.name) == part), key=_rank)
    if with_classes := next((one for one in named if folders_in(one)), None):
        return with_classes
    return named[0] if named and all(part_of(one.name) for one in folders) else None


def folders_in(path: Path) -> list[Path]:
    """The folders in a folder, sorted by name, except hidden ones."""
    with os.scandir(path) as entries:
        return sorted(path / one.name for one in entries if one.is_dir() and not one.name.startswith("."))


def in_folders(folder: Path) -> Iterator[Listed]:
    """The images of a folder with a folder for each class, sorted by class and name."""
    for one in folders_in(folder):
        _refuse_parts(folder, one)
        yield from (Listed(path, str(path), one.name) for path in images_below(one))


def anywhere(folder: Path) -> Iterator[Listed]:
    """All images of a folder and of the folders in it, sorted by name, as one class: for training without labels."""
    return (Listed(path, str(path), "") for path in images_below(folder))


def _rank(folder: Path) -> tuple[int, str]:
    """Names of the same part, the most usual first."""
    plain = folder.name.casefold()
    return PART_NAMES[str(part_of(plain))].index(plain), folder.name


def _refuse_parts(folder: Path, one: Path) -> None:
    """Refuse a class that holds the parts, which would all be trained on."""
    parts = {part: inside.name for inside in folders_in(one) if (part := part_of(inside.name))}
    if "train" in parts and len(parts) > 1:
        names = " and ".join(f"{one.name}/{name}" for name in parts.values())
        remedy = f"Put the classes into the parts: {folder / parts['train'] / one.name}"
        raise TextError(folder, f"holds the parts inside of the classes ({names})", remedy)
