"""Blocks of words for word2vec: each word's neighbours in its window, and the negatives that a block shares.

Subsampling drops frequent words, window sizes are random, and negatives are drawn by word counts: Mikolov et al. 2013.

Shapes here: G blocks, R tiles of a block, W words of a tile, C the same with the window on both sides, K negatives that
a block shares, V words of the vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, Integer
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from bertsmith.random_bits import uniform

TILE = 32  # words whose windows are one matrix product: a larger tile computes more pairs that are too far apart
MAX_SUMMED_LEARNING_RATE = 8.0  # of all updates of one row within a block, together: found by trial
MAX_WINDOW = 100  # words on each side
SHARED_NEGATIVES = {"skip-gram": 64, "cbow": 32}  # fewer are faster and, in skip-gram, worse
SUBSAMPLING_KEY, WINDOW_KEY, NEGATIVES_KEY = range(16, 19)  # keep the random bits of each purpose apart


@dataclass(frozen=True, kw_only=True)
class NegativeSamplingConfig:
    """The windows of skip-gram and CBOW, subsampling and negative sampling."""

    window: int = 5  # most words on each side; the size is random for each word
    negatives: int = 5  # negatives for each true pair
    power: float = 0.75  # negatives are drawn by word counts to this power
    subsample: float = 1e-3  # words above this share of the text are dropped at random; 0: no word is
    block: int = 512  # words that share their negatives
    shared_negatives: int | None = None  # negatives of a block; None: 64 in skip-gram, 32 in CBOW

    def __post_init__(self) -> None:
        if not 1 <= self.window <= MAX_WINDOW:
            raise ValueError(f"window is {self.window}. Give 1 to {MAX_WINDOW}")
        if self.negatives < 1 or (self.shared_negatives is not None and self.shared_negatives < 1):
            raise ValueError("negatives and shared_negatives are at least 1")
        if self.block < TILE or self.block % TILE:
            raise ValueError(f"a block of {self.block} words cannot be tiled. Give a multiple of {TILE}")
        if not self.subsample >= 0:
            raise ValueError(f"subsample is {self.subsample}. Give 0 or more")


@dataclass(frozen=True)
class Blocks:
    """Consecutive words in blocks of tiles, with their neighbours and negatives."""

    word_ids: Int64[Tensor, "G R C"]
    is_neighbour: Bool[Tensor, "G R W C"]  # whether the second word is in the window of the first
    neighbour_counts: Float[Tensor, "G RW 1"]  # number of neighbours of each word
    negative_ids: Int64[Tensor, "G K"]
    words_read: int  # words of the text, dropped ones included

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.word_ids, self.is_neighbour, self.neighbour_counts, self.negative_ids

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> "Blocks":
        """The same blocks with a function applied to each tensor."""
        word_ids, is_neighbour, counts, negatives = map(function, self.tensors)
        return Blocks(word_ids, is_neighbour, counts, negatives, self.words_read)

    def split(self, size: int) -> Iterator["Blocks"]:
        """The same blocks in groups of at most `size`."""
        for tensors in zip(*(torch.split(part, size) for part in self.tensors), strict=True):
            if len(tensors[0]):  # torch.split gives one empty part for no blocks
                word_ids, is_neighbour, counts, negatives = tensors
                yield Blocks(word_ids, is_neighbour, counts, negatives, self.words_read)

    def copy_from(self, others: "Blocks") -> None:
        """Copy others, of which there may be fewer, into these tensors: the remaining blocks have no neighbours."""
        for mine, theirs in zip(self.tensors, others.tensors, strict=True):
            mine[: len(others)].copy_(theirs)
            if len(others) < len(self):
                mine[len(others) :].zero_()

    def __len__(self) -> int:
        return len(self.word_ids)

    def __getitem__(self, number: int) -> "Block":
        return Block(
            self.word_ids[number],
            self.is_neighbour[number].float(),
            self.neighbour_counts[number],
            self.negative_ids[number],
        )


@dataclass(frozen=True)
class Block:
    """The words of one update."""

    word_ids: Int64[Tensor, "R C"]
    is_neighbour: Float[Tensor, "R W C"]
    neighbour_counts: Float[Tensor, "RW 1"]
    negative_ids: Int64[Tensor, " K"]

    @property
    def centres(self) -> Int64[Tensor, " RW"]:
        """The words of the tiles without the margins of the windows."""
        margin = (self.is_neighbour.shape[2] - self.is_neighbour.shape[1]) // 2
        return self.word_ids[:, margin : margin + self.is_neighbour.shape[1]].reshape(-1)

    @property
    def mean_weights(self) -> Float[Tensor, "R W C"]:
        """The weight of each neighbour in the mean over a word's neighbours."""
        return self.is_neighbour / self.neighbour_counts.view(*self.is_neighbour.shape[:2], 1).clamp(min=1)


def keep_probability(counts: Int64[np.ndarray, " V"], sample: float) -> Float64[np.ndarray, " V"]:
    """Subsampling: the probability that a word stays, sqrt(s / f) + s / f for its share f of the text, at most 1.

    The formula of the published program; the paper's, section 2.3, drops a little more.
    """
    if not sample:
        return np.ones(len(counts))
    rarity = sample * counts.sum() / counts
    return np.asarray(np.minimum(np.sqrt(rarity) + rarity, 1.0))


def resolve_config(
    config: NegativeSamplingConfig, kind: str, counts: Int64[np.ndarray, " V"], learning_rate: float
) -> NegativeSamplingConfig:
    """The config with defaults filled in, and blocks small enough for `MAX_SUMMED_LEARNING_RATE` of the commonest word.

    With larger blocks, training diverges on a small vocabulary. A word is a target once in CBOW, and once for each of
    its neighbours in skip-gram.
    """
    kept = counts * keep_probability(counts, config.subsample)
    targets = config.window + 1 if kind == "skip-gram" else 1  # per word, on average
    each = learning_rate * targets * (1 + config.negatives) * kept.max() / kept.sum()
    block = max(TILE, min(config.block, int(MAX_SUMMED_LEARNING_RATE / each) // TILE * TILE))
    return replace(config, block=block, shared_negatives=config.shared_negatives or SHARED_NEGATIVES[kind])


def cumulative_distribution(counts: Int64[np.ndarray, " V"], power: float) -> Float64[np.ndarray, " V"]:
    """The cumulative distribution that negatives are drawn from."""
    sums = np.cumsum(counts.astype(np.float64) ** power)
    return np.asarray(sums / sums[-1])


def make_blocks(
    ids: Integer[np.ndarray, " T"],
    sentences: Integer[np.ndarray, " T"],
    window_sizes: Integer[np.ndarray, " T"],
    uniform_numbers: Float64[np.ndarray, " F"],
    distribution: Float64[np.ndarray, " V"],
    config: NegativeSamplingConfig,
    words_read: int,
) -> Blocks:
    """Blocks of consecutive words, with neighbours by window sizes and negatives by uniform numbers in [0, 1).

    Two words are neighbours if they are in one sentence, and within the window of the first. In numpy alone: torch's
    threads and those of compiled loops together are more than there are cores, and OpenMP then makes them sleep at
    every barrier.
    """
    window, size, wide = config.window, len(ids), TILE + 2 * config.window
    count, tiles = -(-size // config.block), config.block // TILE
    words = np.zeros(count * config.block + 2 * window, np.int64)
    words[window : window + size] = ids
    tiled = sliding_window_view(words, wide)[::TILE].copy() if count else np.zeros((0, wide), np.int64)
    sides = np.zeros((2, count * config.block), np.int64)  # padding of the last block has no neighbours
    left, right = sides
    left[:size], right[:size] = _neighbours_per_side(sentences, window_sizes)
    near = _neighbour_mask(window, left, -1)
    near |= _neighbour_mask(window, right, 1)
    drawn = np.searchsorted(distribution, uniform_numbers, side="right").clip(max=len(distribution) - 1)
    return Blocks(
        torch.from_numpy(tiled).view(count, tiles, wide),
        torch.from_numpy(near).view(count, tiles, TILE, wide),
        torch.from_numpy((left + right).astype(np.float32)).view(count, config.block, 1),
        torch.from_numpy(drawn).view(count, len(drawn) // max(count, 1)),
        words_read,
    )


def _neighbour_mask(
    window: int, window_sizes: Int64[np.ndarray, " T"], side: Literal[-1, 1]
) -> Bool[np.ndarray, "T C"]:
    """The neighbours on one side of each word, by a lookup table: eight times as fast as computing them."""
    tiled = window_sizes.reshape(-1, TILE) + np.arange(TILE) * (window + 1)
    return np.asarray(_neighbour_table(window, side).take(tiled.ravel(), 0))


@lru_cache(4)
def _neighbour_table(window: int, side: Literal[-1, 1]) -> Bool[np.ndarray, "WN C"]:
    """The neighbours for every position in a tile and every number of neighbours, from zero to the window."""
    apart = (np.arange(TILE + 2 * window) - window - np.arange(TILE)[:, None, None]) * side  # W 1 C
    return np.asarray((apart > 0) & (apart <= np.arange(window + 1)[:, None])).reshape(-1, TILE + 2 * window)


def _neighbours_per_side(
    sentences: Integer[np.ndarray, " T"], window_sizes: Integer[np.ndarray, " T"]
) -> tuple[Integer[np.ndarray, " T"], Integer[np.ndarray, " T"]]:
    """The number of neighbours of each word on its left and on its right."""
    ends = np.flatnonzero(np.diff(sentences, append=-1)) + 1
    lengths = np.diff(ends, prepend=0)
    positions = np.arange(len(window_sizes))
    before = positions - np.repeat(ends - lengths, lengths)
    after = np.repeat(ends - 1, lengths) - positions
    return np.minimum(before, window_sizes), np.minimum(after, window_sizes)


def sample_blocks(
    ids: Integer[np.ndarray, " T"],
    sentences: Integer[np.ndarray, " T"],
    positions: Int64[np.ndarray, " T"],
    distributions: tuple[Float64[np.ndarray, " V"], Float64[np.ndarray, " V"]],
    config: NegativeSamplingConfig,
    key: tuple[int, int, int],
) -> Blocks:
    """Blocks after subsampling, with random windows and negatives: a pure function of the key and the positions.

    The key is (seed, epoch, step); `distributions` are `keep_probability` and `cumulative_distribution`. Windows reach
    across dropped words.
    """
    (seed, epoch, step), words_read = key, len(ids)
    kept = np.flatnonzero(uniform(seed, SUBSAMPLING_KEY, epoch, positions) < distributions[0].take(ids))
    ids, sentences, positions = ids[kept], sentences[kept], positions[kept]
    window_sizes = (uniform(seed, WINDOW_KEY, epoch, positions) * config.window).astype(np.int64) + 1
    assert config.shared_negatives is not None  # set by resolve_config
    count = -(-len(ids) // config.block) * config.shared_negatives
    uniform_numbers = uniform(seed, NEGATIVES_KEY, step, np.arange(count))
    return make_blocks(ids, sentences, window_sizes, uniform_numbers, distributions[1], config, words_read)
