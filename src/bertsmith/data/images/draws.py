"""Draws: random numbers of images, each a pure function of the seed, the epoch, the image's index and a purpose.

They are hashed on the host, a few for each image, so that an image is augmented to the same bits in whatever batch,
order or process it comes, and a resumed run goes on as if it had never stopped.
"""

from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from bertsmith.data.batch import on_device
from bertsmith.random_bits import IMAGE, mix, permute, uniform


class Purpose(IntEnum):
    """What a number is drawn for: no two share random bits."""

    CROP_ROW = auto()
    CROP_COLUMN = auto()
    FLIP = auto()
    BRIGHTNESS = auto()
    CONTRAST = auto()
    SATURATION = auto()
    OPERATION = auto()
    SIGN = auto()
    ERASE = auto()
    ERASE_AREA = auto()
    ERASE_ASPECT = auto()
    ERASE_ROW = auto()
    ERASE_COLUMN = auto()
    ERASE_COLOUR = auto()
    PARTNER = auto()
    MIX_KIND = auto()
    MIX_SHARE = auto()
    MIX_ROW = auto()
    MIX_COLUMN = auto()
    MASK = auto()
    CROP_AREA = auto()
    CROP_ASPECT = auto()


@dataclass(frozen=True)
class Draws:
    """The source of random numbers for some images of an epoch."""

    seed: int
    epoch: int
    indices: Int64[np.ndarray, "B"]  # of the images in their dataset

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, rows: Any) -> "Draws":
        """Those of some of the images."""
        return replace(self, indices=self.indices[rows])

    def uniform(self, purpose: Purpose, turn: int = 0) -> Float64[np.ndarray, "B"]:
        """A number in [0, 1) for each image; `turn` counts the draws for one purpose."""
        return uniform(self.seed, IMAGE, self.epoch, int(purpose), turn, self.indices)

    def below(self, counts: int | Int64[np.ndarray, "B"], purpose: Purpose, turn: int = 0) -> Int64[np.ndarray, "B"]:
        """A whole number from 0 to count - 1 for each image."""
        return np.asarray(self.uniform(purpose, turn) * counts).astype(np.int64)  # rounded down

    def partners(self, size: int) -> "Draws":
        """The images with which these are mixed: by a permutation of the whole dataset, another one in each epoch."""
        key = int(mix(self.seed, IMAGE, self.epoch, int(Purpose.PARTNER)))
        return replace(self, indices=permute(self.indices, size, key))


def column(values: np.ndarray, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """A number for each image, on the device, as [B, 1, 1, 1]."""
    return on_device(values, device, dtype)[:, None, None, None]
