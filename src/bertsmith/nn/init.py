"""Weight initialisation: normal with a small deviation, biases 0, norms 1. Devlin et al. 2018.

In pre-norm layers the last matrix of each sublayer is 0, so that a layer is the identity at first and a deep network
can be trained at a high learning rate from its first step. Zhang et al. 2019, "Fixup Initialization".
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

WIDE_STD = 1.0  # standard deviation of WideEmbedding


class WideEmbedding(nn.Embedding):
    """T5's embedding, initialised with deviation 1, as the network scales its logits down. Raffel et al. 2020."""


class ScaledEmbedding(nn.Embedding):
    """An embedding multiplied by the root of its width, to match the sinusoidal positions. Vaswani et al. 2017, 3.4.

    The tied output layer uses the unscaled table, so its numbers begin small.
    """

    def forward(self, ids: Int[Tensor, "T"]) -> Float[Tensor, "T E"]:
        vectors: Tensor = super().forward(ids)
        scaled: Tensor = vectors * self.embedding_dim**0.5
        return scaled


class CustomInit(nn.Module, ABC):
    """A module with an initialisation of its own, which `initialise` calls last."""

    @abstractmethod
    def init_weights(self, generator: torch.Generator) -> None:
        """Initialise its parameters, with random numbers from the generator only."""


@torch.no_grad()
def initialise(module: nn.Module, seed: int | torch.Generator, std: float = 0.02) -> None:
    """Initialise every parameter; the same seed gives the same weights, on the CPU bit for bit.

    Call it before the network moves to another device. As in transformers, and unlike the paper's code, the
    normal distribution is not truncated; unlike in transformers the padding token is like any other, as nothing
    here is padded.
    """
    generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
    for part in module.modules():
        is_norm = isinstance(part, nn.LayerNorm | nn.RMSNorm)
        deviation = WIDE_STD if isinstance(part, WideEmbedding) else std
        deviation = part.embedding_dim**-0.5 if isinstance(part, ScaledEmbedding) else deviation
        for parameter in part.parameters(recurse=False):
            if parameter.ndim >= 2:
                parameter.normal_(0.0, deviation, generator=generator)
            elif is_norm and parameter is part.weight:
                parameter.fill_(1.0)
            else:
                parameter.zero_()
    for part in module.modules():
        if isinstance(part, CustomInit):
            part.init_weights(generator)
