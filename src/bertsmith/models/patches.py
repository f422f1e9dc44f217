"""Images as sequences of patches: the flat batch of a vision transformer. Dosovitskiy et al. 2020, section 3.1.

An image is cut into square patches, row by row, and each patch is flattened into one vector. The patches of all
images lie end to end, after the special tokens of their image, whatever the sizes of the images: no padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.data.batch import Record, end_to_end, on_device
from bertsmith.errors import TextError

Grid = tuple[int, int]  # rows and columns of patches in an image


@dataclass(frozen=True, kw_only=True)
class Patches(Record):
    """Images laid end to end as sequences of patches; each begins with its special tokens, which have no pixels."""

    pixels: Float[Tensor, "P V"]  # of each patch: the values of its first channel row by row, then of the next
    slots: Int[Tensor, "P"]  # the token of each patch in the flat sequence
    bounds: Int[Tensor, "ends"]  # int32 [B + 1]: where each sequence begins, and the end
    position_rows: Int[Tensor, "T"]  # of each token in the special tokens' positions and then those of all `grids`
    grids: tuple[Grid, ...]  # the different grids of these images
    max_length: int  # no sequence has more tokens
    equal_lengths: bool  # every sequence has exactly `max_length` tokens
    one_grid: bool  # every sequence is a whole image, and all have the same grid

    @classmethod
    def from_images(
        cls,
        images: Sequence[Float[Tensor, "C _ _"]] | Float[Tensor, "B C _ _"],
        patch_size: int,
        special_tokens: int = 1,
    ) -> "Patches":
        """Images of one size, as one tensor, or of any sizes; pixels after the last whole patch are left out."""
        if not isinstance(images, Tensor) and len({image.shape for image in images}) == 1:
            images = torch.stack(list(images))
        if isinstance(images, Tensor):
            grids = [grid_of(images[0], patch_size)] * len(images)
            pixels = cut(images, patch_size).flatten(0, 1)
        else:
            grids = [grid_of(image, patch_size) for image in images]
            pixels = cut_all(images, grids, patch_size)
        distinct = tuple(dict.fromkeys(grids))
        sizes = [rows * columns for rows, columns in distinct]
        first_rows = dict(zip(distinct, special_tokens + np.cumsum([0, *sizes[:-1]]), strict=True))
        lengths = np.array([special_tokens + rows * columns for rows, columns in grids], np.int64)
        bounds, positions = end_to_end(lengths)
        special = positions < special_tokens
        starts = np.repeat(np.array([first_rows[grid] for grid in grids], np.int64) - special_tokens, lengths)
        device = images[0].device
        return cls(
            pixels=pixels,
            slots=on_device(np.flatnonzero(~special), device),
            bounds=on_device(bounds, device),
            position_rows=on_device(np.where(special, 0, starts) + positions, device),
            grids=distinct,
            max_length=int(lengths.max()),
            equal_lengths=bool((lengths == lengths[0]).all()),
            one_grid=len(distinct) == 1,
        )


def grid_of(image: Float[Tensor, "C _ _"], patch_size: int) -> Grid:
    """How many rows and columns of whole patches an image has."""
    height, width = image.shape[1:]
    if min(height, width) < patch_size:
        fact = f"one of {height} x {width} pixels has no patch of {patch_size} x {patch_size}"
        raise TextError("images", fact, "Make it larger, or take a network with smaller patches")
    return height // patch_size, width // patch_size


def cut(images: Float[Tensor, "B C _ _"], patch_size: int) -> Float[Tensor, "B _ V"]:
    """The patches of images of one size, row by row; within a patch the channels, then its rows, then its columns."""
    rows, columns = grid_of(images[0], patch_size)
    whole = images[:, :, : rows * patch_size, : columns * patch_size]
    count, channels = whole.shape[:2]
    blocks = whole.reshape(count, channels, rows, patch_size, columns, patch_size)
    return blocks.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def cut_all(images: Sequence[Float[Tensor, "C _ _"]], grids: Sequence[Grid], patch_size: int) -> Float[Tensor, "P V"]:
    """The patches of images of any sizes, image by image: one gather, since a GPU waits for each launch."""
    sizes = [grid[0] * grid[1] for grid in grids]
    ends = np.cumsum([image.numel() for image in images])
    shapes = np.array([(end - image.numel(), *image.shape[1:]) for end, image in zip(ends, images, strict=True)])
    starts, heights, widths = np.repeat(shapes, sizes, 0).T
    rows, columns = (
        np.concatenate(one) for one in zip(*(np.indices(grid).reshape(2, -1) for grid in grids), strict=True)
    )
    corners = starts + patch_size * (rows * widths + columns)
    device = images[0].device
    corner, area, width = on_device(np.stack([corners, heights * widths, widths]), device)[..., None, None, None]
    channel, row, column = (torch.arange(size, device=device) for size in (len(images[0]), patch_size, patch_size))
    places = corner + area * channel[:, None, None] + width * row[:, None] + column
    return torch.cat([image.flatten() for image in images])[places.flatten(1)]
