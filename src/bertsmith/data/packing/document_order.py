"""A chain: all documents of an epoch one behind the other, in shuffled order, with a separator between each two."""

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from bertsmith.data.packing.sorted_index import SortedIndex
from bertsmith.random_bits import DOCUMENT, mix, permute


class DocumentOrder:
    """Some epochs, one behind the other, each with its documents in an order of its own.

    It is text in which a sequence may go on with the next document: the FULL-SENTENCES of Liu et al. 2019, section 4.2.
    A place in it is a token or the separator behind a document. The tokens themselves stay where they are.
    """

    def __init__(self, units: SortedIndex, documents: Int64[ndarray, "M"], epochs: range, seed: int) -> None:
        """Units and documents by where they begin in the corpus, and its end. A document is one unit or more."""
        count = len(documents) - 1
        keys = [int(mix(seed, DOCUMENT, epoch)) for epoch in epochs]
        order = np.concatenate([permute(np.arange(count), count, key) for key in keys])
        self.units = units
        self.corpus_starts = documents[order]  # where each begins in the corpus
        spans = documents[order + 1] - self.corpus_starts + 1  # of each with its separator
        self.starts = np.concatenate([[0], np.cumsum(spans)])  # where each begins in the chain, and the end
        self.epoch_starts = self.starts[::count]  # where each epoch begins, and the end

    def last_fit(self, limits: Int64[ndarray, "N"]) -> tuple[Int64[ndarray, "N"], Int64[ndarray, "N"]]:
        """Where the last unit up to each goal ends, and where the one after it begins."""
        document = np.searchsorted(self.starts, limits) - 1  # the last that begins before the goal
        begin, stop = self.starts[document], self.starts[document + 1] - 1
        shift = self.corpus_starts[document] - begin
        found = self.units.values[self.units.searchsorted(np.minimum(limits, stop) + shift) - 1] - shift
        # Where nothing of the document fits, what fits ends with the one before: no separator ends a sequence.
        return found - (found == begin), found + (found == stop)

    def unit_ends(self, positions: Int64[ndarray, "N"]) -> Int64[ndarray, "N"]:
        """Where the unit that begins at each place ends."""
        document = np.searchsorted(self.starts, positions, side="right") - 1
        shift = self.corpus_starts[document] - self.starts[document]
        return np.asarray(self.units.values[self.units.searchsorted(positions + shift)] - shift)

    def corpus_ranges(
        self, starts: Int64[ndarray, "B"], lengths: Int64[ndarray, "B"]
    ) -> tuple[Int64[ndarray, "N"], Int64[ndarray, "N"], Int64[ndarray, "N"]]:
        """The texts in each stretch of the chain: whose they are, where they begin in the corpus, and their lengths.

        A separator at either end of a stretch, as a cut may leave it there, is left out.
        """
        ends = starts + lengths
        first = np.searchsorted(self.starts, starts, side="right") - 1
        counts = np.searchsorted(self.starts, ends) - first
        owner = np.repeat(np.arange(len(starts)), counts)
        document = np.arange(len(owner)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        begin = np.maximum(starts[owner], self.starts[document])
        texts = np.minimum(ends[owner], self.starts[document + 1] - 1) - begin
        held = texts > 0
        return owner[held], (begin - self.starts[document] + self.corpus_starts[document])[held], texts[held]
