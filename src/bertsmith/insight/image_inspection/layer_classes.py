"""Classes by layer: the classifier on the class token of every layer, and after distillation on the other token.

As the logit lens of text, nostalgebraist 2020: the classifier was trained on the last layer, and the final norm comes
before it on every layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from bertsmith.insight.image_inspection.subject import ImageSubject
from bertsmith.insight.inspection.encoded import number

TOP = 5  # classes that are kept of each layer


@dataclass(frozen=True)
class LayerClasses:
    """The probability of every class by layer, of each classifier and of what both predict together."""

    names: tuple[str, ...]  # of the readings: a token's name, and "both" after distillation
    layers: tuple[str, ...]
    labels: tuple[str, ...]
    probabilities: Float32[np.ndarray, "R L C"]

    def top(self, reading: int, layer: int) -> list[list[Any]]:
        """The most probable classes, with their probabilities."""
        row = self.probabilities[reading, layer]
        best = np.argsort(-row, kind="stable")[:TOP]
        return [[self.labels[at], number(float(row[at]))] for at in best]

    @property
    def label(self) -> str:
        """The class that is predicted."""
        return str(self.top(len(self.names) - 1, len(self.layers) - 1)[0][0])

    def figures(self) -> dict[str, Any]:
        """The most probable classes, and the course of the one that is predicted, as JSON values."""
        predicted = self.labels.index(self.label)
        return {
            "names": list(self.names),
            "layers": list(self.layers),
            "label": self.label,
            "top": [[self.top(reading, at) for at in range(len(self.layers))] for reading in range(len(self.names))],
            "course": [[number(float(one[predicted])) for one in reading] for reading in self.probabilities],
        }


@torch.no_grad()
def classes_by_layer(subject: ImageSubject, hidden: Sequence[Float[Tensor, "T D"]]) -> LayerClasses | None:
    """The classes by the hidden vectors of every layer; None of a network without a classifier."""
    network = subject.classifier
    if network is None:
        return None
    norm = subject.trunk.final_norm
    states = torch.stack([*(norm(one[:2]) for one in hidden[:-1]), hidden[-1][:2]])
    logits = [network.classifier(states[:, 0])]
    names: tuple[str, ...] = (subject.special_tokens[0],)
    if network.distillation_classifier is not None:
        logits.append(network.distillation_classifier(states[:, 1]))
        logits.append((logits[0] + logits[1]) / 2)
        names = (*subject.special_tokens, "both")
    shares = torch.stack(logits).float().softmax(-1).cpu().numpy()
    layers = ("embeddings", *map(str, range(1, len(hidden))))
    return LayerClasses(names, layers, subject.labels, shares)
