"""Patches: pictures of any size cut into squares, laid end to end as one flat sequence without padding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from bertsmith.data.batch import Record, end_to_end
from bertsmith.errors import RecipeError


@dataclass(frozen=True, kw_only=True)
class Patches(Record):
    """The patches of some pictures, row by row; the numbers of a patch are its channels, rows and columns in turn."""

    values: Shaped[Tensor, "T D"]
    rows: Int[Tensor, "T"]  # the position of each patch in the grid of its picture
    columns: Int[Tensor, "T"]
    bounds: Int[Tensor, "ends"]  # int32 [B + 1]: where each picture begins, and the end
    max_length: int  # no picture has more patches than this
    equal_lengths: bool  # every picture has exactly `max_length` patches


def cut(pictures: Shaped[Tensor, "B C H W"] | Sequence[Shaped[Tensor, "_ _ _"]], size: int) -> Patches:
    """The patches of `size` x `size` pixels; every side of a picture is a multiple of that."""
    if not len(pictures):
        raise RecipeError("patches", "there is no picture", "Give at least one")
    shapes = [tuple(picture.shape[-2:]) for picture in pictures]
    for height, width in dict.fromkeys(shapes):
        if height % size or width % size or not height * width:
            fact = f"a picture of {width} x {height} pixels is no whole number of patches of {size} x {size}"
            raise RecipeError("patches", fact, "Crop or scale it")
    one_size = isinstance(pictures, Tensor) or len(set(shapes)) == 1
    groups = [pictures if isinstance(pictures, Tensor) else torch.stack(list(pictures))] if one_size else pictures
    values = torch.cat([_squares(group, size) for group in groups])
    grids = [(height // size, width // size) for height, width in shapes]
    lengths = np.array([height * width for height, width in grids], np.int64)
    bounds, places = end_to_end(lengths)
    rows, columns = np.divmod(places, np.repeat(np.array([width for _, width in grids], np.int32), lengths))
    longest = int(lengths.max())
    return Patches(
        values=values,
        rows=torch.from_numpy(rows).to(values.device),
        columns=torch.from_numpy(columns).to(values.device),
        bounds=torch.from_numpy(bounds).to(values.device),
        max_length=longest,
        equal_lengths=bool((lengths == longest).all()),
    )


def paste(patches: Patches, size: int) -> Iterator[Shaped[Tensor, "_ _ _"]]:
    """The pictures again."""
    for start, end in zip(patches.bounds[:-1].tolist(), patches.bounds[1:].tolist(), strict=True):
        height, width = int(patches.rows[end - 1]) + 1, int(patches.columns[end - 1]) + 1
        squares = patches.values[start:end].reshape(height, width, -1, size, size)
        yield squares.permute(2, 0, 3, 1, 4).reshape(-1, height * size, width * size)


def _squares(pictures: Shaped[Tensor, "*B C H W"], size: int) -> Shaped[Tensor, "_ _"]:
    *_, channels, height, width = pictures.shape
    squares = pictures.reshape(-1, channels, height // size, size, width // size, size)
    return squares.permute(0, 2, 4, 1, 3, 5).reshape(-1, channels * size * size)
