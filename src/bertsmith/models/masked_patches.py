"""Images with masked patches: the batch of a masked autoencoder. He et al. 2021, section 3.

The encoder reads the visible patches only. In a flat batch that is nothing but shorter sequences.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from bertsmith.data.batch import Record, end_to_end
from bertsmith.models.patches import Patches


@dataclass(frozen=True, kw_only=True)
class Masking(Record):
    """Which patches of a batch are masked: indices made on the host, which is why no device is waited for."""

    visible: Int[Tensor, "W"]  # the patches that are not masked
    masked: Int[Tensor, "N"]  # the patches that are
    visible_tokens: Int[Tensor, "S"]  # the tokens that the encoder reads: special ones, and those of visible patches
    visible_slots: Int[Tensor, "W"]  # of each visible patch: its token among these
    visible_bounds: Int[Tensor, "ends"]  # int32 [B + 1]: where the visible tokens of each image begin, and the end
    max_visible: int  # no image has more visible tokens
    equal_visible: bool  # every image has as many

    @classmethod
    def of(cls, chosen: Bool[np.ndarray, "P"], sizes: Int64[np.ndarray, "B"], special_tokens: int) -> "Masking":
        """The patches of images of these numbers of patches, of which the chosen ones are masked."""
        image = np.repeat(np.arange(len(sizes)), sizes)
        visible = np.flatnonzero(~chosen)
        lengths = special_tokens + np.bincount(image[visible], minlength=len(sizes))
        bounds, positions = end_to_end(lengths)
        slots = np.flatnonzero(positions >= special_tokens)
        starts = np.cumsum(special_tokens + sizes) - (special_tokens + sizes)  # of each image among all tokens
        tokens = np.repeat(starts, lengths) + positions
        tokens[slots] = visible + special_tokens * (image[visible] + 1)
        return cls(
            visible=torch.from_numpy(visible),
            masked=torch.from_numpy(np.flatnonzero(chosen)),
            visible_tokens=torch.from_numpy(tokens),
            visible_slots=torch.from_numpy(slots),
            visible_bounds=torch.from_numpy(bounds),
            max_visible=int(lengths.max()),
            equal_visible=bool((lengths == lengths[0]).all()),
        )

    def visible_patches(self, patches: Patches) -> Patches:
        """What the encoder reads: images that consist of their visible patches only."""
        return replace(
            patches,
            pixels=patches.pixels.index_select(0, self.visible),
            slots=self.visible_slots,
            bounds=self.visible_bounds,
            position_rows=patches.position_rows.index_select(0, self.visible_tokens),
            max_length=self.max_visible,
            equal_lengths=self.equal_visible,
            one_grid=False,
        )
