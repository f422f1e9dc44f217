"""Masked autoencoding (MAE): most patches of an image are masked, and their pixels predicted. He et al. 2021.

The encoder reads the visible patches only, a quarter of them, so that a step costs a third of one on whole images.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from bertsmith.data.batch import Batch
from bertsmith.data.images.augmentation import AugmentationConfig, augment_flat
from bertsmith.data.images.batch import FlatImages
from bertsmith.data.images.draws import Draws, Purpose
from bertsmith.data.images.labelled_images import LabelledImages
from bertsmith.models.image_classifier import Normalisation, image_patches, scaled
from bertsmith.models.masked_patches import Masking
from bertsmith.models.patch_decoder import PatchDecoder, PatchDecoderConfig
from bertsmith.models.patches import Patches
from bertsmith.models.vision_transformer import VisionTransformer
from bertsmith.objectives.base import Objective, Term
from bertsmith.random_bits import IMAGE, mix

VARIANCE_FLOOR = 1e-6  # of the pixels of a patch, which may all be equal


@dataclass(frozen=True, kw_only=True)
class MaskedImageBatch(Batch):
    """Images as bytes, and the patches of them that are masked."""

    images: FlatImages
    draws: Draws | None  # by which they are augmented; None: the images as they are, as in validation
    masking: Masking


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

    def __init__(
        self,
        trunk: VisionTransformer,
        config: Config,
        augmentation: AugmentationConfig | None = None,
        normalisation: Normalisation | None = None,
    ) -> None:
        super().__init__()
        self.trunk, self.config = trunk, config
        self.decoder = PatchDecoder(trunk.config, config.decoder)
        self.augmentation = augmentation or AugmentationConfig(padding=0)
        channels = trunk.config.channels
        self.normalisation = normalisation or Normalisation((0.5,) * channels, (0.5,) * channels)

    def collate(self, draws: Draws, images: LabelledImages) -> MaskedImageBatch:
        """A batch for training: which patches are masked is decided with it, on the host."""
        return self._masked(FlatImages.of(images.images, draws.indices), draws)

    def collate_unchanged(self, draws: Draws, images: LabelledImages) -> MaskedImageBatch:
        """A batch for validation: masked by these draws, but not augmented."""
        return replace(self.collate(draws, images), draws=None)

    def prepare(self, batch: Batch, device: torch.device) -> PatchBatch:
        """The images on the device: augmented, normalised and cut into patches."""
        assert isinstance(batch, MaskedImageBatch)
        batch = batch.to(device)
        images = scaled(augment_flat(batch.images, batch.draws, self.augmentation))
        patches = image_patches(self.trunk.config, images, self.normalisation)
        return PatchBatch(patches=patches, masking=batch.masking, counts=batch.counts)

    def forward(self, batch: PatchBatch) -> dict[str, Term]:
        patches, masking = batch.patches, batch.masking
        encoded = self.trunk(masking.visible_patches(patches))
        predicted = self.decoder(encoded, patches, masking)  # the last layer computes only the masked patches
        pixels = patches.pixels.index_select(0, masking.masked)
        return {"pixels": Term(squared_error(predicted, pixels, normalised=self.config.normalise_pixels), None)}

    def flops(self, attended: float) -> float:
        """Floating-point operations of training per token of whole images, for the mean length of an image.

        The encoder reads the visible tokens, and the decoder all of them.
        """
        length = 1 + (attended - 1) * (1 - self.config.mask_rate)
        encoder = self.trunk.config.flops(length, 0.0) * length / attended
        return encoder + self.config.decoder.of(self.trunk.config).flops(attended, 0.0)

    def hidden_matrices(self) -> dict[str, int]:
        """Those of the decoder are trained as those of the encoder are."""
        decoder = {f"decoder.{name}": count for name, count in self.decoder.matrices().items()}
        return super().hidden_matrices() | decoder

    def _masked(self, images: FlatImages, draws: Draws) -> MaskedImageBatch:
        config = self.trunk.config
        shapes = [self.augmentation.size or (shape[1], shape[2]) for shape in images.shapes]
        sizes = np.array([(height // config.patch_size) * (width // config.patch_size) for height, width in shapes])
        chosen = choose(draws, sizes, self.config.mask_rate)
        lengths = config.special_tokens + sizes
        counts = {"pixels": int(chosen.sum()), "tokens": int(lengths.sum()), "squares": int((lengths**2).sum())}
        counts["images"] = len(lengths)
        masking = Masking.of(chosen, sizes, config.special_tokens)
        return MaskedImageBatch(images=images, draws=draws, masking=masking, counts=counts)


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
