"""Attributions to patches by integrated gradients: which parts of an image decided. Sundararajan et al. 2017.

The baseline is an image of the mean colour, whose normalised numbers are all 0. The scores of all patches sum to the
difference of the two outputs (completeness); the gap that the numerical integral leaves is printed with them.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bertsmith.insight.image_inspection.subject import ImageSubject, ReadImage
from bertsmith.insight.inspection.attribution_targets import log_odds
from bertsmith.insight.inspection.attributions import MAX_GAP, MIN_STEPS, SMALLEST, integrate
from bertsmith.insight.inspection.encoded import number, numbers
from bertsmith.models.vision_transformer import ImageClassifier

MAX_STEPS = 128  # points of the path; doubled until the gap is small


@dataclass(frozen=True)
class ImageAttribution:
    """The contribution of every patch to the log-odds of one class."""

    label: str
    scores: list[float]  # of each patch, row by row
    output: float  # of the image
    baseline: float  # of the baseline
    gap: float  # by how much the sum of the scores misses `output - baseline`, as a share of it
    steps: int  # points of the path

    def figures(self) -> dict[str, Any]:
        """The fields as JSON values."""
        rest = {name: number(getattr(self, name)) for name in ("output", "baseline", "gap")}
        return {"label": self.label, "scores": numbers(self.scores), "steps": self.steps, **rest}


def attribute(subject: ImageSubject, image: ReadImage, label: str) -> ImageAttribution:
    """The attributions of a class to the patches of an image."""
    network, index = subject.classifier, subject.labels.index(label)
    assert network is not None
    with torch.inference_mode(False):
        pixels = image.patches(subject).pixels.clone().double()
        baseline = torch.zeros_like(pixels)

        def outputs(points: Float[Tensor, "S P V"]) -> Float[Tensor, "S"]:
            patches = image.patches(subject, len(points))
            return _output(network, replace(patches, pixels=points.flatten(0, 1)), index)

        with torch.no_grad():
            whole, nothing = outputs(torch.stack([pixels, baseline]).float()).tolist()
        steps = MIN_STEPS
        while True:
            scores = integrate(outputs, baseline, pixels, steps)
            gap = abs(float(scores.sum()) - (whole - nothing)) / max(abs(whole - nothing), SMALLEST)
            if gap <= MAX_GAP or steps >= MAX_STEPS:
                break
            steps *= 2
    return ImageAttribution(label, scores.tolist(), whole, nothing, gap, steps)


def _output(network: ImageClassifier, patches: Any, index: int) -> Float[Tensor, "S"]:
    logits = network(patches).mean.double()
    return log_odds(logits, index) if logits.shape[1] > 1 else logits[:, 0]
