"""How weights begin: small and normal, biases at nought, norms at one. Devlin et al. 2018."""

import torch
from torch import nn


@torch.no_grad()
def initialise(module: nn.Module, seed: int | torch.Generator, deviation: float = 0.02) -> None:
    """Give every parameter its first value; the same seed gives the same weights, on the CPU bit for bit.

    Call it before the network moves to another device. As in transformers, and unlike the paper's code, the
    normal distribution is not cut off; unlike transformers the padding token is like any other, as nothing
    here is padded.
    """
    generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
    for part in module.modules():
        ones = isinstance(part, nn.LayerNorm)
        for parameter in part.parameters(recurse=False):
            if parameter.ndim >= 2:
                parameter.normal_(0.0, deviation, generator=generator)
            elif ones and parameter is part.weight:
                parameter.fill_(1.0)
            else:
                parameter.zero_()
