"""The plan of an epoch: which parts of the text become which sequences, and in what order.

Pairs are drawn for next-sentence prediction (NSP) or sentence-order prediction (SOP).
"""

from dataclasses import dataclass, fields, replace
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.packing.document_order import DocumentOrder
from bertsmith.data.packing.sorted_index import SortedIndex
from bertsmith.errors import RecipeError, TextError
from bertsmith.random_bits import ORDER, RANDOM_SECOND, WALK, RandomBits, mix, permute, uniform

Int64Array = NDArray[np.int64]
Int32Array = NDArray[np.int32]  # there may be a billion of them
Pairs = Literal["none", "nsp", "sop"]

NO_PAIRS = (
    "corpus",
    "no document has two sentences, but it takes two that follow each other to make a pair",
    'Put blank lines only between documents, or set pairs = "none"',
)


@runtime_checkable
class TokenSource(Protocol):
    """Prepared text: where its sentences and documents end, and the tokens of any of its ranges."""

    @property
    def sentence_ends(self) -> Int64Array: ...  # in tokens

    @property
    def document_ends(self) -> Int64Array: ...  # in sentences

    def gather(self, starts: Int64Array, lengths: Int64Array) -> NDArray[np.int32]: ...


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Ranges of the corpus, one row a sequence: a first text and, where there are pairs, a second one.

    Where sequences go across documents, the first text is a range of a chain, with the separators inside it.
    """

    first_start: Int64Array
    first_length: Int32Array
    second_start: Int64Array
    second_length: Int32Array
    label: Int32Array  # 0 the second text truly follows, 1 it comes from elsewhere or before, -100 there is none
    epoch: Int32Array

    def __len__(self) -> int:
        return len(self.label)

    @property
    def lengths(self) -> Int64Array:
        """Tokens of each sequence, [CLS] and [SEP] included."""
        return (self.first_length + self.second_length + 2 + (self.label >= 0)).astype(np.int64)

    def take(self, rows: Int64Array) -> "Sequences":
        """A copy of these rows."""
        return replace(self, **{part.name: getattr(self, part.name)[rows] for part in fields(self)})


@dataclass(frozen=True, kw_only=True)
class UnitRanges:
    """Sequences as units: the first text is [unit, split), what follows it [split, last)."""

    start: Int64Array
    split: Int64Array
    stop: Int64Array
    limit: Int64Array  # the token up to which there was room, or text
    label: Int32Array
    epoch: Int32Array
    chain: DocumentOrder | None = None  # across documents these are not units, but places in it

    def take(self, rows: Int64Array) -> "UnitRanges":
        """A copy of these rows."""
        columns = (part.name for part in fields(self) if part.name != "chain")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


class Plan:
    """Sequences as a pure function of (seed, epoch): every sentence stands once an epoch in its own place.

    A unit is a sentence, or a part of one that is too long. Each document is walked from its first unit to its last;
    a sequence takes the units that fit. With pairs (Devlin et al. 2018, section 3.1) the units taken are split in two
    at random; then either the second half stays, or a text from another document stands in for it and the walk goes on
    right after the first half. With order (Lan et al. 2019, section 3.1) both halves stay, in half of the pairs
    swapped, and a unit that is left over at the end of a walk stays a single text.

    Across documents (FULL-SENTENCES of Liu et al. 2019, section 4.2) a sequence that has room left goes on with the
    document that comes next in the epoch's own order. Departs from the paper: some are meant to be short, here too.

    Departs from the paper: a sequence ends where a sentence ends, nothing being cut off; a stand-in is as long as the
    text it replaces and ends with a sentence too; and the coin is weighted so that half of all pairs are true although
    the last unit of a document has no true second. So neither lengths nor endings give the label away. Lengths hardly
    give the order away either: a sequence often begins with the long unit that did not fit into the one before, so what
    may be swapped is split somewhere in the middle half of its tokens.
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
        least = 3 if pairs == "none" else 5
        if length < least:
            raise RecipeError(f"max_length = {length}", "leaves no room for text", f"Choose at least {least}")
        self.seed, self.pairs, self.short_probability, self.cross_documents = (
            seed,
            pairs,
            short_probability,
            cross_documents,
        )
        self.max_text_tokens = length - 2 if pairs == "none" else length - 3
        sentences = np.concatenate([[0], source.sentence_ends])
        self.unit_starts = _merge(
            sentences, _cuts(sentences, self.max_text_tokens if pairs == "none" else self.max_text_tokens // 2)
        )
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
            raise TextError(*NO_PAIRS)
        self.true_pair_rate, self.second_lengths = 0.5, np.zeros(1, np.int64)
        if pairs == "nsp":
            self._balance_pairs()

    def sequences(self, epochs: range) -> Sequences:
        """All sequences of the epochs, in the order to see them in."""
        return self.to_sequences(*self.plan_epochs(epochs))

    def plan_epochs(self, epochs: range) -> tuple[UnitRanges, Int64Array]:
        """The same before the stand-ins are drawn, and the order: epoch after epoch, each shuffled anew."""
        walks = len(self.walk_starts) - 1
        if self.cross_documents:
            found = self._walk_across(epochs)
        else:
            found = self._walk(np.tile(np.arange(walks), len(epochs)), np.repeat(np.array(epochs, np.int32), walks))
        order = np.argsort(found.epoch, kind="stable")
        bounds = np.searchsorted(found.epoch[order], np.arange(epochs.start, epochs.stop + 1))
        for epoch, begin, end in zip(epochs, bounds, bounds[1:], strict=False):
            rows = permute(np.arange(end - begin), int(end - begin), int(mix(self.seed, ORDER, epoch)))
            order[begin:end] = order[begin:end][rows]
        return found, order

    def to_sequences(self, found: UnitRanges, rows: Int64Array) -> Sequences:
        """Some of what was walked, as ranges of tokens, with stand-ins where the label asks for them."""
        return self._to_sequences(found.take(rows))

    def mean_length(self) -> float:
        """About how many tokens a sequence has, seen on a sample."""
        return float(self._to_sequences(self._sample()).lengths.mean())

    def _balance_pairs(self) -> None:
        """Find how often the coin must say `true` for half of all pairs to be, some having no true second to give."""
        for _ in range(16):
            found = self._sample()
            free = found.split < found.stop
            if not free.any():
                raise TextError(*NO_PAIRS)
            self.second_lengths = (self.unit_starts[found.stop] - self.unit_starts[found.split])[free]
            change = (min(1.0, 0.5 / float(free.mean())) - self.true_pair_rate) / 2
            self.true_pair_rate += change
            if abs(change) < 0.001:
                break

    def _sample(self, size: int = 16_384) -> UnitRanges:
        """About so many sequences, from walks all over the corpus, over several epochs where it is small."""
        walks = len(self.walk_starts) - 1
        whole = int(self.unit_starts[-1]) // self.max_text_tokens + walks
        step, times = max(1, whole // size), max(1, size // whole)
        if self.cross_documents:
            return self._walk_across(range(min(times, 32)), step)  # every epoch is a shuffle more
        some = np.arange(0, walks, step)
        return self._walk(np.tile(some, times), np.repeat(np.arange(times, dtype=np.int32), len(some)))

    def _walk(self, walks: Int64Array, epochs: Int32Array) -> UnitRanges:
        """Walk them all: each turn finds the next sequence of every walk that is not yet at its end."""
        unit, stop, epoch, key = (
            self.walk_starts[walks],
            self.walk_starts[walks + 1],
            epochs,
            mix(self.seed, WALK, epochs),
        )
        few = 2 if self.pairs == "sop" else 1  # units; two always fit
        turns = []
        while len(unit):
            word = mix(key, unit)
            coin, cut = ((word >> bits & 0xFFFFF) * 2.0**-20 for bits in (20, 40))
            goal = self.unit_starts[unit] + self._target_lengths(word)
            last = np.clip(self.unit_index.searchsorted(goal) - 1, unit + few, stop)
            goal = np.minimum(goal, self.unit_starts[stop])
            if self.pairs == "none":
                split, label = last, np.full(len(unit), -100, np.int32)
            elif self.pairs == "nsp":
                split = np.minimum(unit + 1 + (cut * (last - unit - 1)).astype(np.int64), last)
                label = ((split == last) | (coin >= self.true_pair_rate)).astype(np.int32)
            else:
                place = self.unit_starts[unit] + (0.25 + cut / 2) * (self.unit_starts[last] - self.unit_starts[unit])
                split = np.clip(self._nearest(place.astype(np.int64)), unit + 1, np.maximum(last - 1, unit + 1))
                label = np.where(split == last, -100, coin >= self.true_pair_rate).astype(np.int32)
            turns.append((unit, split, last, goal, label, epoch))
            unit = np.where(label == 1, split, last) if self.pairs == "nsp" else last
            going = np.flatnonzero(unit < stop)
            unit, stop, epoch, key = unit[going], stop[going], epoch[going], key[going]
        unit, split, last, goal, label, epoch = (np.concatenate(column) for column in zip(*turns, strict=True))
        return UnitRanges(start=unit, split=split, stop=last, limit=goal, label=label, epoch=epoch)

    def _walk_across(self, epochs: range, step: int = 1) -> UnitRanges:
        """Walk the chain of the epochs in strides, as if it were one long document; or only one stride in so many."""
        chain = DocumentOrder(self.unit_index, self.unit_starts[self.document_starts], epochs, self.seed)
        _, strides = chain.last_fit(_cuts(chain.epoch_starts, self.stride))
        walks = _merge(chain.epoch_starts, strides)
        place, stop = walks[:-1][::step], walks[1:][::step]
        number = np.searchsorted(chain.epoch_starts, place, side="right") - 1
        begin, epoch = chain.epoch_starts[number], (epochs.start + number).astype(np.int32)
        key = mix(self.seed, WALK, epoch)
        turns = []
        while len(place):
            target = self._target_lengths(mix(key, place - begin))  # whatever epochs lie before its own
            goal, short = place + target, np.flatnonzero(target < self.max_text_tokens)
            goal[short] = np.maximum(goal[short], chain.unit_ends(place[short]))  # one unit at least
            end, after = chain.last_fit(np.minimum(goal, stop))
            turns.append((place, end, epoch))
            going = np.flatnonzero(after < stop)
            place, stop, begin, epoch, key = after[going], stop[going], begin[going], epoch[going], key[going]
        place, end, epoch = (np.concatenate(column) for column in zip(*turns, strict=True))
        label = np.full(len(place), -100, np.int32)
        return UnitRanges(start=place, split=end, stop=end, limit=end, label=label, epoch=epoch, chain=chain)

    def _target_lengths(self, random_bits: RandomBits) -> Int64Array:
        """How many tokens each sequence is to have at most: as many as it can, but for some that chance has shorter."""
        least, chance = min(2, self.max_text_tokens), (random_bits & 0xFFFFF) * 2.0**-20
        spread = (self.max_text_tokens + 1 - least) / (
            self.short_probability or 1
        )  # chance, once known to be small, draws the target too
        return np.where(chance < self.short_probability, least + chance * spread, self.max_text_tokens).astype(np.int64)

    def _to_sequences(self, found: UnitRanges) -> Sequences:
        """Units as ranges of tokens, with stand-ins, or swapped, where the label asks for it."""
        first, second, last = found.start, found.split, found.stop
        if found.chain is None:
            first, second, last = self.unit_starts[first], self.unit_starts[second], self.unit_starts[last]
        sequences = Sequences(
            first_start=first,
            first_length=(second - first).astype(np.int32),
            second_start=second,
            second_length=(last - second).astype(np.int32),
            label=found.label,
            epoch=found.epoch,
        )
        rows = np.flatnonzero(found.label == 1)
        if self.pairs == "sop":
            for one, other in (
                (sequences.first_start, sequences.second_start),
                (sequences.first_length, sequences.second_length),
            ):
                one[rows], other[rows] = other[rows], one[rows]
        elif len(rows):
            unit, goal, free = found.start[rows], found.limit[rows], sequences.second_length[rows] > 0
            wanted = np.where(free, goal - second[rows], 0)
            stand_in = self._random_seconds(unit, wanted, sequences.first_length[rows], found.epoch[rows])
            sequences.second_start[rows], sequences.second_length[rows] = stand_in
        return sequences

    def _random_seconds(
        self, unit: Int64Array, wanted: Int64Array, length: Int32Array, epoch: Int32Array
    ) -> tuple[Int64Array, Int64Array]:
        """Texts from other documents, as long as the true text could have been, or as any is where 0 is wanted."""
        starts, documents = self.unit_starts, self.document_starts
        key, room = mix(self.seed, RANDOM_SECOND, epoch), self.max_text_tokens - length.astype(np.int64)
        usual = self.second_lengths[(uniform(key, unit) * len(self.second_lengths)).astype(np.int64)]
        wanted = np.where(wanted > 0, wanted, np.minimum(usual, room))
        home = np.searchsorted(documents, unit, side="right")
        begin, own = documents[home - 1], documents[home] - documents[home - 1]
        other, rows = np.empty_like(unit), np.arange(len(unit))
        for attempt in range(4):  # a unit too long for the room is drawn anew: cutting it would give the label away
            draw = (uniform(key[rows], unit[rows], attempt) * (len(starts) - 1 - own[rows])).astype(np.int64)
            other[rows] = draw + own[rows] * (draw >= begin[rows])  # any unit but the document's own
            rows = rows[starts[other[rows] + 1] - starts[other[rows]] > room[rows]]

        order = np.argsort(other)  # what lies in order is looked up ten times as fast
        other, wanted, room = other[order], wanted[order], room[order]
        home = np.searchsorted(documents, other, side="right")
        begin, stop = documents[home - 1], documents[home]
        late = np.flatnonzero(starts[stop] - starts[other] < wanted)  # these begin earlier, lest they come out shorter
        other[late] = np.clip(self._nearest(starts[stop[late]] - wanted[late]), begin[late], other[late])
        end = np.clip(self._nearest(starts[other] + wanted), other + 1, stop)
        end -= (starts[end] - starts[other] > room) & (end > other + 1)
        start, found = np.empty_like(unit), np.empty_like(unit)
        start[order], found[order] = starts[other], np.minimum(starts[end] - starts[other], room)
        return start, found

    def _nearest(self, positions: Int64Array) -> Int64Array:
        """The unit that begins nearest to each place."""
        after = np.clip(np.searchsorted(self.unit_starts, positions), 1, len(self.unit_starts) - 1)
        return np.asarray(after - (positions - self.unit_starts[after - 1] < self.unit_starts[after] - positions))


def _cuts(bounds: Int64Array, max_length: int) -> Int64Array:
    """Where to cut the ranges between bounds that hold more than `most`, each into as few equal parts as will do."""
    lengths = np.diff(bounds)
    long = np.flatnonzero(lengths > max_length)
    parts = -(-lengths[long] // max_length)
    owner, cuts = np.repeat(long, parts - 1), np.cumsum(parts - 1)
    part = 1 + np.arange(len(owner)) - np.repeat(cuts - (parts - 1), parts - 1)
    return np.asarray(bounds[owner] + lengths[owner] * part // np.repeat(parts, parts - 1))


def _merge(*bounds: Int64Array) -> Int64Array:
    """All bounds in order, each once."""
    merged = np.sort(np.concatenate(bounds), kind="stable")  # already in order but for a few: that kind merges
    return np.asarray(merged[np.concatenate([[True], merged[1:] > merged[:-1]])])
