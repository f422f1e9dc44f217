"""Image classification: one class for each image, by a vision transformer or a convolutional network.

With a teacher it is distillation (Touvron et al. 2020, section 4): the class token learns the labels, and the
distillation token what the teacher says of the same augmented image. A network without such a token learns both by its
one classifier (Hinton et al. 2015).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from bertsmith.data.batch import Batch
from bertsmith.data.images.augmentation import AugmentationConfig, augment_flat
from bertsmith.data.images.batch import ImageBatch, gather, gather_unchanged
from bertsmith.data.images.draws import Draws
from bertsmith.data.images.labelled_images import LabelledImages
from bertsmith.data.images.mixing import mix_images, soft_targets
from bertsmith.errors import RecipeError
from bertsmith.models.image_classifier import (
    AnyImageClassifier,
    ImageInput,
    Images,
    Normalisation,
    image_input,
    scaled,
    sequence_lengths,
)
from bertsmith.models.patches import Patches
from bertsmith.objectives.base import Objective, Term


@dataclass(frozen=True, kw_only=True)
class PreparedImages(Batch):
    """Augmented images on the device, in the form that the network reads, with their targets."""

    patches: Patches | None  # for a vision transformer
    images: Float[Tensor, "B C H W"] | None  # for a convolutional network
    targets: Float[Tensor, "B classes"]  # the probability of each class
    taught: Float[Tensor, "B classes"] | None  # the logits of the teacher


class ImageClassification(Objective):
    """Cross-entropy with the labels, which mixtures and smoothing make soft, and with a teacher's predictions."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Soft labels, mixtures of images, and what is learnt of a teacher."""

        label_smoothing: float = 0.0  # probability that is spread over all classes
        mixup: float = 0.0  # alpha of mixup, two images added in random shares; 0: none
        cutmix: float = 0.0  # alpha of CutMix, a box of another image; 0: none; with both, one of the two for each
        linear_probe: bool = False  # train the classifier alone, on the features of a frozen network
        distillation: Literal["hard", "soft"] = "hard"  # learn the teacher's class, or its probabilities
        distillation_weight: float = 0.5  # of the teacher's loss, and 1 minus this of the labels'
        temperature: float = 3.0  # of the probabilities in soft distillation

        def __post_init__(self) -> None:
            if not 0 <= self.label_smoothing < 1 or not 0 <= self.distillation_weight <= 1:
                raise ValueError("label_smoothing and distillation_weight are shares, from 0 to 1")
            if not self.temperature > 0:
                raise ValueError(f"temperature is {self.temperature}. Give more than 0, usually 1 to 5")

        @property
        def mixes(self) -> bool:
            """Whether images are mixed with others."""
            return bool(self.mixup or self.cutmix)

    def __init__(
        self,
        model: AnyImageClassifier,
        config: Config,
        labels: tuple[str, ...],
        *,
        augmentation: AugmentationConfig,
        normalisation: Normalisation,
        teacher: Callable[[Images], Float[Tensor, "B classes"]] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.config, self.labels = model, config, labels
        self.augmentation, self.normalisation, self.teacher = augmentation, normalisation, teacher
        if config.linear_probe:
            model.trunk.requires_grad_(False)

    def train(self, mode: bool = True) -> "ImageClassification":
        """A frozen network reads as in an evaluation."""
        super().train(mode)
        if self.config.linear_probe:
            self.model.trunk.eval()
        return self

    def hidden_matrices(self) -> dict[str, int]:
        return {f"model.trunk.{name}": count for name, count in self.model.trunk.matrices().items()}

    def collate(self, draws: Draws, images: LabelledImages) -> ImageBatch:
        """A batch for training."""
        return self._counted(gather(images, draws, partners=self.config.mixes))

    def collate_unchanged(self, rows: Int64[np.ndarray, "B"], images: LabelledImages) -> ImageBatch:
        """A batch for an evaluation, in which nothing is random."""
        return self._counted(gather_unchanged(images, rows))

    def prepare(self, batch: Batch, device: torch.device) -> PreparedImages:
        """The images on the device: augmented, mixed, seen by the teacher, normalised, and cut into patches."""
        assert isinstance(batch, ImageBatch)
        batch = batch.to(device)
        images: Images = scaled(augment_flat(batch.images, batch.draws, self.augmentation))
        own, other, shares = batch.labels, batch.labels, np.ones(len(batch))
        if batch.mixed and batch.draws is not None:
            if not isinstance(images, Tensor):
                remedy = "Set data.fit=stretch, or leave mixup and cutmix out"
                raise RecipeError("task", "images of several sizes cannot be mixed", remedy)
            alphas = {"mixup": self.config.mixup, "cutmix": self.config.cutmix}
            first, second = images.chunk(2)
            images, shares = mix_images(first, second, batch.draws[: len(batch)], **alphas)
            own, other = batch.labels.chunk(2)
        read: ImageInput = image_input(self.model, images, self.normalisation)
        smoothing = self.config.label_smoothing if batch.draws is not None else 0.0
        return PreparedImages(
            patches=read if isinstance(read, Patches) else None,
            images=None if isinstance(read, Patches) else read,
            targets=soft_targets(own, other, shares, len(self.labels), smoothing=smoothing),
            taught=None if self.teacher is None or batch.draws is None else self.teacher(images),
            counts=batch.counts,
        )

    def forward(self, batch: PreparedImages) -> dict[str, Term]:
        logits = self.model(batch.images if batch.patches is None else batch.patches)
        correct = None if self.training else (logits.mean.argmax(1) == batch.targets.argmax(1)).sum()
        if batch.taught is None:
            return {"class": Term(_cross_entropy(logits.mean, batch.targets), correct)}
        weight = self.config.distillation_weight
        learner = logits.classes if logits.distilled is None else logits.distilled
        return {
            "class": Term(_cross_entropy(logits.classes, batch.targets), correct, 1 - weight),
            "teacher": Term(self._distillation_loss(learner, batch.taught), None, weight),
        }

    def logits(self, batch: ImageBatch, device: torch.device) -> Float[Tensor, "B classes"]:
        """The logits of a batch as it is predicted: with two classifiers the mean of both."""
        prepared = self.prepare(batch, device)
        logits: Tensor = self.model(prepared.images if prepared.patches is None else prepared.patches).mean
        return logits.float()

    def _distillation_loss(
        self, logits: Float[Tensor, "B classes"], taught: Float[Tensor, "B classes"]
    ) -> Float[Tensor, ""]:
        """How far predictions are from the teacher's, summed over the images."""
        if self.config.distillation == "hard":
            return F.cross_entropy(logits.float(), taught.argmax(1), reduction="sum")
        temperature = self.config.temperature
        own, other = (F.log_softmax(each.float() / temperature, 1) for each in (logits, taught))
        return F.kl_div(own, other, reduction="sum", log_target=True) * temperature**2

    def _counted(self, batch: ImageBatch) -> ImageBatch:
        """The batch with its counts: images, and tokens for measuring speed."""
        sizes = [self.augmentation.size or (shape[1], shape[2]) for shape in batch.images.shapes[: len(batch)]]
        lengths = sequence_lengths(self.model.trunk.config, sizes)
        counts = {"class": len(lengths), "images": len(lengths), "tokens": sum(lengths)}
        counts["squares"] = sum(length**2 for length in lengths)
        return replace(batch, counts=counts if self.teacher is None else {**counts, "teacher": len(lengths)})


def _cross_entropy(logits: Float[Tensor, "B classes"], targets: Float[Tensor, "B classes"]) -> Float[Tensor, ""]:
    return -(targets * F.log_softmax(logits.float(), 1)).sum()
