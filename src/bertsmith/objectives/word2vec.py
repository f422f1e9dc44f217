"""word2vec: skip-gram and CBOW with negative sampling and subsampling of frequent words. Mikolov et al. 2013.

word2vec draws false neighbours for every pair of words and moves the tables after each. Here some hundred words in the
order of the text, a block, share their false neighbours, and the tables are moved once for all of them: so both the
true and the false neighbours are products of matrices (Ji et al. 2016 do so within a window). The shared ones together
weigh what as many as word2vec draws would: in the mean the gradient is the same.

Departs from word2vec: a false neighbour that happens to be the true one is not left out, and it is not moved farther
than `MAX_UPDATE_NORM` at once.

Shapes here: G blocks, R tiles of a block, W words of a tile, C the same with the window on both sides, K false
neighbours that a block shares, V words of the vocabulary, D width.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64, Int64, Integer
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from bertsmith.models.word2vec import Word2Vec
from bertsmith.random_bits import uniform

TILE = 32  # words whose windows are one product: more waste arithmetic on pairs too far apart, fewer the overlap
MAX_SUMMED_LEARNING_RATE = 8.0  # to which the rates of all that moves one row in a block may add up: found by trial
# Farther than this no block moves a false neighbour: seldom is it more than 5, but where both tables run away.
MAX_UPDATE_NORM = 8.0
MAX_WINDOW = 100  # words a window may have on each side
SHARED_NEGATIVES = {
    "skip-gram": 64,
    "cbow": 32,
}  # fewer are faster and, in skip-gram, worse; in CBOW less hangs on each
SUBSAMPLING_KEY, WINDOW_KEY, NEGATIVES_KEY = range(16, 19)  # what a draw is for


@dataclass(frozen=True, kw_only=True)
class NegativeSamplingConfig:
    """Who is whose neighbour, and how many false ones stand beside."""

    window: int = 5  # neighbours on each side at most; how many is drawn for each word
    negatives: int = 5  # false neighbours for each true one
    power: float = 0.75  # of a word's count, by which false neighbours are drawn
    subsample: float = 1e-3  # the part of the text above which a word is dropped now and then; 0: none is
    block: int = 512  # words that share their false neighbours
    shared_negatives: int | None = None  # how many false neighbours they share; None: as many as suit the kind

    def __post_init__(self) -> None:
        if not 1 <= self.window <= MAX_WINDOW:
            raise ValueError(f"a window of {self.window} words is none. Give 1 to {MAX_WINDOW}")
        if self.negatives < 1 or (self.shared_negatives is not None and self.shared_negatives < 1):
            raise ValueError("negatives and shared_negatives are at least 1")
        if self.block < TILE or self.block % TILE:
            raise ValueError(f"a block of {self.block} words cannot be tiled. Give a multiple of {TILE}")
        if not self.subsample >= 0:
            raise ValueError(f"a subsample of {self.subsample} is no part of a text. Give 0 or more")


@dataclass(frozen=True)
class Blocks:
    """A stretch of text, cut into blocks of tiles, with all that was drawn for it."""

    word_ids: Int64[Tensor, "G R C"]
    is_neighbour: Bool[Tensor, "G R W C"]  # whether a word of the tile has the other as its neighbour
    neighbour_counts: Float[Tensor, "G RW 1"]  # how many neighbours each has
    negative_ids: Int64[Tensor, "G K"]
    words_read: int  # words of the stretch, those that were dropped included

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.word_ids, self.is_neighbour, self.neighbour_counts, self.negative_ids

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> "Blocks":
        """Blocks of the same parts, each of them changed."""
        words, near, company, false = map(function, self.tensors)
        return Blocks(words, near, company, false, self.words_read)

    def split(self, size: int) -> Iterator["Blocks"]:
        """The same blocks, at most so many at a time."""
        for words, near, company, false in zip(*(torch.split(part, size) for part in self.tensors), strict=True):
            if len(words):  # what is empty is split into one part
                yield Blocks(words, near, company, false, self.words_read)

    def copy_from(self, others: "Blocks") -> None:
        """Become others, of which there may be fewer: in those that are left nobody has a neighbour."""
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
    """Words that are learnt from at once."""

    word_ids: Int64[Tensor, "R C"]
    is_neighbour: Float[Tensor, "R W C"]
    neighbour_counts: Float[Tensor, "RW 1"]
    negative_ids: Int64[Tensor, " K"]

    @property
    def centres(self) -> Int64[Tensor, " RW"]:
        """The words themselves, without those that only stand round them."""
        margin = (self.is_neighbour.shape[2] - self.is_neighbour.shape[1]) // 2
        return self.word_ids[:, margin : margin + self.is_neighbour.shape[1]].reshape(-1)

    @property
    def mean_weights(self) -> Float[Tensor, "R W C"]:
        """What each neighbour adds to the mean of all that a word has."""
        return self.is_neighbour / self.neighbour_counts.view(*self.is_neighbour.shape[:2], 1).clamp(min=1)


SparseGradient = list[tuple[Tensor, Tensor, Tensor]]  # a table, rows of it, and what is to be added up for each
Scale = float | Float[Tensor, ""]  # one on the device may change while what is done with it was recorded

# ------------------------------------------------------------------------------------------- loss and gradient


def loss(model: Word2Vec, block: Block, negatives: int) -> tuple[Tensor, Tensor]:
    """The sum over all that is told, and how much that is: pairs in skip-gram, words in CBOW."""
    tiles, width = block.is_neighbour.shape[:2], model.inputs.shape[1]
    around, false = block.word_ids.reshape(-1), model.outputs.index_select(0, block.negative_ids)
    if model.config.kind == "skip-gram":
        read = model.inputs.index_select(0, block.centres)
        true = model.outputs.index_select(0, around).view(tiles[0], -1, width)
        told = block.neighbour_counts
        # Laid out anew first: a factor that is only turned around takes some processors six times as long.
        found = torch.bmm(read.view(*tiles, width), true.transpose(1, 2).contiguous())
        kept = (F.logsigmoid(found) * block.is_neighbour).sum()
    else:
        read = torch.bmm(block.mean_weights, model.inputs.index_select(0, around).view(tiles[0], -1, width)).flatten(
            0, 1
        )
        true = model.outputs.index_select(0, block.centres)
        told = (block.neighbour_counts > 0).to(block.neighbour_counts)
        kept = (F.logsigmoid((read * true).sum(1, keepdim=True)) * told).sum()
    fooled = (F.logsigmoid(-(read @ false.T)) * told).sum()
    return -kept - fooled * (negatives / len(block.negative_ids)), told.sum()


def skip_gram(model: Word2Vec, block: Block, negatives: int, scale: Scale = 1.0) -> SparseGradient:
    """The gradient of the loss, times a scale, where each word tells its neighbours, one by one."""
    tiles, width = block.is_neighbour.shape[:2], model.inputs.shape[1]
    centres, around = block.centres, block.word_ids.reshape(-1)
    read = model.inputs.index_select(0, centres)  # RW D
    tiled = read.view(*tiles, width)
    true = model.outputs.index_select(0, around).view(tiles[0], -1, width)  # R C D
    false = model.outputs.index_select(0, block.negative_ids)  # K D
    missed = torch.bmm(tiled, true.transpose(1, 2)).sigmoid_().sub_(1).mul_(block.is_neighbour).mul_(scale)  # R W C
    fooled = torch.mm(read, false.T).sigmoid_().mul_(block.neighbour_counts * (scale * negatives / len(false)))  # RW K
    of_read = torch.bmm(missed, true).view(-1, width).addmm_(fooled, false)
    of_true = torch.bmm(missed.transpose(1, 2), tiled).view(-1, width)
    return [
        (model.inputs, centres, of_read),
        (model.outputs, around, of_true),
        (model.outputs, block.negative_ids, torch.mm(fooled.T, read)),
    ]


def cbow(model: Word2Vec, block: Block, negatives: int, scale: Scale = 1.0) -> SparseGradient:
    """The gradient of the loss, times a scale, where the mean of a word's neighbours tells the word.

    Departs from word2vec, which forgets to divide the neighbours' gradient by their number: Irsoy et al. 2021.
    """
    tiles, width = block.is_neighbour.shape[:2], model.inputs.shape[1]
    centres, around = block.centres, block.word_ids.reshape(-1)
    shares, told = block.mean_weights, (block.neighbour_counts > 0).to(block.neighbour_counts)
    read = torch.bmm(shares, model.inputs.index_select(0, around).view(tiles[0], -1, width)).view(-1, width)  # RW D
    true = model.outputs.index_select(0, centres)  # RW D
    false = model.outputs.index_select(0, block.negative_ids)  # K D
    missed = (read * true).sum(1, keepdim=True).sigmoid_().sub_(1).mul_(told * scale)  # RW 1
    fooled = torch.mm(read, false.T).sigmoid_().mul_(told * (scale * negatives / len(false)))  # RW K
    of_read = (true * missed).addmm_(fooled, false).view(*tiles, width)
    return [
        (model.inputs, around, torch.bmm(shares.transpose(1, 2), of_read).view(-1, width)),
        (model.outputs, centres, read * missed),
        (model.outputs, block.negative_ids, torch.mm(fooled.T, read)),
    ]


GRADIENTS: dict[str, Callable[[Word2Vec, Block, int, Scale], SparseGradient]] = {"skip-gram": skip_gram, "cbow": cbow}


def sgd_step(model: Word2Vec, block: Block, negatives: int, learning_rate: Scale) -> None:
    """Move both tables by one block: plain gradient descent, on the rows that the block has met."""
    # The rate is a factor of what goes into the products: `index_add_` takes twice as long with one of its own.
    changes = GRADIENTS[model.config.kind](model, block, negatives, -learning_rate)
    *_, (_, _, of_false) = changes
    # A false neighbour stands for many that were not drawn, and all of a block push it at once.
    of_false.mul_(MAX_UPDATE_NORM / of_false.norm(dim=1, keepdim=True).clamp_(min=MAX_UPDATE_NORM))
    for table, rows, change in changes:
        table.index_add_(0, rows, change)


# ----------------------------------------------------------------------------------------------- what is drawn


def keep_probability(counts: Int64[np.ndarray, " V"], sample: float) -> Float64[np.ndarray, " V"]:
    """How likely each word is to be left in the text: sqrt(s / f) + s / f of its part f, and never more than 1.

    The formula of the published program; the paper's, section 2.3, drops a little more.
    """
    if not sample:
        return np.ones(len(counts))
    rarity = sample * counts.sum() / counts
    return np.asarray(np.minimum(np.sqrt(rarity) + rarity, 1.0))


def resolve_config(
    config: NegativeSamplingConfig, kind: str, counts: Int64[np.ndarray, " V"], learning_rate: float
) -> NegativeSamplingConfig:
    """What was left open settled, and blocks so small that the most frequent word is moved by no more than `MOST`.

    Else, where a text has few words, both tables push each other ever farther out. In CBOW a word is told once, in
    skip-gram by each of its neighbours.
    """
    left = counts * keep_probability(counts, config.subsample)
    told = config.window + 1 if kind == "skip-gram" else 1  # that often in the mean
    each = learning_rate * told * (1 + config.negatives) * left.max() / left.sum()
    block = max(TILE, min(config.block, int(MAX_SUMMED_LEARNING_RATE / each) // TILE * TILE))
    return replace(config, block=block, shared_negatives=config.shared_negatives or SHARED_NEGATIVES[kind])


def cumulative_distribution(counts: Int64[np.ndarray, " V"], power: float) -> Float64[np.ndarray, " V"]:
    """The table that false neighbours are drawn through: the chance of this word or one before it."""
    chances = np.cumsum(counts.astype(np.float64) ** power)
    return np.asarray(chances / chances[-1])


def make_blocks(
    ids: Integer[np.ndarray, " T"],
    sentences: Integer[np.ndarray, " T"],
    window_sizes: Integer[np.ndarray, " T"],
    uniform_numbers: Float64[np.ndarray, " F"],
    distribution: Float64[np.ndarray, " V"],
    config: NegativeSamplingConfig,
    words_read: int,
) -> Blocks:
    """A stretch of text in blocks: the words, who is near whom, and false neighbours by numbers in [0, 1).

    Two words are neighbours where they stand in one sentence, no farther apart than the first one reaches.
    By numpy alone: threads of torch's, beside those of compiled loops, are more than there are processors, and OpenMP
    then lets all of them sleep wherever they wait for each other.
    """
    window, size, wide = config.window, len(ids), TILE + 2 * config.window
    count, tiles = -(-size // config.block), config.block // TILE
    words = np.zeros(count * config.block + 2 * window, np.int64)
    words[window : window + size] = ids
    tiled = sliding_window_view(words, wide)[::TILE].copy() if count else np.zeros((0, wide), np.int64)
    sides = np.zeros((2, count * config.block), np.int64)  # what only fills the last block has no neighbours
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
    """Who stands on one side of each word, as far as it reaches: looked up, eight times as fast as worked out."""
    tiled = window_sizes.reshape(-1, TILE) + np.arange(TILE) * (window + 1)
    return np.asarray(_neighbour_table(window, side).take(tiled.ravel(), 0))


@lru_cache(4)
def _neighbour_table(window: int, side: Literal[-1, 1]) -> Bool[np.ndarray, "WN C"]:
    """The same for every place of a tile and every reach, from none to the whole window."""
    apart = (np.arange(TILE + 2 * window) - window - np.arange(TILE)[:, None, None]) * side  # W 1 C
    return np.asarray((apart > 0) & (apart <= np.arange(window + 1)[:, None])).reshape(-1, TILE + 2 * window)


def _neighbours_per_side(
    sentences: Integer[np.ndarray, " T"], window_sizes: Integer[np.ndarray, " T"]
) -> tuple[Integer[np.ndarray, " T"], Integer[np.ndarray, " T"]]:
    """How many neighbours each word has on its left and on its right."""
    ends = np.flatnonzero(np.diff(sentences, append=-1)) + 1  # behind the last word of each sentence
    lengths = np.diff(ends, prepend=0)
    places = np.arange(len(window_sizes))
    before = places - np.repeat(ends - lengths, lengths)
    behind = np.repeat(ends - 1, lengths) - places
    return np.minimum(before, window_sizes), np.minimum(behind, window_sizes)


def sample_blocks(
    ids: Integer[np.ndarray, " T"],
    sentences: Integer[np.ndarray, " T"],
    positions: Int64[np.ndarray, " T"],
    distributions: tuple[Float64[np.ndarray, " V"], Float64[np.ndarray, " V"]],
    config: NegativeSamplingConfig,
    key: tuple[int, int, int],
) -> Blocks:
    """The same with all its chance: a pure function of the key, which is seed, epoch and step, and of the places.

    `chances` are those of `kept` and of `cumulative`. A word that is dropped makes its neighbours each other's.
    """
    (seed, epoch, step), read = key, len(ids)
    left = np.flatnonzero(uniform(seed, SUBSAMPLING_KEY, epoch, positions) < distributions[0].take(ids))
    ids, sentences, positions = ids[left], sentences[left], positions[left]
    reach = (uniform(seed, WINDOW_KEY, epoch, positions) * config.window).astype(np.int64) + 1
    assert config.shared_negatives is not None  # it was fitted
    false = uniform(seed, NEGATIVES_KEY, step, np.arange(-(-len(ids) // config.block) * config.shared_negatives))
    return make_blocks(ids, sentences, reach, false, distributions[1], config, read)
