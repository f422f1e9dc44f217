"""Document order: all documents of an epoch end to end, shuffled, with a separator after each."""

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from bertsmith.data.packing.sorted_index import SortedIndex
from bertsmith.random_bits import DOCUMENT, mix, permute


class DocumentOrder:
    """Several epochs end to end, each with its own shuffle of the documents.

    In this text a sequence may continue with the next document: FULL-SENTENCES of Liu et al. 2019, section 4.2.
    A position in it is a token or the separator after a document. The tokens themselves are not moved.
    """

    def __init__(self, units: SortedIndex, documents: Int64[ndarray, "M"], epochs: range, seed: int) -> None:
        """Units and documents by their starts in the corpus, then its end. A document is one unit or more."""
        count = len(documents) - 1
        keys = [int(mix(seed, DOCUMENT, epoch)) for epoch in epochs]
        order = np.concatenate([permute(np.arange(count), count, key) for key in keys])
        self.units = units
        self.corpus_starts = documents[order]  # where each document begins in the corpus
        spans = documents[order + 1] - self.corpus_starts + 1  # with the separator
        self.starts = np.concatenate([[0], np.cumsum(spans)])  # where each document begins in this order, and the end
        self.epoch_starts = self.starts[::count]  # where each epoch begins, and the end

    def last_fit(self, limits: Int64[ndarray, "N"]) -> tuple[Int64[ndarray, "N"], Int64[ndarray, "N"]]:
        """Where the last unit up to each limit ends, and where the next unit begins."""
        document = np.searchsorted(self.starts, limits) - 1  # the last that begins before the limit
        begin, stop = self.starts[document], self.starts[document + 1] - 1
        shift = self.corpus_starts[document] - begin
        found = self.units.values[self.units.searchsorted(np.minimum(limits, stop) + shift) - 1] - shift
        # Where no unit of the document fits, the sequence ends with the document before, without its separator.
        return found - (found == begin), found + (found == stop)

    def unit_ends(self, positions: Int64[ndarray, "N"]) -> Int64[ndarray, "N"]:
        """Where the unit that begins at each position ends."""
        document = np.searchsorted(self.starts, positions, side="right") - 1
        shift = self.corpus_starts[document] - self.starts[document]
        return np.asarray(self.units.values[self.units.searchsorted(positions + shift)] - shift)

    def corpus_ranges(
        self, starts: Int64[ndarray, "B"], lengths: Int64[ndarray, "B"]
    ) -> tuple[Int64[ndarray, "N"], Int64[ndarray, "N"], Int64[ndarray, "N"]]:
        """The texts in each range: the range's index, the text's start in the corpus, and its length.

        A separator at either end of a range, where a cut may leave it, is left out.
        """
        ends = starts + lengths
        first = np.searchsorted(self.starts, starts, side="right") - 1
        counts = np.searchsorted(self.starts, ends) - first
        owner = np.repeat(np.arange(len(starts)), counts)
        document = np.arange(len(owner)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        begin = np.maximum(starts[owner], self.starts[document])
        texts = np.minimum(ends[owner], self.starts[document + 1] - 1) - begin
        real = texts > 0
        return owner[real], (begin - self.starts[document] + self.corpus_starts[document])[real], texts[real]
