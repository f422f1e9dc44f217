"""The page of a search by image: each query with the images nearest to it, as thumbnails with their similarity."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.data.images.bad_images import ImageError
from bertsmith.data.images.decoding import DecodingConfig, read_file
from bertsmith.insight.page import render
from bertsmith.insight.thumbnail import thumbnail

THUMBNAIL = DecodingConfig(shorter_side=160)


def write(path: Path, model: str, found: Sequence[Mapping[str, Any]]) -> None:
    """The page of queries (`image`) with their `neighbours`, each an `image` and its `cosine`."""
    names = dict.fromkeys(name for one in found for name in (one["image"], *(_names(one))))
    pictures = {name: _picture(Path(name)) for name in names}
    page = render("image_search.html", title=f"Images like these, by {model}", found=found, pictures=pictures)
    files.write_atomic(path, page.encode())


def _names(found: Mapping[str, Any]) -> list[str]:
    return [one["image"] for one in found["neighbours"]]


def _picture(path: Path) -> str:
    """A thumbnail; empty for a file that was there when its vector was made, and is gone."""
    try:
        return thumbnail(read_file(path, THUMBNAIL), 2 * THUMBNAIL.shorter_side)
    except ImageError:
        return ""
