"""Prepared text in memory: sentences and documents of random lengths, drawn by a hash."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from bertsmith.random_bits import uniform

PADDING, UNKNOWN, START, STOP, MASK, VOCABULARY = 0, 1, 2, 3, 4, 1000


class Prose:
    """A `TokenSource` as `Shards` is, without a folder."""

    def __init__(self, documents: list[list[int]]) -> None:
        lengths = np.array([length for document in documents for length in document], np.int64)
        self.sentence_ends = np.cumsum(lengths)
        self.document_ends = np.cumsum([len(document) for document in documents])
        self.ids = (5 + uniform(11, np.arange(lengths.sum())) * (VOCABULARY - 5)).astype(np.int32)
        self.tokens = len(self.ids)
        self.document = np.repeat(  # of each token
            np.arange(len(documents)), [sum(document) for document in documents]
        )

    def gather(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int32]:
        pieces = [self.ids[start : start + length] for start, length in zip(starts, lengths, strict=True)]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int32)


@cache
def prose(documents: int, sentences: float = 12, words: float = 20, seed: int = 0) -> Prose:
    """Text of some documents, of lengths from one to several times the mean."""
    counts = 1 + (-np.log1p(-uniform(seed, 1, np.arange(documents))) * (sentences - 1)).astype(int)
    ends = np.cumsum(counts)
    lengths = 1 + (-np.log1p(-uniform(seed, 2, np.arange(ends[-1]))) * (words - 1)).astype(int)
    return Prose([lengths[end - count : end].tolist() for count, end in zip(counts, ends, strict=True)])
