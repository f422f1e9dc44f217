"""Semantic search: the texts nearest to a query, by the inner products of their embeddings."""

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.errors import TextError

BLOCK_VECTORS, BLOCK_QUERIES = 65_536, 256  # vectors and queries in one matrix product


def semantic_search(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], top_k: int = 10
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `top_k` largest inner products of each query with all vectors, and the rows of those vectors, best first.

    The search is exact. The vectors are read once, in blocks, and may be a memory map larger than the memory.

    >>> vectors = np.eye(3, dtype=np.float32)
    >>> scores, rows = semantic_search(vectors, vectors[1:2], top_k=1)
    >>> scores.tolist(), rows.tolist()
    ([[1.0]], [[1]])
    """
    if vectors.ndim != 2 or queries.ndim != 2 or vectors.shape[1] != queries.shape[1]:
        fact = f"are {queries.shape}, the vectors {vectors.shape}"
        raise TextError("queries", fact, "Both are tables with one vector a row, all of one width")
    scores = torch.empty((len(queries), 0))
    rows = torch.empty((len(queries), 0), dtype=torch.int64)
    for start in range(0, len(vectors), BLOCK_VECTORS):
        block = np.asarray(vectors[start : start + BLOCK_VECTORS]).T
        top = min(top_k, block.shape[1])
        found = [torch.from_numpy(part @ block).topk(top) for part in _query_chunks(queries)]
        scores = torch.cat((scores, torch.cat([best.values for best in found])), 1)
        rows = torch.cat((rows, torch.cat([best.indices for best in found]) + start), 1)
        scores, best_columns = scores.topk(min(top_k, scores.shape[1]))
        rows = rows.gather(1, best_columns)
    return scores.numpy(), rows.numpy()


def _query_chunks(queries: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    return [queries[first : first + BLOCK_QUERIES] for first in range(0, max(1, len(queries)), BLOCK_QUERIES)]
