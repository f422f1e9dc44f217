"""The plan of an epoch: which ranges of the corpus become which sequences, and in what order.

Pairs are drawn for next-sentence prediction (NSP) or sentence-order prediction (SOP).
"""

import numpy as np

from bertsmith.data.packing.document_order import DocumentOrder
from bertsmith.data.packing.pairs import Pairs, nearest_unit, no_pairs_error, random_seconds
from bertsmith.data.packing.sequences import Int32Array, Int64Array, Sequences, TokenSource, UnitRanges
from bertsmith.data.packing.sorted_index import SortedIndex
from bertsmith.errors import RecipeError, TextError
from bertsmith.random_bits import ORDER, WALK, RandomBits, mix, permute


class Plan:
    """Sequences as a pure function of (seed, epoch); every sentence occurs once an epoch, not counting random seconds.

    A unit is a sentence, or a part of one that is too long. Each document is walked from its first unit to its last;
    a sequence takes the units that fit. With NSP (Devlin et al. 2018, section 3.1) the units of a sequence are split
    in two at random; then either the second half stays, or a text from another document replaces it and the walk
    continues right after the first half. With SOP (Lan et al. 2019, section 3.1) both halves stay, swapped in half of
    the pairs, and a unit that is left over at the end of a walk stays a single text.

    With `cross_documents` (FULL-SENTENCES of Liu et al. 2019, section 4.2) a sequence that has room left continues
    with the next document in the epoch's order. Departs from the paper: some sequences are meant to be short, here too.

    Departs from the paper: a sequence ends where a sentence ends, and nothing is truncated; a random second is as long
    as the text it replaces and ends with a sentence too; and true pairs are drawn with a probability that makes half of
    all pairs true although the last unit of a document has no true second. So neither lengths nor endings give NSP's
    label away. Lengths hardly give SOP's away either: a sequence often begins with the long unit that did not fit into
    the one before, so SOP splits within the middle half of the tokens.
    """

    def __init__(
        self,
        source: TokenSource,
        *,
        length: int,
        pairs: Pairs,
        seed: int,
        short_probability: float = 0.1,
        cross_documents: bool = False,
    ) -> None:
        if cross_documents and pairs != "none":
            fact = "a sequence that goes on with the next document holds no pair"
            raise RecipeError(f'pairs = "{pairs}"', fact, 'Set pairs = "none", or cross_documents = false')
        min_length = 3 if pairs == "none" else 5
        if length < min_length:
            raise RecipeError(f"max_length = {length}", "leaves no room for text", f"Choose at least {min_length}")
        self.seed, self.pairs, self.cross_documents = seed, pairs, cross_documents
        self.short_probability = short_probability
        self.max_text_tokens = length - 2 if pairs == "none" else length - 3
        sentences = np.concatenate([[0], source.sentence_ends])
        max_unit = self.max_text_tokens if pairs == "none" else self.max_text_tokens // 2
        self.unit_starts = _merge(sentences, _cuts(sentences, max_unit))
        ends = sentences[np.concatenate([[0], source.document_ends])]
        self.document_starts = _merge(np.searchsorted(self.unit_starts, ends))
        if len(self.document_starts) == 1:
            raise TextError("corpus", "it holds no tokens", "Give it text of at least one sentence")
        self.unit_index = SortedIndex(self.unit_starts)
        if pairs == "nsp" and len(self.document_starts) == 2:
            raise TextError(
                "corpus",
                "it is one document, but half of the pairs take their second text from another",
                'Put a blank line between documents, or set pairs = "none"',
            )
        self.stride = 64 * length
        # Long documents are walked in strides, all at the same time; no sequence crosses from one into the next.
        strides = np.searchsorted(self.unit_starts, _cuts(self.unit_starts[self.document_starts], self.stride))
        self.walk_starts = _merge(self.document_starts, strides)
        if pairs == "sop" and len(self.walk_starts) == len(self.unit_starts):
            raise no_pairs_error()
        self.true_pair_rate, self.second_lengths = 0.5, np.zeros(1, np.int64)
        if pairs == "nsp":
            self._balance_pairs()

    def sequences(self, epochs: range) -> Sequences:
        """All sequences of the epochs, in shuffled order."""
        return self.to_sequences(*self.plan_epochs(epochs))

    def plan_epochs(self, epochs: range) -> tuple[UnitRanges, Int64Array]:
        """The sequences before random seconds are drawn, and their order: epoch after epoch, each shuffled anew."""
        walks = len(self.walk_starts) - 1
        if self.cross_documents:
            ranges = self._walk_across(epochs)
        else:
            ranges = self._walk(np.tile(np.arange(walks), len(epochs)), np.repeat(np.array(epochs, np.int32), walks))
        order = np.argsort(ranges.epoch, kind="stable")
        bounds = np.searchsorted(ranges.epoch[order], np.arange(epochs.start, epochs.stop + 1))
        for epoch, begin, end in zip(epochs, bounds, bounds[1:], strict=False):
            rows = permute(np.arange(end - begin), int(end - begin), int(mix(self.seed, ORDER, epoch)))
            order[begin:end] = order[begin:end][rows]
        return ranges, order

    def to_sequences(self, ranges: UnitRanges, rows: Int64Array) -> Sequences:
        """Some of the planned sequences as ranges of tokens, with random seconds for NSP, or swapped for SOP."""
        return self._to_sequences(ranges.take(rows))

    def mean_length(self) -> float:
        """The mean tokens of a sequence, estimated on a sample."""
        return float(self._to_sequences(self._sample()).lengths.mean())

    def epoch_tokens(self) -> float:
        """The tokens of an epoch with special tokens and random second texts, estimated on a sample."""
        sample = self._to_sequences(self._sample())
        random = sample.label == 1 if self.pairs == "nsp" else np.zeros(len(sample), bool)
        text = sample.first_length + np.where(random, 0, sample.second_length)
        separators = len(self.document_starts) - 1 if self.cross_documents else 0  # which are part of the first text
        return (int(self.unit_starts[-1]) + separators) * float(sample.lengths.sum() / text.sum())

    def _balance_pairs(self) -> None:
        """Find the probability of a true pair that makes half of all pairs true; some have no true second."""
        for _ in range(16):
            sample = self._sample()
            has_second = sample.split < sample.stop
            if not has_second.any():
                raise no_pairs_error()
            self.second_lengths = (self.unit_starts[sample.stop] - self.unit_starts[sample.split])[has_second]
            change = (min(1.0, 0.5 / float(has_second.mean())) - self.true_pair_rate) / 2
            self.true_pair_rate += change
            if abs(change) < 0.001:
                break

    def _sample(self, size: int = 16_384) -> UnitRanges:
        """About `size` sequences, from walks all over the corpus, over several epochs where it is small."""
        walks = len(self.walk_starts) - 1
        total = int(self.unit_starts[-1]) // self.max_text_tokens + walks
        step, epochs = max(1, total // size), max(1, size // total)
        if self.cross_documents:
            return self._walk_across(range(min(epochs, 32)), step)  # every epoch costs a shuffle
        some = np.arange(0, walks, step)
        return self._walk(np.tile(some, epochs), np.repeat(np.arange(epochs, dtype=np.int32), len(some)))

    def _walk(self, walks: Int64Array, epochs: Int32Array) -> UnitRanges:
        """Walk them all: each turn finds the next sequence of every walk that is not yet at its end."""
        unit, stop, epoch = self.walk_starts[walks], self.walk_starts[walks + 1], epochs
        key = mix(self.seed, WALK, epochs)
        min_units = 2 if self.pairs == "sop" else 1  # two always fit
        turns = []
        while len(unit):
            random_bits = mix(key, unit)
            coin, cut = ((random_bits >> bits & 0xFFFFF) * 2.0**-20 for bits in (20, 40))
            limit = self.unit_starts[unit] + self._target_lengths(random_bits)
            last = np.clip(self.unit_index.searchsorted(limit) - 1, unit + min_units, stop)
            limit = np.minimum(limit, self.unit_starts[stop])
            if self.pairs == "none":
                split, label = last, np.full(len(unit), -100, np.int32)
            elif self.pairs == "nsp":
                split = np.minimum(unit + 1 + (cut * (last - unit - 1)).astype(np.int64), last)
                label = ((split == last) | (coin >= self.true_pair_rate)).astype(np.int32)
            else:
                middle = self.unit_starts[unit] + (0.25 + cut / 2) * (self.unit_starts[last] - self.unit_starts[unit])
                split = nearest_unit(self.unit_starts, middle.astype(np.int64))
                split = np.clip(split, unit + 1, np.maximum(last - 1, unit + 1))
                label = np.where(split == last, -100, coin >= self.true_pair_rate).astype(np.int32)
            turns.append((unit, split, last, limit, label, epoch))
            unit = np.where(label == 1, split, last) if self.pairs == "nsp" else last
            going = np.flatnonzero(unit < stop)
            unit, stop, epoch, key = unit[going], stop[going], epoch[going], key[going]
        unit, split, last, limit, label, epoch = (np.concatenate(column) for column in zip(*turns, strict=True))
        return UnitRanges(start=unit, split=split, stop=last, limit=limit, label=label, epoch=epoch)

    def _walk_across(self, epochs: range, step: int = 1) -> UnitRanges:
        """Walk the document order of the epochs in strides, as one long document; with `step`, every n-th stride."""
        documents = DocumentOrder(self.unit_index, self.unit_starts[self.document_starts], epochs, self.seed)
        _, strides = documents.last_fit(_cuts(documents.epoch_starts, self.stride))
        walks = _merge(documents.epoch_starts, strides)
        position, stop = walks[:-1][::step], walks[1:][::step]
        number = np.searchsorted(documents.epoch_starts, position, side="right") - 1
        begin, epoch = documents.epoch_starts[number], (epochs.start + number).astype(np.int32)
        key = mix(self.seed, WALK, epoch)
        turns = []
        while len(position):
            target = self._target_lengths(mix(key, position - begin))  # the same whichever epochs come before
            limit, short = position + target, np.flatnonzero(target < self.max_text_tokens)
            limit[short] = np.maximum(limit[short], documents.unit_ends(position[short]))  # one unit at least
            end, after = documents.last_fit(np.minimum(limit, stop))
            turns.append((position, end, epoch))
            going = np.flatnonzero(after < stop)
            position, stop, begin, epoch, key = after[going], stop[going], begin[going], epoch[going], key[going]
        position, end, epoch = (np.concatenate(column) for column in zip(*turns, strict=True))
        label = np.full(len(position), -100, np.int32)
        return UnitRanges(
            start=position, split=end, stop=end, limit=end, label=label, epoch=epoch, document_order=documents
        )

    def _target_lengths(self, random_bits: RandomBits) -> Int64Array:
        """The most tokens of each sequence: as many as fit, or fewer with `short_probability` (Devlin et al. 2018)."""
        least, draw = min(2, self.max_text_tokens), (random_bits & 0xFFFFF) * 2.0**-20
        # A draw below the probability, which makes the sequence short, is spread over the short lengths as well.
        spread = (self.max_text_tokens + 1 - least) / (self.short_probability or 1)
        return np.where(draw < self.short_probability, least + draw * spread, self.max_text_tokens).astype(np.int64)

    def _to_sequences(self, ranges: UnitRanges) -> Sequences:
        """Units as ranges of tokens, with random seconds or swapped where the label is 1."""
        first, second, last = ranges.start, ranges.split, ranges.stop
        if ranges.document_order is None:
            first, second, last = self.unit_starts[first], self.unit_starts[second], self.unit_starts[last]
        sequences = Sequences(
            first_start=first,
            first_length=(second - first).astype(np.int32),
            second_start=second,
            second_length=(last - second).astype(np.int32),
            label=ranges.label,
            epoch=ranges.epoch,
        )
        rows = np.flatnonzero(ranges.label == 1)
        if self.pairs == "sop":
            for one, other in (
                (sequences.first_start, sequences.second_start),
                (sequences.first_length, sequences.second_length),
            ):
                one[rows], other[rows] = other[rows], one[rows]
        elif len(rows):
            has_second = sequences.second_length[rows] > 0
            sequences.second_start[rows], sequences.second_length[rows] = random_seconds(
                ranges.start[rows],
                np.where(has_second, ranges.limit[rows] - second[rows], 0),
                sequences.first_length[rows],
                ranges.epoch[rows],
                unit_starts=self.unit_starts,
                document_starts=self.document_starts,
                true_lengths=self.second_lengths,
                max_text_tokens=self.max_text_tokens,
                seed=self.seed,
            )
        return sequences


def _cuts(bounds: Int64Array, max_length: int) -> Int64Array:
    """Where to cut ranges longer than `max_length`, each into as few equal parts as possible."""
    lengths = np.diff(bounds)
    long = np.flatnonzero(lengths > max_length)
    parts = -(-lengths[long] // max_length)
    owner, cuts = np.repeat(long, parts - 1), np.cumsum(parts - 1)
    part = 1 + np.arange(len(owner)) - np.repeat(cuts - (parts - 1), parts - 1)
    return np.asarray(bounds[owner] + lengths[owner] * part // np.repeat(parts, parts - 1))


def _merge(*bounds: Int64Array) -> Int64Array:
    """All bounds in order, each once."""
    merged = np.sort(np.concatenate(bounds), kind="stable")  # nearly sorted: a stable sort merges the runs
    return np.asarray(merged[np.concatenate([[True], merged[1:] > merged[:-1]])])
