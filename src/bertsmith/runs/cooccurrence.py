"""Initial token embeddings from co-occurrence counts: positive PMI, factorised by SVD. Levy and Goldberg 2014.

A short run spends most of its updates on finding out which tokens are alike. Counting which tokens stand near each
other tells that within seconds, so that the network starts where word2vec ends.
"""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertsmith.data.shards.shards import Shards

WINDOW = 2  # tokens on either side that count as neighbours, each by one over its distance
CONTEXTS = 2_048  # the most frequent tokens, which are the columns of the counts
SMOOTHING = 0.75  # of the frequencies of contexts, against the bias of PMI to rare ones. Levy et al. 2015
SCALE = 5.0  # deviation of the embeddings, in that of randomly initialised ones
MAX_TOKENS = 4_000_000  # that are read of a longer text, in parts from all over it
PART = 500_000  # tokens that are counted at a time


@torch.no_grad()
def initialise_embeddings(embedding: nn.Embedding, text: Shards, seed: int) -> None:
    """Set the rows of all tokens with neighbours in the text; the others, such as [MASK], keep their random ones."""
    pmi = positive_pmi(cooccurrence_counts(text, embedding.num_embeddings))
    known = pmi.any(1)
    if not known.any():  # a text of one word: nothing is near anything more often than by chance
        return
    directions = nn.functional.normalize(factorise(pmi, embedding.embedding_dim, seed)[known], dim=1)
    embedding.weight[known] = directions * (SCALE * embedding.weight.std() * embedding.embedding_dim**0.5)


def cooccurrence_counts(text: Shards, vocabulary: int) -> Float[Tensor, "V C"]:
    """How often each token stands near each of the most frequent ones, weighted by one over the distance."""
    frequencies = torch.from_numpy(text.frequencies())
    contexts = frequencies.argsort(descending=True, stable=True)[: min(CONTEXTS, vocabulary)]
    columns = torch.full((vocabulary,), -1)
    columns[contexts] = torch.arange(len(contexts))
    counts = torch.zeros(vocabulary, len(contexts))
    for part in _parts(text):
        column = columns[part]
        for distance in range(1, WINDOW + 1):
            for tokens, near in ((part[:-distance], column[distance:]), (part[distance:], column[:-distance])):
                known = near >= 0
                cells = tokens[known] * len(contexts) + near[known]
                counts.view(-1).index_add_(0, cells, torch.full(cells.shape, 1 / distance))
    return counts


def positive_pmi(counts: Float[Tensor, "V C"]) -> Float[Tensor, "V C"]:
    """Positive pointwise mutual information, log p(token, context) / p(token) p(context); 0 where it is negative."""
    contexts = counts.sum(0) ** SMOOTHING
    tokens = counts.sum(1, keepdim=True).clamp_min(1e-12)
    expected = (contexts / contexts.sum()).clamp_min(1e-12)
    return (counts / tokens).div_(expected).clamp_min_(1.0).log_()  # in place: the matrix may have 250 MB


def factorise(matrix: Float[Tensor, "V C"], width: int, seed: int) -> Float[Tensor, "V E"]:
    """The left factor of a truncated SVD, U sqrt(S), turned at random so that every coordinate has its share."""
    # S and V are found from the small matrix M' M = V S^2 V'; and U = M V / S.
    squares, right = torch.linalg.eigh(matrix.T @ matrix)
    rank = min(width, len(matrix), int((squares > 1e-6 * squares[-1]).sum()))
    left = matrix @ right[:, -rank:] * squares[-rank:] ** -0.25
    generator = torch.Generator().manual_seed(seed)
    vectors: Tensor = left @ torch.linalg.qr(torch.randn(width, rank, generator=generator)).Q.T
    return vectors


def _parts(text: Shards) -> Iterator[Tensor]:
    """Stretches of a text: all of it, or as many from all over it as make MAX_TOKENS."""
    stride = int(PART * max(1.0, text.tokens / MAX_TOKENS))
    for start in range(0, text.tokens, stride):
        yield torch.from_numpy(text.gather(np.array([start]), np.array([min(PART, text.tokens - start)]))).long()
