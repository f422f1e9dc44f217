"""Listed images: the paths and classes of image files, by folders or by the rows of a table; nothing is decoded."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertsmith.data.images.bad_images import NO_FILE, OUTSIDE, UNLABELLED, BadImages
from bertsmith.data.images.decoding import SUFFIXES
from bertsmith.data.labelled.column_names import CLASS_COLUMNS, match_columns
from bertsmith.data.labelled.sources import find_source
from bertsmith.data.labelled.tables import Table, open_table
from bertsmith.data.labelled.values import is_missing
from bertsmith.errors import TextError

PATH_COLUMNS = [
    "path",
    "file",
    "filename",
    "file_name",
    "filepath",
    "image_path",
    "image",
    "img",
    "img_path",
]


class Listed(NamedTuple):
    """An image file, its place for messages, and the name of its class."""

    path: Path
    location: str
    name: str


def in_folders(folder: Path) -> Iterator[Listed]:
    """The images of a folder with a folder for each class, sorted by class and name."""
    for one in sorted(folder.iterdir()):
        if one.is_dir() and not one.name.startswith("."):
            for home, folders, names in os.walk(one):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                for name in sorted(names):
                    if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                        path = Path(home, name)
                        yield Listed(path, str(path), one.name)


def anywhere(folder: Path) -> Iterator[Listed]:
    """All images of a folder and of the folders in it, sorted by name, as one class: for training without labels."""
    for home, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                path = Path(home, name)
                yield Listed(path, str(path), "")


def in_table(
    path: Path, bad: BadImages, *, columns: tuple[str | None, str | None] = (None, None), root: Path | None = None
) -> Iterator[Listed]:
    """The images that the rows of a table name, in a folder: that of the table unless another is given."""
    folder = (root or path.parent).resolve()
    table = open_table(find_source(path), {*PATH_COLUMNS, *CLASS_COLUMNS})
    path_column, label_column = _columns(table, *columns)
    for location, row in table.rows((path_column, label_column), bad):
        name, label = row[path_column], row[label_column]
        if not isinstance(name, str) or is_missing(name):
            bad.drop(NO_FILE, location, "names no file")
        elif is_missing(label) or not isinstance(label, str | int | float):
            bad.drop(UNLABELLED, location, "has no label")
        elif not (image := _inside(folder, name)):
            bad.drop(OUTSIDE, location, f"names a file outside of {folder}")
        else:
            whole = isinstance(label, float) and label.is_integer()  # pandas writes 1 as 1.0 in a column with gaps
            yield Listed(image, f"{location} ({name.strip()})", str(int(label) if whole else label).strip())


def holds_paths(path: Path) -> bool:
    """Whether a column of a table holds the names of image files, by its first rows."""
    table = open_table(find_source(path), set())
    return any(_names_images(table, column) for column in table.columns)


def _inside(folder: Path, name: str) -> Path | None:
    """The path of a file in the folder, through no link that leads out of it."""
    try:
        path = (folder / name.strip()).resolve()
    except (OSError, ValueError, RuntimeError):
        return None
    return path if path.is_relative_to(folder) else None


def _columns(table: Table, path: str | None, label: str | None) -> tuple[str, str]:
    """The columns of paths and of labels: those named, or by their usual names, or by what they hold."""
    paths = table.column(path) if path else next(iter(_guesses(table)), None)
    if paths is None:
        raise TextError(table.name, "has no column of paths to images", "Name it")
    if label:
        return paths, table.column(label)
    others = [column for column in table.columns if column != paths]
    found = [match for name in CLASS_COLUMNS for match in match_columns([[name]], others)]
    if not found and len(others) != 1:
        raise TextError(table.name, f"has no column of labels that is known among {', '.join(others)}", "Name it")
    return paths, (found or others)[0]


def _guesses(table: Table) -> Iterator[str]:
    yield from (match for name in PATH_COLUMNS for match in match_columns([[name]], table.columns))
    yield from (column for column in table.columns if _names_images(table, column))


def _names_images(table: Table, column: str) -> bool:
    """Whether all of the first rows name an image file in this column."""
    return bool(table.head) and all(str(row.get(column, "")).strip().lower().endswith(SUFFIXES) for row in table.head)
