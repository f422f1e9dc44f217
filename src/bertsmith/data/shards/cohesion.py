"""Lexical cohesion: whether neighbouring sentences of a text belong together, or every line stands for itself.

Sentences that follow each other share more rare words than sentences of different documents (Halliday and Hasan 1976).
In a list of captions, titles or reviews they do not, and there is nothing to learn from which sentence comes next.
"""

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from bertsmith.data.shards.shards import Shards

MAX_PAIRS = 4_000  # pairs of sentences that are compared
MIN_Z, MIN_RATIO = 4.0, 1.2  # neighbours share more: beyond chance, and by enough to be learnt


def is_cohesive(shards: Shards) -> bool:
    """Whether sentences share more with the next one than with one of another document."""
    neighbours, strangers = shared_information(shards)
    if len(neighbours) < 2:
        return False
    gain = neighbours - strangers
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return bool(gain.mean() > MIN_Z * error and neighbours.mean() > MIN_RATIO * strangers.mean())


def shared_information(shards: Shards) -> tuple[Float64[ndarray, "N"], Float64[ndarray, "N"]]:
    """For a sample of sentences: what each shares with the next one, and with one of another document.

    What two sentences share is the information of the tokens that are in both: the sum of -log p.
    """
    documents = np.searchsorted(shards.document_ends, np.arange(shards.sentences), side="right")
    with_next = np.flatnonzero(documents[:-1] == documents[1:])
    if not len(with_next) or documents[-1] == documents[0]:
        return np.empty(0), np.empty(0)
    generator = np.random.default_rng(0)
    firsts = generator.permutation(with_next)[:MAX_PAIRS]
    others = generator.integers(0, shards.sentences, len(firsts))
    kept = documents[firsts] != documents[others]
    firsts, others = firsts[kept], others[kept]
    counts = shards.frequencies()
    information = -np.log(np.maximum(counts, 1) / counts.sum())
    ends = np.concatenate(([0], shards.sentence_ends))
    sets = [_sets(shards, ends, rows) for rows in (firsts, firsts + 1, others)]
    return tuple(  # type: ignore[return-value]
        np.array([information[list(one & other)].sum() for one, other in zip(sets[0], second, strict=True)])
        for second in sets[1:]
    )


def _sets(shards: Shards, ends: Int64[ndarray, "S"], rows: Int64[ndarray, "N"]) -> list[set[int]]:
    """The tokens of each sentence, without repetition."""
    starts, lengths = ends[rows], ends[rows + 1] - ends[rows]
    tokens = shards.gather(starts, lengths)
    return [set(part.tolist()) for part in np.split(tokens, np.cumsum(lengths)[:-1])]
