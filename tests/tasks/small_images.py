"""Small labelled images for tests: bright, dark, or between."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny import in_a_child
from torch import Tensor

import bertsmith
from bertsmith.data.images.augmentation import AugmentationConfig
from bertsmith.data.images.labelled_images import LabelledImages
from bertsmith.data.images.png import encode
from bertsmith.models.convnet import ConvNetConfig
from bertsmith.models.image_classifier import Normalisation, image_classifier
from bertsmith.models.vision_config import VisionConfig
from bertsmith.nn.init import initialise
from bertsmith.tasks.image_classification import ImageClassification

CLASSES = ("bright", "dark", "middling")
VIT = VisionConfig(image_size=8, patch_size=4, width=16, layers=2, heads=2, feed_forward=32)
CONVNET = ConvNetConfig(width=16)
PLAIN = AugmentationConfig(padding=0, flip=False)
SETTINGS = [f"network.{name}={getattr(VIT, name)}" for name in ("width", "layers", "heads", "feed_forward")]


def pixels(count: int, height: int = 8, width: int = 8, channels: int = 3, seed: int = 0) -> Tensor:
    """Noise upon three levels of brightness; the classes take turns."""
    noise = np.random.default_rng(seed + height * width).integers(0, 90, (count, channels, height, width))
    for number, image in enumerate(noise):
        image += (160, 0, 80)[number % 3]
    return torch.from_numpy(noise.astype(np.uint8))


def labelled(images: Tensor | list[Tensor]) -> LabelledImages:
    names = [f"image {number}" for number in range(len(images))]
    kept: dict[str, Any] = {"locations": names, "dropped": {}, "bad": "", "fingerprint": "test"}
    kept["digests"] = np.arange(len(images))
    return LabelledImages(images=images, labels=np.arange(len(images)) % 3, classes=CLASSES, **kept)


def task(
    config: VisionConfig | ConvNetConfig = VIT,
    augmentation: AugmentationConfig = PLAIN,
    teacher: Any = None,
    **chosen: Any,
) -> ImageClassification:
    """A task on a network whose weights are all random, so that nothing is zero at first."""
    apart = teacher is not None and isinstance(config, VisionConfig) and config.distillation_token
    model = image_classifier(config, len(CLASSES), distilled=apart)
    initialise(model, 1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.empty_like(weight).normal_(0, 0.1, generator=generator))
    normalisation = Normalisation((0.4,) * config.channels, (0.3,) * config.channels)
    settings = ImageClassification.Config(**chosen)
    return ImageClassification(
        model, settings, CLASSES, augmentation=augmentation, normalisation=normalisation, teacher=teacher
    )


def save_folder(folder: Path, count: int = 24, **shape: int) -> Path:
    """The images as PNG files, in a folder for each class."""
    for number, image in enumerate(pixels(count, **shape)):
        path = folder / CLASSES[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(image.numpy()))
    return folder


def train_on_images(folder: Path, out: Path, quiet: Path) -> None:
    """A run of milliseconds a step, in a child process."""
    overrides = [*SETTINGS, "train.steps=24", "train.evaluations=2", "train.checkpoints=8", "data.batch_size=8"]
    options: dict[str, Any] = {"dev": folder, "overrides": [*overrides, "train.precision=float32"]}
    in_a_child(lambda: bertsmith.finetune("vit-tiny", folder, out, **options), quiet)
