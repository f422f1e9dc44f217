"""Masked autoencoding (MAE): most patches of an image are masked, and their pixels predicted. He et al. 2021.

The encoder reads the visible patches only, a quarter of them, so that a step costs a third of one on whole images.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from bertsmith.data.batch import Batch
from bertsmith.data.images.draws import Draws, Purpose
from bertsmith.models.masked_patches import Masking
from bertsmith.models.patch_decoder import PatchDecoder, PatchDecoderConfig
from bertsmith.models.patches import Patches
from bertsmith.models.vision_transformer import VisionTransformer
from bertsmith.objectives.base import Objective, Term
from bertsmith.random_bits import IMAGE, mix

VARIANCE_FLOOR = 1e-6  # of the pixels of a patch, which may all be equal


@dataclass(frozen=True, kw_only=True)
class PatchBatch(Batch):
    """Images as patches, with those that are masked."""

    patches: Patches
    masking: Masking


class MaskedPatches(Objective):
    """Predict the pixels of masked patches from the visible ones. He et al. 2021, section 3.

    The loss is the mean squared error of the pixels of a masked patch, which are normalised by their own mean and
    deviation: that makes better representations (table 1d), and the details of bright patches count no more than
    those of dark ones.

    Departs from the paper's code: matrices are initialised as everywhere here, those at the end of each sublayer by 0.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        mask_rate: float = 0.75  # of the patches of each image
        normalise_pixels: bool = True  # predict the pixels of a patch without their mean, divided by their deviation
        decoder_layers: int = 8
        decoder_width: int = 512  # of the decoder's hidden vectors
        decoder_heads: int = 16
        decoder_feed_forward: int = 2048  # inner width of the decoder's feed-forward networks

        def __post_init__(self) -> None:
            if not 0 < self.mask_rate < 1:
                raise ValueError(f"mask_rate is {self.mask_rate}. Give a share above 0 and below 1, usually 0.75")

        @property
        def decoder(self) -> PatchDecoderConfig:
            """The sizes of the decoder."""
            return PatchDecoderConfig(
                width=self.decoder_width,
                layers=self.decoder_layers,
                heads=self.decoder_heads,
                feed_forward=self.decoder_feed_forward,
            )

    trunk: VisionTransformer  # type: ignore[assignment]

    def __init__(self, trunk: VisionTransformer, config: Config) -> None:
        super().__init__()
        self.trunk, self.config = trunk, config
        self.decoder = PatchDecoder(trunk.config, config.decoder)

    def forward(self, batch: PatchBatch) -> dict[str, Term]:
        patches, masking = batch.patches, batch.masking
        encoded = self.trunk(masking.visible_patches(patches))
        predicted = self.decoder(encoded, patches, masking)  # the last layer computes only the masked patches
        pixels = patches.pixels.index_select(0, masking.masked)
        return {"pixels": Term(squared_error(predicted, pixels, normalised=self.config.normalise_pixels), None)}

    def hidden_matrices(self) -> dict[str, int]:
        """Those of the decoder are trained as those of the encoder are."""
        decoder = {f"decoder.{name}": count for name, count in self.decoder.matrices().items()}
        return super().hidden_matrices() | decoder


def squared_error(
    predicted: Float[Tensor, "N V"], pixels: Float[Tensor, "N V"], *, normalised: bool
) -> Float[Tensor, ""]:
    """The mean squared error over the pixels of each patch, summed over the patches."""
    pixels = pixels.float()
    if normalised:
        variance, mean = torch.var_mean(pixels, -1, keepdim=True)
        pixels = (pixels - mean) * (variance + VARIANCE_FLOOR).rsqrt()
    return (predicted.float() - pixels).square().mean(-1).sum()


def choose(draws: Draws, sizes: Int64[np.ndarray, "B"], rate: float) -> Bool[np.ndarray, "P"]:
    """Which patches are masked, of images of these numbers of patches: a share of each image, rounded up.

    They are those of the largest random numbers, each a function of the seed, the epoch, the image and the patch.
    """
    image = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    patch = np.arange(len(image)) - starts[image]
    bits = mix(draws.seed, IMAGE, draws.epoch, int(Purpose.MASK), draws.indices[image], patch)
    order = np.argsort(image.astype(np.uint64) << np.uint64(40) | bits >> np.uint64(24), kind="stable")
    visible = (sizes * (1 - rate)).astype(np.int64)
    chosen = np.empty(len(image), np.bool_)
    chosen[order] = patch >= visible[image]
    return chosen
