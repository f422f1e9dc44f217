"""The images of a run: the training part and the dev part, in the size that the network reads."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertsmith import terminal
from bertsmith.data.images import reader
from bertsmith.data.images.decoding import DecodingConfig
from bertsmith.data.images.labelled_images import LabelledImages
from bertsmith.data.images.survey import has_part
from bertsmith.errors import TextError
from bertsmith.models.image_classifier import Normalisation
from bertsmith.recipe import ImageDataConfig, ImageFineTune
from bertsmith.runs.image_dev_split import duplicates, hold_out
from bertsmith.runs.task_data import progress_line
from bertsmith.tasks.findings import Prior

MEASURED = 4_096  # images whose mean and deviation are measured, evenly spaced
CHUNK = 1_024  # images that are stretched at a time
MIN_STD = 1 / 255  # of a channel, even where it never changes


@dataclass(frozen=True)
class ImageData:
    """The training and dev images of a run."""

    train: LabelledImages
    dev: LabelledImages
    dev_source: str  # where the dev images come from

    @property
    def fingerprint(self) -> str:
        return f"{self.train.fingerprint} {self.dev.fingerprint}"

    @property
    def prior(self) -> Prior:
        """How often the training images are of each class."""
        counts = np.bincount(self.train.labels, minlength=len(self.train.classes)).tolist()
        return Prior(counts={name: count for name, count in zip(self.train.classes, counts, strict=True) if count})

    def lines(self) -> Iterator[str]:
        """What was read, and what was left out, for people."""
        for name, part, source in (
            ("training", self.train, f"{len(self.train.classes)} classes"),
            ("dev", self.dev, self.dev_source),
        ):
            yield f"{terminal.count_of(len(part), f'{name} image')}: {source}"
            if part.bad:
                yield f"  left out: {part.bad}"
        yield from map("  ".__add__, duplicates(self.train, self.dev))
        if rare := self._single_images():
            yield f"  {rare}"

    def _single_images(self) -> str:
        """A warning where most classes have one image, as where a column of names was taken for labels."""
        counts = np.bincount(np.concatenate([self.train.labels, self.dev.labels]))
        single, classes = int((counts == 1).sum()), int((counts > 0).sum())
        return f"{single:,} of {classes:,} classes have one image: are they classes?" if 2 * single > classes else ""


def read(recipe: ImageFineTune, patch: int = 1) -> ImageData:
    """Read both parts; without dev images, a tenth of the training images is held out, stratified by class.

    Images of their own sizes that are smaller than a patch are left out.
    """
    given = recipe.data
    train = read_part(given, recipe.out, given.train, "train", patch=patch)
    if len(set(train.labels.tolist())) < 2:
        fact = f"holds images of one class only, '{train.classes[train.labels[0]]}'"
        raise TextError(given.train, fact, "Give a folder with a folder for each class")
    if given.dev is not None:
        dev = read_part(given, recipe.out, given.dev, _dev_part(given.dev), train.classes, patch=patch)
        source = str(given.dev)
    elif part := next((part for part in ("dev", "test") if has_part(given.train, part)), None):
        dev = read_part(given, recipe.out, given.train, part, train.classes, patch=patch)
        source = f"the {part} part of {given.train}"
    else:
        train, dev, how = hold_out(train)
        source = f"{len(dev):,} of the training images, held out{how}"
        if len(set(train.labels.tolist())) < 2:
            fact = "holds too few different images to hold any out for evaluation"
            raise TextError(given.train, fact, "Give at least two images of each class, or dev images: --dev")
    return ImageData(train, dev, source)


def normalisation(images: LabelledImages) -> Normalisation:
    """The mean and the deviation of each channel, over evenly spaced images."""
    sums, squares, count = np.zeros(3), np.zeros(3), 0
    for row in range(0, len(images), max(1, len(images) // MEASURED)):
        pixels = images.images[row].double().flatten(1).numpy() / 255
        channels = len(pixels)
        sums[:channels] += pixels.sum(1)
        squares[:channels] += (pixels * pixels).sum(1)
        count += pixels.shape[1]
    mean = sums[:channels] / count
    std = np.sqrt(np.maximum(squares[:channels] / count - mean * mean, MIN_STD**2))
    return Normalisation(tuple(round(float(one), 4) for one in mean), tuple(round(float(one), 4) for one in std))


def read_part(
    given: ImageDataConfig,
    out: Path,
    path: Path,
    part: str,
    classes: tuple[str, ...] = (),
    *,
    labelled: bool = True,
    patch: int = 1,
) -> LabelledImages:
    """The images of a path, in the size and the colours of the recipe; many are kept in a file of the run's folder."""
    channels: dict[int, DecodingConfig] = {1: DecodingConfig(channels=1), 3: DecodingConfig(channels=3)}
    size = (given.size, given.size) if given.fit == "stretch" else None
    with progress_line(f"reading {path.name}", what="images") as progress:
        found = reader.read(
            path,
            part,
            classes=classes,
            columns=(given.path, given.label),
            root=given.root,
            config=replace(channels[given.channels], size=size, resample=given.resample, min_side=patch),
            policy=given.on_bad_image,
            workers=min(8, os.cpu_count() or 1) if _is_large(path) else 0,
            folder=out if out.is_dir() else None,
            progress=progress,
            labelled=labelled,
        )
    return _fitted(found, given, path)


def _fitted(found: LabelledImages, given: ImageDataConfig, path: Path) -> LabelledImages:
    """Images of files that hold many, which are read as they are, in the size and the colours of the recipe."""
    if given.fit == "stretch" and not isinstance(found.images, Tensor) and isinstance(found.images, list):
        return replace(found, images=torch.stack(found.images))
    if not isinstance(found.images, Tensor):
        return found
    images = found.images
    if images.shape[1] == 3 and given.channels == 1:
        fact = "holds images in colour, and the network reads grey ones"
        raise TextError(path, fact, "Set data.channels=3 with a network of 3 channels")
    if given.fit == "stretch" and tuple(images.shape[2:]) != (given.size, given.size):
        parts = torch.tensor_split(images, range(CHUNK, len(images), CHUNK))
        images = torch.cat([_stretched(part, given) for part in parts])
    return replace(found, images=images)


def _stretched(images: Tensor, given: ImageDataConfig) -> Tensor:
    """Images of another size, by the same kind of interpolation as Pillow's."""
    size = (given.size, given.size)
    floats = torch.nn.functional.interpolate(images.float(), size, mode=given.resample, antialias=True)
    return floats.round().clamp(0, 255).to(torch.uint8)


def _is_large(path: Path) -> bool:
    """Whether it is worth starting worker processes: for more than a few hundred files."""
    if not path.is_dir():
        return path.stat().st_size > 20_000
    return sum(1 for _, _ in zip(path.rglob("*"), range(2_000), strict=False)) >= 2_000


def _dev_part(path: Path) -> str:
    """The part of dev images to read: of a table with rows for training, too, the others."""
    parts = ("dev", "test") if path.is_file() else ()
    return next((part for part in parts if has_part(path, part)), "train")
