"""A teacher of image classification: a trained network whose predictions another learns (knowledge distillation).

Hinton et al. 2015; Touvron et al. 2020.
"""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from bertsmith.errors import FolderError
from bertsmith.models.convnet import ConvNetClassifier
from bertsmith.models.hf import image_classifiers
from bertsmith.models.image_classifier import Images, Normalisation, class_logits, image_classifier


class Teacher:
    """The network of a folder, on the same classes; it is no part of the module that learns from it.

    `compiles`: a convolutional network, whose images all have one size, is compiled on a GPU.
    """

    def __init__(self, folder: Path, labels: tuple[str, ...], channels: int, *, compiles: bool) -> None:
        found = image_classifiers.read(folder)
        if set(found.labels) != set(labels):
            fact = f"knows {_named(found.labels)}, and the images are of {_named(labels)}"
            raise FolderError(folder, fact, "Take a teacher that was trained on the same classes")
        if found.config.channels != channels:
            fact = f"reads {found.config.channels} channels, and the network that learns {channels}"
            raise FolderError(folder, fact, f"Train one on images with {channels}: data.channels={channels}")
        distilled = any(name.startswith("distillation_classifier.") for name in found.state_dict)
        self.model = image_classifier(found.config, len(labels), distilled=distilled)
        own = self.model.state_dict()
        self.model.load_state_dict({name: weight for name, weight in found.state_dict.items() if name in own})
        self.model.eval().requires_grad_(False)
        self.normalisation = Normalisation(found.processor.mean, found.processor.std)
        self._order = torch.tensor([found.labels.index(label) for label in labels])
        self._device = torch.device("cpu")
        self._compiles = compiles and isinstance(self.model, ConvNetClassifier)

    def __call__(self, images: Images) -> Float[Tensor, "B classes"]:
        """Its logits of images whose numbers are from 0 to 1, in the order of the learner's classes."""
        device = images[0].device
        if device != self._device:
            self.model.to(device)
            self._order, self._device = self._order.to(device), device
            if self._compiles and device.type == "cuda":
                self.model.compile(dynamic=False)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            return class_logits(self.model, images, self.normalisation)[:, self._order]


def _named(labels: tuple[str, ...]) -> str:
    first = ", ".join(f"'{label}'" for label in labels[:3])
    return f"{len(labels)} classes ({first}{', ...' if len(labels) > 3 else ''})"
