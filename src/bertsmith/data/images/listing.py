"""The listing of a path: the labelled image files of a part, by folders or by a table; nothing is decoded."""

from collections.abc import Sequence
from pathlib import Path

from bertsmith.data.images.bad_images import OUTSIDE, BadImages
from bertsmith.data.images.binary import bare_name
from bertsmith.data.images.image_files import images_below
from bertsmith.data.images.image_table import in_table, metadata_table, parts_in, refuse_bytes
from bertsmith.data.images.listed import Listed, anywhere, folders_in, in_folders, part_folder
from bertsmith.data.labelled.tables import TABLE_SUFFIXES
from bertsmith.errors import TextError

KNOWN = "Give a folder with a folder for each class, a table with paths, or the files of CIFAR-10 or MNIST"


def list_part(
    path: Path,
    part: str,
    bad: BadImages,
    *,
    columns: tuple[str | None, str | None] = (None, None),
    root: Path | None = None,
    labelled: bool = True,
) -> list[Listed]:
    """The images of a part of a folder or of a table; a path without parts is of `train` as a whole."""
    if path.is_dir():
        folder = part_folder(path, part)
        if part != "train" and folder is None:  # not the whole folder: it holds the training images
            raise TextError(path, f"has no folder '{part}'", "Put some images of each class into one")
        folder = folder or path
        table = metadata_table(folder, columns[1]) if labelled else None
        if table is None:
            return list((in_folders if labelled else anywhere)(folder))
        path = table
    elif not is_table(path):
        raise TextError(path, "is no table and no known file of images", KNOWN)
    listed = list(in_table(path, bad, part, columns=columns, root=root, labelled=labelled))
    _check_root(path, listed, bad, root or path.parent)
    return listed


def has_listed_part(path: Path, part: str) -> bool:
    """Whether a folder has this part as a folder, or a table as rows."""
    if path.is_dir():
        return part_folder(path, part) is not None
    return is_table(path) and part in parts_in(path)


def is_table(path: Path) -> bool:
    """Whether a file has the ending of a table."""
    return path.is_file() and Path(bare_name(path)).suffix.lower() in TABLE_SUFFIXES


def missing_images(path: Path, reader: str) -> TextError:
    """The error of a path in which no images are found: what it holds instead, as far as that is known."""
    if path.is_dir() and (images := _beside(part_folder(path, "train") or path)):
        fact = f"holds images without classes ({images[0].name}{', ...' if len(images) > 1 else ''})"
        remedy = "Put those of each class into a folder, or give a table with paths and labels"
        return TextError(images[0].parent, fact, remedy)
    if tables := sorted(path.rglob("*.parquet")) if path.is_dir() else [path] if is_table(path) else []:
        try:
            refuse_bytes(tables[0])
        except TextError as error:
            return error
    remedy = "Give a folder by class or a table with paths; or a network of text, as bert-base"
    return TextError(path, f"holds no images, which '{reader}' reads", remedy)


def _beside(folder: Path) -> Sequence[Path]:
    """The images of a folder that are in none of its folders."""
    return [] if folders_in(folder) else list(images_below(folder))


def _check_root(table: Path, listed: Sequence[Listed], bad: BadImages, root: Path) -> None:
    """Refuse a table none of whose paths leads to a file: it was written from the view of another folder."""
    remedy = f"Paths begin at {root}: set data.root=FOLDER"
    if listed and not any(one.path.exists() for one in listed):
        raise TextError(table, f"names {listed[0].path}, which does not exist, and no file that does", remedy)
    if not listed and OUTSIDE in bad.counts:
        raise TextError(table, f"names files outside of {root} only ({bad.names[OUTSIDE][0]})", remedy)
