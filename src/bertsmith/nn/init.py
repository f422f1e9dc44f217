"""How weights begin: small and normal, biases at nought, norms at one. Devlin et al. 2018.

Layers with their norms before begin as if they were not there: what they add to the sum is nought at first, so that a
deep network can learn at a high rate from its first step. Zhang et al. 2019, "Fixup Initialization".
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.nn.layers import Layer

WIDE_STD = 1.0  # how far from nought the numbers of a wide table begin


class WideEmbedding(nn.Embedding):
    """A table for a network that divides the scores it makes of it: its numbers begin about one. Raffel et al. 2020."""


class ScaledEmbedding(nn.Embedding):
    """A table whose words are read times the root of its width, as large as the waves that tell their places.

    Words are told by it as it is, and so its numbers begin small. Vaswani et al. 2017, section 3.4.
    """

    def forward(self, ids: Int[Tensor, "T"]) -> Float[Tensor, "T E"]:
        vectors: Tensor = super().forward(ids)
        scaled: Tensor = vectors * self.embedding_dim**0.5
        return scaled


class CustomInit(nn.Module, ABC):
    """A part whose weights begin in a way of its own, whatever the others do."""

    @abstractmethod
    def init_weights(self, generator: torch.Generator) -> None:
        """Give every parameter its first value, with no chance but the generator's."""


@torch.no_grad()
def initialise(module: nn.Module, seed: int | torch.Generator, std: float = 0.02) -> None:
    """Give every parameter its first value; the same seed gives the same weights, on the CPU bit for bit.

    Call it before the network moves to another device. As in transformers, and unlike the paper's code, the
    normal distribution is not cut off; unlike transformers the padding token is like any other, as nothing
    here is padded.
    """
    generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
    for part in module.modules():
        ones = isinstance(part, nn.LayerNorm | nn.RMSNorm)
        own = WIDE_STD if isinstance(part, WideEmbedding) else std
        own = part.embedding_dim**-0.5 if isinstance(part, ScaledEmbedding) else own
        for parameter in part.parameters(recurse=False):
            if parameter.ndim >= 2:
                parameter.normal_(0.0, own, generator=generator)
            elif ones and parameter is part.weight:
                parameter.fill_(1.0)
            else:
                parameter.zero_()
    for part in module.modules():
        if isinstance(part, Layer) and part.pre_norm:
            part.attention.output.weight.zero_()
            if part.has_cross_attention:
                part.cross_attention.output.weight.zero_()
            part.feed_forward.down.weight.zero_()
        if isinstance(part, CustomInit):
            part.init_weights(generator)
