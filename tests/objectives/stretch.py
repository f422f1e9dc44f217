"""A stretch of random words in blocks, for the tests of neighbours and of the kernels that learn from them."""

from dataclasses import replace
from typing import Literal

import numpy as np

from bertsmith.objectives.word2vec_blocks import Block, Blocks, NegativeSamplingConfig, make_blocks

Kind = Literal["skip-gram", "cbow"]
KINDS: tuple[Kind, ...] = ("skip-gram", "cbow")
SMALL = NegativeSamplingConfig(window=3, negatives=4, block=64, shared_negatives=6)


def made(lengths: list[int], vocabulary: int, config: NegativeSamplingConfig = SMALL, seed: int = 0) -> Blocks:
    """Sentences of random words in blocks."""
    chance = np.random.default_rng(seed)
    sentences = np.repeat(np.arange(len(lengths)), lengths)
    ids, reach = chance.integers(0, vocabulary, len(sentences)), chance.integers(1, config.window + 1, len(sentences))
    count = -(-len(ids) // config.block)
    false = chance.random(count * 6)
    return make_blocks(ids, sentences, reach, false, np.arange(1, vocabulary + 1) / vocabulary, config, len(ids))


def exact(block: Block) -> Block:
    return replace(block, is_neighbour=block.is_neighbour.double(), neighbour_counts=block.neighbour_counts.double())
