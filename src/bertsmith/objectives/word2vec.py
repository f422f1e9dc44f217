"""word2vec: skip-gram and CBOW with negative sampling and subsampling of frequent words. Mikolov et al. 2013.

The published program draws negatives for every pair of words and updates the tables after each. Here a block, some
hundred consecutive words, shares its negatives, and the tables are updated once per block, so that scores of true and
negative pairs are matrix products (Ji et al. 2016 do so within a window). The shared negatives are weighted as
`negatives` per pair: the expected gradient is the same.

Departs from word2vec: a negative that happens to be the true word is not left out, and its update is clipped to
`MAX_UPDATE_NORM`.

Shapes as in `word2vec_blocks.py`; D width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from bertsmith.models.word2vec import Word2Vec
from bertsmith.objectives.word2vec_blocks import Block

# The longest update of a negative by one block: it is seldom longer than 5, unless training diverges.
MAX_UPDATE_NORM = 8.0

SparseGradient = list[tuple[Tensor, Tensor, Tensor]]  # a table, some of its rows, and the gradient of each
Scale = float | Float[Tensor, ""]  # a tensor, so that a captured CUDA graph sees it change


def loss(model: Word2Vec, block: Block, negatives: int) -> tuple[Tensor, Tensor]:
    """The loss as a sum over targets, and their number: pairs in skip-gram, words in CBOW."""
    tiles, width = block.is_neighbour.shape[:2], model.inputs.shape[1]
    around, negative = block.word_ids.reshape(-1), model.outputs.index_select(0, block.negative_ids)
    if model.config.kind == "skip-gram":
        source = model.inputs.index_select(0, block.centres)
        true = model.outputs.index_select(0, around).view(tiles[0], -1, width)
        targets = block.neighbour_counts
        # Contiguous, since a product with a transposed view takes some processors six times as long.
        scores = torch.bmm(source.view(*tiles, width), true.transpose(1, 2).contiguous())
        positive = (F.logsigmoid(scores) * block.is_neighbour).sum()
    else:
        neighbours = model.inputs.index_select(0, around).view(tiles[0], -1, width)
        source = torch.bmm(block.mean_weights, neighbours).flatten(0, 1)
        true = model.outputs.index_select(0, block.centres)
        targets = (block.neighbour_counts > 0).to(block.neighbour_counts)
        positive = (F.logsigmoid((source * true).sum(1, keepdim=True)) * targets).sum()
    rejected = (F.logsigmoid(-(source @ negative.T)) * targets).sum()
    return -positive - rejected * (negatives / len(block.negative_ids)), targets.sum()


def skip_gram(model: Word2Vec, block: Block, negatives: int, scale: Scale = 1.0) -> SparseGradient:
    """Skip-gram: the gradient of the loss, times a scale, where each word predicts each of its neighbours."""
    tiles, width = block.is_neighbour.shape[:2], model.inputs.shape[1]
    centres, around = block.centres, block.word_ids.reshape(-1)
    source = model.inputs.index_select(0, centres)  # RW D
    tiled = source.view(*tiles, width)
    true = model.outputs.index_select(0, around).view(tiles[0], -1, width)  # R C D
    negative = model.outputs.index_select(0, block.negative_ids)  # K D
    grad_true = torch.bmm(tiled, true.transpose(1, 2)).sigmoid_().sub_(1).mul_(block.is_neighbour).mul_(scale)  # R W C
    weights = block.neighbour_counts * (scale * negatives / len(negative))
    grad_negative = torch.mm(source, negative.T).sigmoid_().mul_(weights)  # RW K
    return [
        (model.inputs, centres, torch.bmm(grad_true, true).view(-1, width).addmm_(grad_negative, negative)),
        (model.outputs, around, torch.bmm(grad_true.transpose(1, 2), tiled).view(-1, width)),
        (model.outputs, block.negative_ids, torch.mm(grad_negative.T, source)),
    ]


def cbow(model: Word2Vec, block: Block, negatives: int, scale: Scale = 1.0) -> SparseGradient:
    """CBOW: the gradient of the loss, times a scale, where the mean of a word's neighbours predicts the word.

    Departs from word2vec, which does not divide the neighbours' gradient by their number: Irsoy et al. 2021.
    """
    tiles, width = block.is_neighbour.shape[:2], model.inputs.shape[1]
    centres, around = block.centres, block.word_ids.reshape(-1)
    weights, targets = block.mean_weights, (block.neighbour_counts > 0).to(block.neighbour_counts)
    source = torch.bmm(weights, model.inputs.index_select(0, around).view(tiles[0], -1, width)).view(-1, width)  # RW D
    true = model.outputs.index_select(0, centres)  # RW D
    negative = model.outputs.index_select(0, block.negative_ids)  # K D
    grad_true = (source * true).sum(1, keepdim=True).sigmoid_().sub_(1).mul_(targets * scale)  # RW 1
    grad_negative = torch.mm(source, negative.T).sigmoid_().mul_(targets * (scale * negatives / len(negative)))  # RW K
    grad_source = (true * grad_true).addmm_(grad_negative, negative).view(*tiles, width)
    return [
        (model.inputs, around, torch.bmm(weights.transpose(1, 2), grad_source).view(-1, width)),
        (model.outputs, centres, source * grad_true),
        (model.outputs, block.negative_ids, torch.mm(grad_negative.T, source)),
    ]


GRADIENTS: dict[str, Callable[[Word2Vec, Block, int, Scale], SparseGradient]] = {"skip-gram": skip_gram, "cbow": cbow}


def sgd_step(model: Word2Vec, block: Block, negatives: int, learning_rate: Scale) -> None:
    """One step of plain SGD on both tables, on the rows of the block's words."""
    # The learning rate scales the inputs of the products: `index_add_` with alpha takes twice as long.
    updates = GRADIENTS[model.config.kind](model, block, negatives, -learning_rate)
    *_, (_, _, of_negatives) = updates
    # A shared negative gets the summed update of the whole block.
    of_negatives.mul_(MAX_UPDATE_NORM / of_negatives.norm(dim=1, keepdim=True).clamp_(min=MAX_UPDATE_NORM))
    for table, rows, update in updates:
        table.index_add_(0, rows, update)
