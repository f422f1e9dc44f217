"""Listed images: the paths and classes of image files, by folders or by the rows of a table; nothing is decoded."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertsmith.data.images.bad_images import NO_FILE, OUTSIDE, UNLABELLED, BadImages
from bertsmith.data.images.decoding import SUFFIXES
from bertsmith.data.labelled.column_names import CLASS_COLUMNS, find_column, match_columns
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
DEV_FOLDERS = ("val", "valid", "validation", "dev")  # besides `test`: folders around the classes


class Listed(NamedTuple):
    """An image file, its place for messages, and the name of its class."""

    path: Path
    location: str
    name: str


def part_folder(path: Path, part: str) -> Path | None:
    """The folder of a part, such as `train`, around the classes; None where a class itself has that name.

    Images may also lie in it without classes, as far as nothing else lies beside it.
    """
    inside = path / part
    if not inside.is_dir():
        return None
    if any(one.is_dir() and not one.name.startswith(".") for one in inside.iterdir()):
        return inside
    parts = {"train", "test", *DEV_FOLDERS}
    classes = [one for one in path.iterdir() if one.is_dir() and not one.name.startswith(".") and one.name not in parts]
    return None if classes else inside


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
    path: Path,
    bad: BadImages,
    *,
    columns: tuple[str | None, str | None] = (None, None),
    root: Path | None = None,
    labelled: bool = True,
) -> Iterator[Listed]:
    """The images that the rows of a table name, in a folder: that of the table unless another is given.

    Without `labelled` they are one class, and no column of labels is looked for.
    """
    folder = (root or path.parent).resolve()
    table = open_table(find_source(path), {*PATH_COLUMNS, *CLASS_COLUMNS, *filter(None, columns)})
    path_column, label_column = _columns(table, *columns) if labelled else (_path_column(table, columns[0]), None)
    wanted = (path_column,) if label_column is None else (path_column, label_column)
    for location, row in table.rows(wanted, bad):
        name, label = row[path_column], "" if label_column is None else row[label_column]
        if not isinstance(name, str) or is_missing(name):
            bad.drop(NO_FILE, location, "names no file")
        elif label_column is not None and (is_missing(label) or not isinstance(label, str | int | float)):
            bad.drop(UNLABELLED, location, "has no label")
        elif not (image := _inside(folder, name)):
            bad.drop(OUTSIDE, location, f"names a file outside of {folder}")
        else:
            whole = isinstance(label, float) and label.is_integer()  # pandas writes 1 as 1.0 in a column with gaps
            yield Listed(image, f"{location} ({name.strip()})", str(int(label) if whole else label).strip())


def holds_paths(path: Path, *, alone: bool = False) -> bool:
    """Whether a column of a table holds the names of image files, by its first rows.

    `alone`: and whether there is no more than one other column, so that the table is of images and not of texts, too.
    """
    table = open_table(find_source(path), {*PATH_COLUMNS, *CLASS_COLUMNS})
    named = [column for column in table.columns if _names_images(table, column)]
    return bool(named) and not (alone and len(table.columns) - len(named) > 1)


def _inside(folder: Path, name: str) -> Path | None:
    """The path of a file in the folder, through no link that leads out of it."""
    try:
        path = (folder / name.strip()).resolve()
    except (OSError, ValueError, RuntimeError):
        return None
    return path if path.is_relative_to(folder) else None


def _path_column(table: Table, path: str | None) -> str:
    """The column of paths: the one named, or by its usual name, or by what it holds."""
    paths = table.column(path) if path else next(iter(_guesses(table)), None)
    if paths is None:
        raise TextError(table.name, "has no column of paths to images", "Name it: data.path=COLUMN")
    return paths


def _columns(table: Table, path: str | None, label: str | None) -> tuple[str, str]:
    """The columns of paths and of labels: those named, or by their usual names, or by what they hold."""
    paths = _path_column(table, path)
    if label:
        return paths, table.column(label)
    others = [column for column in table.columns if column != paths]
    found = find_column(CLASS_COLUMNS, others)
    if not found and len(others) != 1:
        known = f"that is known among {', '.join(others)}" if others else "beside that of paths"
        raise TextError(table.name, f"has no column of labels {known}", "Name it: data.label=COLUMN")
    return paths, found or others[0]


def _guesses(table: Table) -> Iterator[str]:
    yield from (match for name in PATH_COLUMNS for match in match_columns([[name]], table.columns))
    yield from (column for column in table.columns if _names_images(table, column))


def _names_images(table: Table, column: str) -> bool:
    """Whether all of the first rows name an image file in this column."""
    return bool(table.head) and all(str(row.get(column, "")).strip().lower().endswith(SUFFIXES) for row in table.head)
