"""A subject: a network of images under inspection, and one image as it reads it."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from bertsmith.data.images.decoding import Pixels
from bertsmith.models.patches import Grid, Patches
from bertsmith.models.vision_transformer import ImageClassifier, VisionTransformer

SPECIAL_TOKENS = ("class token", "distillation token")  # as people read them


@dataclass(frozen=True)
class ImageSubject:
    """A network with its classes, and the facts by which people know it."""

    name: str
    kind: str  # such as vit
    purpose: str
    trunk: VisionTransformer
    classifier: ImageClassifier | None  # None of a network without classes
    labels: tuple[str, ...]

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The names of the tokens before the patches."""
        return SPECIAL_TOKENS[: self.trunk.config.special_tokens]

    def figures(self) -> dict[str, Any]:
        """The facts as JSON values."""
        config, network = self.trunk.config, self.classifier or self.trunk
        return {
            "name": self.name,
            "kind": self.kind,
            "layers": config.layers,
            "heads": config.heads,
            "width": config.width,
            "patch": config.patch_size,
            "parameters": sum(weight.numel() for weight in network.parameters()),
            "purpose": self.purpose,
        }


@dataclass(frozen=True)
class ReadImage:
    """An image as a network reads it: its pixels after resizing and cutting, and the same as normalised numbers."""

    name: str
    pixels: Pixels
    values: Float[Tensor, "C _ _"]
    reconstruction: tuple[Pixels, Pixels, Pixels] | None = None  # by a masked autoencoder: masked, predicted, original

    def patches(self, subject: ImageSubject, copies: int = 1) -> Patches:
        """The image as a batch of one, or of several copies."""
        config = subject.trunk.config
        found = Patches.from_images([self.values] * copies, config.patch_size, config.special_tokens)
        return found.to(subject.trunk.embedding.positions.device)

    def grid(self, subject: ImageSubject) -> Grid:
        """Rows and columns of patches."""
        size = subject.trunk.config.patch_size
        return self.pixels.shape[1] // size, self.pixels.shape[2] // size
