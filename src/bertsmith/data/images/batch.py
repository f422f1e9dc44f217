"""Batches of images: what loader threads gather on the host, as bytes.

Whatever is random about an image is a function of the seed, the epoch and its index, so a batch only says which images
it holds; they are changed on the device, by the `prepare` of an objective.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from bertsmith.data.batch import Batch, Record
from bertsmith.data.images.draws import Draws
from bertsmith.data.images.labelled_images import Image, LabelledImages
from bertsmith.data.sampler import BatchSampler

Shape = tuple[int, ...]  # channels, height and width of an image


@dataclass(frozen=True, kw_only=True)
class FlatImages(Record):
    """Images of any sizes, laid end to end as bytes."""

    values: UInt8[Tensor, "N"]
    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, images: Sequence[Image] | UInt8[Tensor, "N C H W"], rows: Int64[np.ndarray, "B"]) -> "FlatImages":
        """Some of these images."""
        if isinstance(images, Tensor):
            chosen = images[torch.from_numpy(rows)]
            return cls(values=chosen.flatten(), shapes=(tuple(chosen.shape[1:]),) * len(rows))
        parts = [images[row] for row in rows.tolist()]
        return cls(
            values=torch.cat([part.flatten() for part in parts]), shapes=tuple(tuple(part.shape) for part in parts)
        )

    def by_size(self) -> list[tuple[Int64[np.ndarray, "_"], UInt8[Tensor, "_ C _ _"]]]:
        """The images in groups of one size, each with the numbers of its images."""
        if len(set(self.shapes)) == 1:
            return [(np.arange(len(self.shapes)), self.values.view(len(self.shapes), *self.shapes[0]))]
        ends = np.cumsum([np.prod(shape) for shape in self.shapes])
        parts = torch.tensor_split(self.values, ends[:-1].tolist())
        images = [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        groups: dict[Shape, list[int]] = {}
        for row, shape in enumerate(self.shapes):
            groups.setdefault(shape, []).append(row)
        return [(np.array(rows), torch.stack([images[row] for row in rows])) for rows in groups.values()]


@dataclass(frozen=True, kw_only=True)
class ImageBatch(Batch):
    """Images with their labels, and the random numbers by which they are changed."""

    images: FlatImages
    labels: Int64[Tensor, "N"]
    draws: Draws | None  # None: the images as they are, as in evaluations
    mixed: bool = False  # the second half are the partners of the first: changed likewise, then mixed with them

    def __len__(self) -> int:
        """The number of images when they are mixed."""
        return len(self.labels) // (2 if self.mixed else 1)


class ImageSource:
    """The images of a batch by position: their indices, in the order of an epoch, and the source of their draws."""

    def __init__(self, images: LabelledImages, batch_size: int, seed: int) -> None:
        self._sampler, self._seed = BatchSampler(range(len(images)), batch_size, seed, whole=True), seed

    def __call__(self, position: int) -> Draws:
        return Draws(self._seed, position >> 32, self._sampler.rows(position))

    def first_position(self) -> int:
        return self._sampler.first_position()

    def next_position(self, position: int) -> int:
        return self._sampler.next_position(position)

    def epoch(self, position: int) -> float:
        return self._sampler.epoch(position)


def gather(images: LabelledImages, draws: Draws, *, partners: bool = False) -> ImageBatch:
    """A batch for training: these images, and with `partners` those that they are mixed with."""
    if partners:
        others = draws.partners(len(images)).indices
        draws = replace(draws, indices=np.concatenate([draws.indices, others]))
    return replace(gather_unchanged(images, draws.indices), draws=draws, mixed=partners)


def gather_unchanged(images: LabelledImages, rows: Int64[np.ndarray, "B"]) -> ImageBatch:
    """A batch for an evaluation: these images as they are."""
    labels = torch.from_numpy(images.labels)[torch.from_numpy(rows)]
    return ImageBatch(images=FlatImages.of(images.images, rows), labels=labels, draws=None)
