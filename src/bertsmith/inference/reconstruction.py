"""Reconstructions: what a masked autoencoder sees of an image, what it makes of that, and the image itself."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from bertsmith.data.images.draws import Draws
from bertsmith.models.hf.vision_folder import VisionFolder
from bertsmith.models.image_classifier import Normalisation, image_patches, scaled
from bertsmith.models.masked_patches import Masking
from bertsmith.models.patch_decoder import PatchDecoder
from bertsmith.models.patches import Grid, grid_of
from bertsmith.models.vision_transformer import VisionTransformer
from bertsmith.objectives.masked_patches import VARIANCE_FLOOR, MaskedPatches, choose

GREY = 0.5  # of masked patches, from 0 to 1


@dataclass(frozen=True)
class Reconstruction:
    """An image three times, as bytes: with its masked patches in grey, with their predicted pixels, and as it is."""

    masked: UInt8[np.ndarray, "C H W"]
    reconstructed: UInt8[np.ndarray, "C H W"]
    original: UInt8[np.ndarray, "C H W"]


def reconstruct_by_folder(
    opened: VisionFolder, images: Sequence[UInt8[Tensor, "C _ _"]], seed: int = 0
) -> list[Reconstruction]:
    """Reconstructions by a folder of model type vit_mae; `seed` chooses the masked patches."""
    normalisation = Normalisation(opened.processor.mean, opened.processor.std)
    rate = float(opened.config_json.get("mask_ratio", MaskedPatches.Config.mask_rate))
    relative = bool(opened.config_json.get("norm_pix_loss", False))
    options = {"mask_rate": rate, "normalised_pixels": relative, "seed": seed}
    return reconstruct(opened.trunk(), opened.decoder(), images, normalisation, **options)  # type: ignore[arg-type]


@torch.no_grad()
def reconstruct(
    trunk: VisionTransformer,
    decoder: PatchDecoder,
    images: Sequence[UInt8[Tensor, "C _ _"]],
    normalisation: Normalisation,
    *,
    mask_rate: float = 0.75,
    normalised_pixels: bool = True,
    seed: int = 0,
) -> list[Reconstruction]:
    """Reconstructions of images of any sizes; pixels after the last whole patch are left out.

    Where a network predicts pixels relative to their patch, the mean and the deviation of each masked patch are those
    of the image, as in the figures of the paper: the network does not predict them.
    """
    config, device = trunk.config, next(trunk.parameters()).device
    read = scaled([image.to(device) for image in images])
    grids = [grid_of(image, config.patch_size) for image in read]
    sizes: Int64[np.ndarray, B] = np.array([rows * columns for rows, columns in grids])
    chosen = choose(Draws(seed, 0, np.arange(len(images))), sizes, mask_rate)
    masking = Masking.of(chosen, sizes, config.special_tokens).to(device)
    patches = image_patches(config, read, normalisation)
    pixels = patches.pixels
    predicted = decoder(trunk(masking.visible_patches(patches)), patches, masking).to(pixels.dtype)
    if normalised_pixels:
        variance, mean = torch.var_mean(pixels[masking.masked], -1, keepdim=True)
        predicted = predicted * (variance + VARIANCE_FLOOR).sqrt() + mean
    grey = (GREY - _by_pixel(normalisation.mean, pixels)) / _by_pixel(normalisation.std, pixels)
    contents = [
        pixels.index_copy(0, masking.masked, grey.expand(len(predicted), -1)),
        pixels.index_copy(0, masking.masked, predicted),
        pixels,
    ]
    ends = np.cumsum(sizes)[:-1].tolist()
    columns = [torch.tensor_split(content, ends) for content in contents]
    return [
        Reconstruction(*(_image(part, grid, config.patch_size, normalisation) for part in parts))
        for grid, *parts in zip(grids, *columns, strict=True)
    ]


def _by_pixel(values: tuple[float, ...], pixels: Float[Tensor, "P V"]) -> Float[Tensor, "V"]:
    """A number for each channel as one for each pixel of a patch."""
    return pixels.new_tensor(values).repeat_interleave(pixels.shape[1] // len(values))


def _image(
    patches: Float[Tensor, "P V"], grid: Grid, size: int, normalisation: Normalisation
) -> UInt8[np.ndarray, "C H W"]:
    """Normalised patches as the bytes of their image."""
    rows, columns = grid
    values = patches * _by_pixel(normalisation.std, patches) + _by_pixel(normalisation.mean, patches)
    blocks = values.view(rows, columns, -1, size, size).permute(2, 0, 3, 1, 4)
    image = (blocks.reshape(-1, rows * size, columns * size) * 255).round().clamp(0, 255)
    return np.asarray(image.to(torch.uint8).cpu().numpy())
