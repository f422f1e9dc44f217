"""The scalar mix: a learned weighted sum of all layers for each token. Peters et al. 2018, equation 1."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertsmith.nn.init import CustomInit


class ScalarMix(CustomInit):
    """A sum of layers with softmax-normalised weights, times a scale; the task trains both."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(1))

    def init_weights(self, generator: torch.Generator) -> None:
        self.scores.zero_()  # equal weights
        self.scale.fill_(1.0)

    @property
    def weights(self) -> Float[Tensor, "L"]:
        """The weight of each layer, the lowest first."""
        return self.scores.softmax(0)

    def forward(self, states: Sequence[Float[Tensor, "T D"]]) -> Float[Tensor, "T D"]:
        mixed: Tensor = self.scale * sum(weight * state for weight, state in zip(self.weights, states, strict=True))
        return mixed
