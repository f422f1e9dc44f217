"""Classifiers of images, whatever network they are of: what each reads of an image, and its logits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from bertsmith.data.images.augmentation import standardise
from bertsmith.errors import TextError
from bertsmith.models.convnet import MIN_SIDE, ConvNet, ConvNetClassifier, ConvNetConfig
from bertsmith.models.patches import Patches
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_transformer import ImageClassifier, VisionTransformer

AnyImageClassifier = ImageClassifier | ConvNetClassifier
Images = Float[Tensor, "B C _ _"] | list[Float[Tensor, "C _ _"]]  # of one size, or of many; numbers from 0 to 1
ImageInput = Patches | Float[Tensor, "B C H W"]


@dataclass(frozen=True)
class Normalisation:
    """The mean and the standard deviation of each channel, from 0 to 1, of the images that a network was trained on."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def image_classifier(
    config: VisionConfig | ConvNetConfig, classes: int, *, distilled: bool = False
) -> AnyImageClassifier:
    """The network of a configuration with a classifier; `distilled`: and with one on the distillation token."""
    if isinstance(config, ConvNetConfig):
        return ConvNetClassifier(ConvNet(config), classes)
    return ImageClassifier(VisionTransformer(config), classes, distilled=distilled)


def image_input(model: AnyImageClassifier, images: Images, normalisation: Normalisation) -> ImageInput:
    """Images in the form that a network reads: normalised, and for a vision transformer as patches."""
    mean, std = normalisation.mean, normalisation.std
    if isinstance(model, ImageClassifier):
        return image_patches(model.trunk.config, images, normalisation)
    if not isinstance(images, Tensor):
        raise TextError("images", "are of several sizes, and a convolutional network reads one", "Set data.fit=stretch")
    if min(images.shape[2:]) < MIN_SIDE:
        fact = f"of {images.shape[2]} x {images.shape[3]} pixels are too small for a convolutional network"
        raise TextError("images", fact, f"Give at least {MIN_SIDE} x {MIN_SIDE}")
    return standardise(images, mean, std)


def image_patches(config: VisionConfig, images: Images, normalisation: Normalisation) -> Patches:
    """Images as a vision transformer reads them: normalised, and cut into patches."""
    patches = Patches.from_images(images, config.patch_size, config.special_tokens)
    pixels = patches.pixels.view(-1, config.channels, config.patch_size, config.patch_size)
    return replace(patches, pixels=standardise(pixels, normalisation.mean, normalisation.std).flatten(1))


def sequence_lengths(config: VisionConfig | ConvNetConfig, sizes: Sequence[tuple[int, int]]) -> list[int]:
    """The number of tokens of images of these sizes; to a convolutional network an image is one."""
    if isinstance(config, ConvNetConfig):
        return [1] * len(sizes)
    patch = config.patch_size
    return [config.special_tokens + (height // patch) * (width // patch) for height, width in sizes]


def scaled(images: Tensor | list[Tensor]) -> Images:
    """Bytes as numbers from 0 to 1."""
    if isinstance(images, Tensor):
        return images.float() / 255
    flat = torch.cat([image.flatten() for image in images]).float() / 255
    parts = torch.split(flat, [image.numel() for image in images])
    return [part.view(image.shape) for part, image in zip(parts, images, strict=True)]


@torch.no_grad()
def class_logits(model: AnyImageClassifier, images: Images, normalisation: Normalisation) -> Float[Tensor, "B classes"]:
    """What a trained network says of images, in float32."""
    logits: Tensor = model(image_input(model, images, normalisation)).mean.float()
    return logits
