"""Evaluation of image classification on a dev set, and its findings: mistakes are shown as small images."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from bertsmith.data.images.labelled_images import LabelledImages
from bertsmith.data.images.png import data_uri
from bertsmith.data.labelled.examples import Example
from bertsmith.tasks.class_findings import ClassificationFindings
from bertsmith.tasks.findings import Findings, Prior
from bertsmith.tasks.image_classification import ImageClassification
from bertsmith.tasks.measure import Evaluations


class ImageFindings(ClassificationFindings):
    """One class for each image."""

    def __init__(self, images: LabelledImages, labels: Sequence[str], prior: Prior | None) -> None:
        super().__init__(labels, prior)
        self.images = images

    def mistake_notes(self, number: int) -> dict[str, Any]:
        return {"row": number}

    def to_dict(self) -> dict[str, Any]:
        found = super().to_dict()
        for mistake in found.get("mistakes", ()):
            row = int(mistake.pop("row"))
            mistake["image"] = data_uri(self.images.images[row].numpy())
        return found


class ImageEvaluator(Evaluations):
    """Evaluates a classifier on dev images in training, without augmentation."""

    def __init__(
        self,
        task: ImageClassification,
        images: LabelledImages,
        device: torch.device,
        batch_size: int,
        prior: Prior | None = None,
    ) -> None:
        super().__init__(task)
        self.images, self.device, self.batch_size, self.prior = images, device, batch_size, prior
        self.classifier = task

    def measure(self) -> tuple[dict[str, float], Findings]:
        found = ImageFindings(self.images, self.classifier.labels, self.prior)
        for start in range(0, len(self.images), self.batch_size):
            rows = np.arange(start, min(start + self.batch_size, len(self.images)))
            batch = self.classifier.collate_unchanged(rows, self.images)
            with torch.inference_mode():
                probabilities = self.classifier.logits(batch, self.device).double().softmax(1).cpu().numpy()
            found.add(*_examples(self.images, rows, probabilities, self.classifier.labels))
            self.progress((start + len(rows)) / len(self.images))
        return found.metrics(), found


def _examples(
    images: LabelledImages, rows: np.ndarray, probabilities: np.ndarray, labels: Sequence[str]
) -> tuple[list[Example], list[dict[str, Any]]]:
    """The images as examples of a classification, and what is predicted for them."""
    examples = [
        Example(location=images.locations[row], texts=(), label=labels[images.labels[row]]) for row in rows.tolist()
    ]
    predictions = [
        {"label": labels[int(row.argmax())], "probabilities": dict(zip(labels, row.tolist(), strict=True))}
        for row in probabilities
    ]
    return examples, predictions
