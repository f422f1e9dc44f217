"""Near-duplicate documents: MinHash signatures of their word 5-grams, and locality-sensitive hashing in bands.

Broder 1997, "On the resemblance and containment of documents"; Lee et al. 2022, "Deduplicating Training Data Makes
Language Models Better". The share of equal values in two signatures estimates the Jaccard similarity of the documents.
Signatures are computed by the library `rensa` and kept on disk. Only documents with an equal band (6 values in a row)
are compared. Of near-duplicates the first document is kept.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.cleaning.ngrams import Hashes, ngram_hashes
from bertsmith.errors import TextError
from bertsmith.random_bits import mix

NGRAM = 5  # words
MIN_WORDS = 10  # of a document: `prepare` drops shorter ones that are exactly the same
ROWS, BANDS = 6, 21  # at a similarity of 0.75, 98 % of pairs have an equal band; at 0.5 a quarter; at 0.3 1.5 %
PERMUTATIONS = ROWS * BANDS  # values of a signature
SEED = 42
BLOCK = 1 << 14  # signatures read at a time
SLICE = 1 << 23  # keys sorted at a time: with more, the text's keys are sorted in several slices

Signatures = NDArray[np.uint32]


def import_rensa() -> Any:
    """The library that computes MinHash signatures."""
    try:
        import rensa
    except ImportError:
        remedy = "Install it with: pip install 'bertsmith[clean]', or leave the rule out with --skip near-duplicates"
        raise TextError("clean", "near-duplicates need rensa", remedy) from None
    return rensa


def signatures(documents: Sequence[Hashes]) -> Signatures:
    """The MinHash signature of each document, given the hashes of its words."""
    if not documents:
        return np.empty((0, PERMUTATIONS), np.uint32)
    shingles = [ngram_hashes(words, NGRAM) for words in documents]
    offsets = np.cumsum([0, *map(len, shingles)], dtype=np.uint64)
    make = import_rensa().RMinHash.digest_matrix_from_flat_token_hashes
    return np.array(make(np.concatenate(shingles), offsets, PERMUTATIONS, SEED).to_rows(), np.uint32)


def read_signatures(path: Path, count: int) -> Signatures:
    """The signatures in a file, mapped and not held in memory."""
    if not count:
        return np.empty((0, PERMUTATIONS), np.uint32)
    return np.memmap(path, np.uint32, "r", shape=(count, PERMUTATIONS))


def find_near_duplicates(found: Signatures, rows: NDArray[np.int64], similarity: float) -> NDArray[np.int64]:
    """For each signature the row of an earlier one that is at least as similar; -1 for those without.

    Only the given rows, in ascending order, are compared. A row is compared with the first of those that share its band
    and with the one before it: in a cluster of many copies this is enough, and the work stays linear.
    """
    originals = np.full(len(found), -1, np.int64)
    for band in range(BANDS):
        for keys, at in _band_keys(found, rows, band):
            order = np.argsort(keys, kind="stable")  # rows with equal keys stay in ascending order
            keys, at = keys[order], at[order]
            same = np.flatnonzero(keys[1:] == keys[:-1]) + 1
            begins = np.concatenate([[True], keys[1:] != keys[:-1]])
            first = np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))
            for earlier in (first[same], same - 1):
                _compare(found, at[earlier], at[same], similarity, originals)
    return originals


def _band_keys(
    found: Signatures, rows: NDArray[np.int64], band: int
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """The keys of a band with their rows, in slices by the key, so that no more than a slice is held in memory."""
    slices = -(-len(rows) // SLICE)
    for part in range(slices):
        keys, at = [], []
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            values = np.asarray(found[block, band * ROWS : (band + 1) * ROWS])
            key = mix(*(values[:, column] for column in range(ROWS)))
            inside = key % np.uint64(slices) == part
            keys.append(key[inside])
            at.append(block[inside])
        yield np.concatenate(keys), np.concatenate(at)


def _compare(
    found: Signatures,
    earlier: NDArray[np.int64],
    later: NDArray[np.int64],
    similarity: float,
    originals: NDArray[np.int64],
) -> None:
    """Note those of the later rows that are near-duplicates of the earlier ones; known ones are not compared again."""
    new = originals[later] < 0
    earlier, later = earlier[new], later[new]
    for start in range(0, len(later), BLOCK):
        some, others = earlier[start : start + BLOCK], later[start : start + BLOCK]
        alike = np.mean(np.asarray(found[some]) == np.asarray(found[others]), axis=1) >= similarity
        originals[others[alike]] = some[alike]
