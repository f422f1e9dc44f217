"""A folder of a small network of images, and a folder of small images to read with it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from models.test_vision import SMALL as SMALL
from models.test_vision import built as built
from models.test_vision_folder import LABELS, saved
from PIL import Image

from bertsmith.models.convnet import ConvNet, ConvNetClassifier, ConvNetConfig
from bertsmith.models.hf import image_classifiers
from bertsmith.models.hf.image_processor import ImageProcessor
from bertsmith.models.vision_config import VisionConfig


def pixels(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Broad stripes and a bright spot, which survive a change of size, with a little noise."""
    dice = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    waves = [127 * (1 + np.sin(columns / (3 + seed) + rows / (4 + at) + seed)) for at in range(3)]
    noisy = np.stack(waves, -1) + dice.integers(-8, 9, (height, width, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def images(folder: Path) -> Path:
    """Two images of other shapes than the network's, and a file that is none."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(40, 30)).save(folder / "cat.png")
    Image.fromarray(pixels(24, 36, 1)).save(folder / "dog.png")
    (folder / "notes.txt").write_text("no image")
    return folder


def convnet(folder: Path) -> Path:
    """The folder of a convolutional network for the same classes, on images of 16 x 16 pixels."""
    torch.manual_seed(0)
    config, processor = ConvNetConfig(width=16), ImageProcessor(resize=(16, 16))
    weights = ConvNetClassifier(ConvNet(config), len(LABELS)).state_dict()
    image_classifiers.write(folder, config, weights, LABELS, processor, {})
    return folder


def model(folder: Path, config: VisionConfig = SMALL, **options: Any) -> Path:
    """The folder of a classifier of cats, dogs and birds."""
    saved(folder, config, **options)
    return folder
