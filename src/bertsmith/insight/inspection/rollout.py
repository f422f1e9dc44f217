"""Attention rollout: how attention mixes the tokens over several layers. Abnar and Zuidema 2020, section 3."""

import numpy as np
from jaxtyping import Float32


def rollout(weights: Float32[np.ndarray, "L H N N"]) -> Float32[np.ndarray, "L N N"]:
    """After each layer, the share of each token (column) in each hidden vector (row); rows sum to one.

    The mean of a layer's heads and the residual connection, (A + I) / 2, are multiplied over the layers. It treats
    attention as if values and the feed-forward networks passed on what they read unchanged.
    """
    size = weights.shape[-1]
    identity = np.eye(size, dtype=np.float32)
    mixed, layers = identity, []
    for heads in weights:
        step = (heads.mean(0) + identity) / 2
        mixed = (step / step.sum(-1, keepdims=True)) @ mixed
        layers.append(mixed)
    return np.stack(layers) if layers else np.zeros((0, size, size), np.float32)
