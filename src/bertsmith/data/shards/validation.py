"""The validation split: which part of a corpus is held out, so that it has the share that was asked for.

The unit is a document. One that is longer than a fifth of the validation text is cut, between sentences, into
stretches of about a tenth of it, and each stretch belongs to one split; neighbours in the same split stay together as
one document. So ordinary documents stay whole, and a book in one file loses a few stretches to validation, between
which next-sentence pairs are not drawn.

Units are chosen by a hash of their text alone, and never by the order of files or the number of processes. A first
reading counts: units are taken in the order of their hashes until the share is full, and a last few are swapped for
others of a better size. A corpus so large that a threshold on the hash gives the share by itself (the standard
deviation of its size is below a fortieth) is read only once.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby

import numpy as np
from jaxtyping import Float64, Int64, UInt64

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.duplicates import DigestSet
from bertsmith.data.shards.journal import DIGEST

HASH_RANGE = 1 << 64
LONG_DOCUMENT_PARTS, STRETCH_PARTS = 5, 10  # documents above 1/5 of validation are cut into stretches of 1/10
LARGE_VALIDATION_BYTES = 1600 << 15  # from here a threshold is enough: 1,600 stretches of 32 kB and more
LARGE_LONG, LARGE_STRETCH = 1 << 16, 1 << 15
MAX_SPLIT_BYTES = 1 << 24  # bytes on disk up to which running text is split into sentences in the first reading, too
MAX_STORED_SIZES = 1 << 20  # sentences whose sizes are stored, and documents that are all stored
MIN_STRETCH_BYTES = 1 << 10  # bytes of the smallest stretch where sizes of sentences are not known
SHARE_TOLERANCE = 0.02  # tolerance, as a share of the wanted size
REPORT_BYTES = 1 << 25  # bytes between two reports of progress


@dataclass(frozen=True)
class Validation:
    """The units that are held out: hashes below a threshold, with some exceptions."""

    threshold: int = 0
    exceptions: frozenset[int] = field(default_factory=frozenset)
    long: float = float("inf")  # bytes; longer documents are cut
    stretch: float = float("inf")  # bytes of a stretch, about

    def contains(self, key: int) -> bool:
        """Whether a unit is held out."""
        return (key < self.threshold) != (key in self.exceptions)

    def split_document(self, key: int, size: int, sentences: list[str]) -> Iterator[tuple[bool, list[str]]]:
        """A document's sentences in runs that belong to one split, and whether that is validation."""
        if size <= self.long:
            yield self.contains(key), sentences
            return
        numbers = stretch_numbers(
            np.array(list(map(byte_length, sentences)), np.int64), stretch_count(size, self.stretch)
        ).tolist()
        sides = {number: self.contains(stretch_key(key, number)) for number in set(numbers)}
        pairs = zip(numbers, sentences, strict=True)
        for held_out, run in groupby(pairs, lambda pair: sides[pair[0]]):
            yield held_out, [sentence for _, sentence in run]


def digest(texts: Sequence[str]) -> tuple[bytes, int]:
    """A hash of some texts in their order, and their bytes."""
    joined = "\n".join(texts).encode()
    return blake2b(joined, digest_size=DIGEST).digest(), len(joined) - len(texts) + 1


def document_key(digest: bytes) -> int:
    """The number that decides the split of a whole document."""
    return int.from_bytes(digest[:8], "big")


def stretch_key(key: int, number: int) -> int:
    """The number that decides the split of a document's n-th stretch."""
    return int.from_bytes(blake2b(key.to_bytes(8, "big") + number.to_bytes(8, "big"), digest_size=8).digest(), "big")


def stretch_count(size: int, stretch: float) -> int:
    """The number of stretches of a long document."""
    return max(2, int(size / stretch))


def stretch_numbers(sizes: Int64[np.ndarray, " S"], number: int) -> Int64[np.ndarray, " S"]:
    """The stretch that the middle of each sentence lies in, of `number` equal ones."""
    middles = np.cumsum(sizes) - sizes / 2
    return np.minimum(middles * (number / max(int(sizes.sum()), 1)), number - 1).astype(np.int64)


def byte_length(text: str) -> int:
    """The bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def choose_validation(corpus: Corpus, share: float, progress: Callable[[float], object] | None = None) -> Validation:
    """The validation split of a corpus, after a first reading unless it is very large."""
    if not share:
        return Validation()
    corpus.buffer_stdin()
    if share * corpus.bytes >= LARGE_VALIDATION_BYTES:
        return Validation(int(share * HASH_RANGE), long=LARGE_LONG, stretch=LARGE_STRETCH)
    counted = _measure_units(corpus, share, progress)
    wanted = share * counted.size
    long, stretch = max(wanted / LONG_DOCUMENT_PARTS, 1.0), max(wanted / STRETCH_PARTS, 1.0)
    if counted.sentences is None:
        long, stretch = max(long, 2.0 * MIN_STRETCH_BYTES), max(stretch, 1.0 * MIN_STRETCH_BYTES)
    if counted.thinned:
        long, stretch = max(long, 1.0 * LARGE_LONG), max(stretch, 1.0 * LARGE_STRETCH)
    keys, sizes = counted.units(long, stretch)
    threshold, exceptions = choose_units(keys, sizes, wanted)
    return Validation(threshold, exceptions, long, stretch)


class UnitSizes:
    """The first reading's record of each document: its key, its size, and the sizes of its sentences while few."""

    def __init__(self, share: float) -> None:
        self.size = 0  # bytes of all documents
        self.share, self.thinned = share, False
        self.keys, self.sizes = array("Q"), array("Q")
        self.counts, self.sentences = array("I"), array("I")  # type: array[int], array[int] | None

    def add(self, key: int, size: int, sentences: Sequence[int]) -> None:
        """Add a document; without sentences their sizes are unknown."""
        self.size += size
        self.keys.append(key)
        self.sizes.append(size)
        if self.sentences is not None:
            self.counts.append(len(sentences))
            self.sentences.extend(sentences)
            if len(self.sentences) > MAX_STORED_SIZES:
                self.sentences, self.counts = None, array("I")
        if len(self.keys) > MAX_STORED_SIZES and len(self.keys) & (MAX_STORED_SIZES - 1) == 0:
            self._thin()

    def units(self, long: float, stretch: float) -> tuple[UInt64[np.ndarray, " U"], Float64[np.ndarray, " U"]]:
        """Keys and sizes of all units, with documents longer than `long` cut into stretches."""
        if len(self.keys) > MAX_STORED_SIZES or self.thinned:
            self._thin()
        keys, sizes = np.array(self.keys, np.uint64), np.array(self.sizes, np.float64)
        more_keys, more_sizes = [keys[sizes <= long]], [sizes[sizes <= long]]
        ends = np.cumsum(np.array(self.counts, np.int64))
        for at in np.flatnonzero(sizes > long).tolist():
            number = stretch_count(int(sizes[at]), stretch)
            if self.sentences is not None and self.counts[at]:
                start = int(ends[at]) - self.counts[at]
                inner = np.array(self.sentences[start : int(ends[at])], np.int64)
                where, back = np.unique(stretch_numbers(inner, number), return_inverse=True)
                found = np.bincount(back, inner).astype(np.float64)
            else:
                where, found = np.arange(number), np.full(number, sizes[at] / number)
            more_keys.append(np.array([stretch_key(self.keys[at], one) for one in where.tolist()], np.uint64))
            more_sizes.append(found)
        return np.concatenate(more_keys), np.concatenate(more_sizes)

    def _thin(self) -> None:
        """Drop short documents with hashes so large that they are never taken: memory follows the share."""
        self.thinned, last = True, int(min(3 * self.share, 1.0) * (HASH_RANGE - 1))
        pairs = zip(self.keys, self.sizes, strict=True)
        kept = [(key, size) for key, size in pairs if key <= last or size > LARGE_LONG]
        self.keys = array("Q", [key for key, _ in kept])
        self.sizes = array("Q", [size for _, size in kept])
        self.sentences, self.counts = None, array("I")


def choose_units(
    keys: UInt64[np.ndarray, " U"], sizes: Float64[np.ndarray, " U"], wanted: float
) -> tuple[int, frozenset[int]]:
    """The units that add up to a size, as a threshold and exceptions. Of two or more never none, and never all."""
    if len(keys) < 2:
        return 0, frozenset()
    order = np.argsort(keys, kind="stable")
    keys, sizes = keys[order], sizes[order]
    first = int(np.searchsorted(np.cumsum(sizes), wanted, "right"))
    first = min(first, len(keys) - 1)
    taken = np.arange(len(keys)) < first
    gap = wanted - float(sizes[:first].sum())
    place = first
    while gap > SHARE_TOLERANCE * wanted and len(
        fits := np.flatnonzero(sizes[place:] <= gap)
    ):  # the next ones that still fit
        place += int(fits[0])
        taken[place] = True
        gap -= float(sizes[place])
        place += 1
    for _ in range(STRETCH_PARTS):
        if abs(gap) <= SHARE_TOLERANCE * wanted or not (better := _exchange(sizes, taken, gap)):
            break
        gap += float(sizes[list(better)][taken[list(better)]].sum() - sizes[list(better)][~taken[list(better)]].sum())
        taken[list(better)] ^= True
    if not taken.any():
        taken[int(np.argmin(sizes))] = True
    exceptions = np.flatnonzero(taken != (np.arange(len(keys)) < first))
    return int(keys[first]), frozenset(keys[exceptions].tolist())


def _exchange(sizes: Float64[np.ndarray, " U"], taken: np.ndarray, gap: float) -> tuple[int, ...]:
    """The best swap: a free unit, and the taken unit it replaces, if any; empty if none brings the size nearer."""
    free = np.flatnonzero(~taken)
    if len(free) < 2:
        return ()
    free = free[np.argsort(sizes[free], kind="stable")]
    mine = np.flatnonzero(taken)
    gone = np.concatenate(([0.0], sizes[mine]))  # the first: no unit is replaced
    right = np.searchsorted(sizes[free], gone + gap)
    best, found = abs(gap), ()  # type: float, tuple[int, ...]
    for side in (np.clip(right, 0, len(free) - 1), np.clip(right - 1, 0, len(free) - 1)):
        left = np.abs(gap + gone - sizes[free[side]])
        at = int(np.argmin(left))
        if left[at] < best:
            best, found = float(left[at]), (int(free[side[at]]), *([int(mine[at - 1])] if at else []))
    return found


def _measure_units(corpus: Corpus, share: float, progress: Callable[[float], object] | None) -> UnitSizes:
    counted, seen, reported = UnitSizes(share), DigestSet(), 0
    split = corpus.bytes <= MAX_SPLIT_BYTES
    # Shorter documents, in bytes, are hardly ever cut, so none is measured.
    short = share * corpus.bytes / (4 * LONG_DOCUMENT_PARTS)
    for passage in corpus.passages():
        found, size = digest(passage.texts)
        if not seen.add(found):
            continue
        sentences = list[int]()
        if counted.sentences is not None and size > short and (split or passage.layout == "lines"):
            sentences = list(map(byte_length, passage.sentences()))
        counted.add(document_key(found), size, sentences)
        if progress and counted.size - reported >= REPORT_BYTES:
            reported = counted.size
            progress(corpus.progress)
    return counted
