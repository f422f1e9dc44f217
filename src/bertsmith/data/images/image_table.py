"""Tables of images: the paths, classes and parts that rows name; no image is opened."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertsmith.data.images.bad_images import NO_FILE, NO_PART, OUTSIDE, UNLABELLED, BadImages
from bertsmith.data.images.decoding import SUFFIXES
from bertsmith.data.images.listed import PART_NAMES, Listed, part_of
from bertsmith.data.labelled.column_names import CLASS_COLUMNS, find_column, match_columns
from bertsmith.data.labelled.sources import find_source
from bertsmith.data.labelled.tables import Table, open_table
from bertsmith.data.labelled.values import is_missing, is_number
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
SPLIT_COLUMNS = ["split", "subset"]
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # of Hugging Face's imagefolder


def in_table(
    path: Path,
    bad: BadImages,
    part: str = "train",
    *,
    columns: tuple[str | None, str | None] = (None, None),
    root: Path | None = None,
    labelled: bool = True,
) -> Iterator[Listed]:
    """The images that the rows of a table name, in a folder: that of the table unless another is given.

    Where a column says the part of each row, only rows of this one. Without `labelled` the images are one class, and
    no column of labels is looked for.
    """
    folder, table = (root or path.parent).resolve(), _open(path, *columns)
    path_column = _path_column(table, columns[0])
    label_column = _label_column(table, path_column, columns[1]) if labelled else None
    split_column = _split_column(table)
    parts = set[str]()
    wanted = tuple(filter(None, (path_column, label_column, split_column)))
    for location, row in table.rows(wanted, bad):
        if split_column is not None:
            if (found := part_of(row[split_column])) is None:
                bad.drop(NO_PART, location, f"is of none of the parts {', '.join(PART_NAMES)}")
                continue
            parts.add(found)
            if found != part:
                continue
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
    if parts and part not in parts:
        fact = f"has no row of the part '{part}' in its column '{split_column}', only of {', '.join(sorted(parts))}"
        raise TextError(table.name, fact, f"Call the rows to read '{part}'")


def parts_in(path: Path) -> set[str]:
    """The parts that the rows of a table are of; none where no column says it."""
    table = _open(path)
    if (column := _split_column(table)) is None:
        return set()
    return {part for _, row in table.rows((column,), BadImages()) if (part := part_of(row[column]))}


def holds_paths(path: Path, *, alone: bool = False) -> bool:
    """Whether a column of a table holds the names of image files, by its first rows.

    `alone`: and whether there is no more than one other column, so that the table is of images and not of texts, too.
    """
    table = _open(path)
    named = [column for column in table.columns if _names_images(table, column)]
    others = {*table.columns} - {*named, _split_column(table)}
    return bool(named) and not (alone and len(others) > 1)


def refuse_bytes(path: Path) -> None:
    """Refuse a table that holds the bytes of images and not their paths, as those of Hugging Face's Hub do."""
    table = _open(path)
    for column in table.columns:
        _refuse_bytes(table, column)


def metadata_table(folder: Path, label: str | None) -> Path | None:
    """The table of Hugging Face's imagefolder in a folder, if it holds paths and labels by their names."""
    path = next((folder / name for name in METADATA if (folder / name).is_file()), None)
    if path is None or not holds_paths(path):
        return None
    return path if label or find_column(CLASS_COLUMNS, _open(path).columns) else None


def _open(path: Path, *columns: str | None) -> Table:
    return open_table(find_source(path), {*PATH_COLUMNS, *CLASS_COLUMNS, *SPLIT_COLUMNS, *filter(None, columns)})


def _inside(folder: Path, name: str) -> Path | None:
    """The path of a file in the folder, through no link that leads out of it; also as Windows writes paths."""
    try:
        path = (folder / name.strip()).resolve()
        if "\\" in name and not path.exists():
            other = (folder / name.strip().replace("\\", "/")).resolve()
            path = other if other.exists() else path
    except (OSError, ValueError, RuntimeError):
        return None
    return path if path.is_relative_to(folder) else None


def _path_column(table: Table, path: str | None) -> str:
    """The column of paths: the one named, or by its usual name, or by what it holds."""
    paths = table.column(path) if path else next(iter(_guesses(table)), None)
    if paths is None:
        raise TextError(table.name, "has no column of paths to images", "Name it: data.path=COLUMN")
    _refuse_bytes(table, paths)
    return paths


def _label_column(table: Table, paths: str, label: str | None) -> str:
    """The column of labels: the one named, or by its usual name, or the only one that is left."""
    if label:
        return _classes(table, table.column(label))
    others = [column for column in table.columns if column not in (paths, _split_column(table))]
    found = find_column(CLASS_COLUMNS, others)
    if not found and len(others) != 1:
        known = f"that is known among {', '.join(others)}" if others else "beside that of paths"
        raise TextError(table.name, f"has no column of labels {known}", "Name it: data.label=COLUMN")
    return _classes(table, found or others[0])


def _classes(table: Table, column: str) -> str:
    """The column, unless it holds measurements, each of which would be a class of its own."""
    values: list[Any] = [value for row in table.head if not is_missing(value := row.get(column))]
    fractions = [value for value in values if is_number(value) and float(value) % 1]
    if fractions and all(map(is_number, values)):
        fact = f"its labels are numbers with fractions ({fractions[0]} in column '{column}'), and images have classes"
        raise TextError(table.name, fact, "Name a column of classes: data.label=COLUMN")
    return column


def _split_column(table: Table) -> str | None:
    """The column that says the part of each row, by its name and its first values."""
    for column in match_columns([[name] for name in SPLIT_COLUMNS], table.columns):
        values = [value for row in table.head if not is_missing(value := row.get(column))]
        if values and all(map(part_of, values)):
            return column
    return None


def _guesses(table: Table) -> Iterator[str]:
    yield from (match for name in PATH_COLUMNS for match in match_columns([[name]], table.columns))
    yield from (column for column in table.columns if _names_images(table, column))


def _names_images(table: Table, column: str) -> bool:
    """Whether all of the first rows name an image file in this column."""
    return bool(table.head) and all(str(row.get(column, "")).strip().lower().endswith(SUFFIXES) for row in table.head)


def _refuse_bytes(table: Table, column: str) -> None:
    value: Any = next((row[column] for row in table.head if row.get(column) is not None), None)
    if isinstance(value, bytes) or (isinstance(value, dict) and isinstance(value.get("bytes"), bytes)):
        fact = f"holds the bytes of images (column '{column}'), which are not read"
        raise TextError(table.name, fact, "Write them as files, in a folder for each class")
