"""Attention over an image: the weights of every head from each token to each, and attention rollout, kept for a page.

Weights of 200 tokens are small numbers, so their square roots are stored as bytes: a weight is kept to 1/255, and small
ones far better. Of large networks and images the rows of neighbouring patches are averaged, so that a page stays small.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from bertsmith.insight.inspection import encoded
from bertsmith.insight.inspection.rollout import rollout
from bertsmith.models.patches import Grid

MAX_WEIGHTS = 8_000_000  # weights on a page, from which on rows are averaged over blocks of patches


@dataclass(frozen=True)
class ImageAttention:
    """The attention weights of a network on one image, by layer and head. Vig 2019."""

    weights: Float32[np.ndarray, "L H T T"]
    special_tokens: int  # before the patches
    grid: Grid

    @cached_property
    def rollout(self) -> Float32[np.ndarray, "L T T"]:
        """How much of each token's embedding reaches each vector, by layer. Abnar and Zuidema 2020."""
        return rollout(self.weights)

    @property
    def block(self) -> int:
        """The side in patches of the squares whose rows are averaged: 1, 2, 4 and so on."""
        layers, heads, tokens, _ = self.weights.shape
        side = 1
        while layers * heads * tokens * (tokens // side**2) > MAX_WEIGHTS:
            side *= 2
        return side

    def figures(self) -> dict[str, Any]:
        """The weights as JSON values: square roots as compressed bytes."""
        layers, heads, tokens, _ = self.weights.shape
        block = self.block
        rows = [block_rows(layer, self.special_tokens, self.grid, block) for layer in self.weights]
        rolled = block_rows(self.rollout, self.special_tokens, self.grid, block)
        return {
            "layers": layers,
            "heads": heads,
            "tokens": tokens,
            "rows": rows[0].shape[-2],
            "block": block,
            "weights": [encoded.encode(root_bytes(layer)) for layer in rows],
            "rollout": encoded.encode(root_bytes(rolled)),
            "entropy": [[encoded.number(float(one)) for one in layer] for layer in self.entropy],
        }

    @property
    def entropy(self) -> Float32[np.ndarray, "L H"]:
        """The mean entropy of the rows of each head, as a share of the largest possible: 1 looks everywhere alike."""
        weights = np.maximum(self.weights, 1e-12)
        found = -(weights * np.log(weights)).sum(-1).mean(-1) / np.log(self.weights.shape[-1])
        return np.asarray(found, np.float32)


def root_bytes(shares: Float32[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Shares from 0 to 1 as 255 times their square roots."""
    return encoded.to_bytes(np.sqrt(shares))


def block_rows(
    weights: Float32[np.ndarray, "N T T"], special_tokens: int, grid: Grid, block: int
) -> Float32[np.ndarray, "N _ T"]:
    """The rows of special tokens, then the mean rows of each square of `block` x `block` patches, row by row."""
    if block == 1:
        return weights
    special, patches = weights[:, :special_tokens], weights[:, special_tokens:]
    rows, columns = (np.arange(0, side, block) for side in grid)
    square = patches.reshape(len(weights), *grid, -1)
    sums = np.add.reduceat(np.add.reduceat(square, rows, 1), columns, 2)
    counts = np.outer(*(np.diff(np.append(starts, side)) for starts, side in zip((rows, columns), grid, strict=True)))
    return np.concatenate(
        [special, (sums / counts[..., None].astype(np.float32)).reshape(len(weights), -1, weights.shape[-1])], 1
    )
