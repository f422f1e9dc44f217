"""Sequence packing: a position, which is one integer, becomes a flat batch of exactly n tokens. A pure function."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import numpy as np
from jaxtyping import Int32, Int64

from bertsmith.data.packing.bins import pack_by_splitting, pack_by_swapping
from bertsmith.data.packing.document_order import DocumentOrder
from bertsmith.data.packing.plan import Int64Array, Pairs, Plan, Sequences, TokenSource, UnitRanges
from bertsmith.errors import RecipeError, RunError
from bertsmith.random_bits import BATCH, mix

BATCHES = 256  # a round has at least so many, so that each lacks next to nothing
SECTION = 512  # and is dealt in sections of about so many, so that a position far into a run is soon found again


@dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """A batch before anything is hidden in it: real sequences, then filler, then empty sequences."""

    ids: Int32[np.ndarray, "T"]
    positions: Int32[np.ndarray, "T"]  # each token's place in its own sequence
    segments: Int32[np.ndarray, "T"]  # 1 in the second text of a pair
    corpus_positions: Int64[np.ndarray, "T"]  # each token's place in the corpus; -1 for special tokens and filler
    labels: Int64[np.ndarray, "B"]  # 0 the true next text, 1 a random one or the one before, -100 none
    epochs: Int64[np.ndarray, "B"]  # the epoch that each sequence belongs to
    bounds: Int32[np.ndarray, "B+1"]  # where each begins, and the end; B is the same for the whole run
    max_length: int  # no sequence is longer
    real_tokens: int  # tokens that are not filler
    real_sequences: int  # that are not filler
    epoch: int  # of the first sequence
    seed: int
    key: int  # all that is random in this batch: a hash of (seed, section, index)


@dataclass(frozen=True, kw_only=True)
class _Section:
    """A stretch of some whole epochs, dealt out into batches."""

    sequences: Sequences
    order: Int64Array  # in which they come
    batch_starts: Int64Array  # the first of each batch, and the end
    offsets: Int64Array  # how many tokens of its text the batch before has had
    epoch: float  # how many lie before it
    span: float  # how many it has
    chain: DocumentOrder | None = None  # what the sequences are ranges of, if not of the corpus

    def __len__(self) -> int:
        return len(self.batch_starts) - 1


class Packer:
    """Batches by position. `position = section << 32 | index`, so many sections making a round of whole epochs.

    Sequences are laid end to end in the order of the plan. Without pairs the one that does not fit into a batch any
    more is cut in two; with pairs one is exchanged for another that fits. With `across` a sequence may go on with the
    next document, behind a separator. With `once` a round is one epoch and one section, as validation needs it.
    """

    def __init__(
        self,
        shards: TokenSource,
        *,
        max_length: int,
        batch_tokens: int,
        pairs: Pairs,
        seed: int,
        start: int,
        stop: int,
        padding: int,
        short_probability: float = 0.1,
        cross_documents: bool = False,
        once: bool = False,
    ) -> None:
        if batch_tokens < max_length:
            raise RecipeError(
                f"batch_tokens = {batch_tokens}", f"a sequence has up to {max_length}", f"Choose at least {max_length}"
            )
        self.plan = Plan(
            shards,
            length=max_length,
            pairs=pairs,
            seed=seed,
            short_probability=short_probability,
            cross_documents=cross_documents,
        )
        self.shards, self.max_length, self.batch_tokens, self.seed, self.once = (
            shards,
            max_length,
            batch_tokens,
            seed,
            once,
        )
        self.start, self.stop, self.padding = start, stop, padding
        total = int(self.plan.unit_starts[-1])
        self.epochs_per_round = 1 if once else -(-BATCHES * batch_tokens // total)  # in epochs
        self.sections_per_round = (
            1 if once else max(1, self.epochs_per_round * total // (SECTION * batch_tokens))
        )  # of a round
        self.max_real_sequences = 8 + int(1.5 * batch_tokens / self.plan.mean_length())  # real sequences in a batch
        self.max_sequences = (
            -(-(self.max_real_sequences - (-batch_tokens // max_length)) // 8) * 8
        )  # and filler, in case it all were filler
        self._sections: dict[int, Future[_Section]] = {}
        self._round: tuple[int, UnitRanges, Int64Array] | None = (
            None  # the one that was planned last; the planner's own
        )
        self._lock, self._planner = Lock(), ThreadPoolExecutor(1, thread_name_prefix="plan")

    def __call__(self, position: int) -> PackedBatch:
        number, index = position >> 32, position & 0xFFFF_FFFF
        dealt = self._section(number)
        if index >= len(dealt):
            raise RunError(
                f"position {position}",
                f"section {number} has only {len(dealt)} batches",
                "Is this the text, the length and the number of tokens that the run began with?",
            )
        if not self.once and 4 * index >= 3 * len(dealt):
            self._request(number + 1)  # planned aside, before it is needed
        return self._assemble(_batch(dealt, index), dealt.chain, int(mix(self.seed, BATCH, number, index)))

    def first_position(self) -> int:
        return 0

    def next_position(self, position: int) -> int:
        """The position that follows."""
        number, index = position >> 32, position & 0xFFFF_FFFF
        return position + 1 if index + 1 < self.batches(number) else (number + 1) << 32

    def batches(self, number: int = 0) -> int:
        """How many batches the section has."""
        return len(self._section(number))

    def epoch(self, position: int) -> float:
        """How many epochs lie before the position."""
        number, index = position >> 32, position & 0xFFFF_FFFF
        dealt = self._section(number)
        return dealt.epoch + dealt.span * float(dealt.batch_starts[index]) / len(dealt.order)

    def _section(self, number: int) -> _Section:
        return self._request(number).result()

    def _request(self, number: int) -> Future[_Section]:
        """The section, or the promise of it; two are kept."""
        with self._lock:
            if number not in self._sections:
                if len(self._sections) == 2:
                    del self._sections[next(iter(self._sections))]
                self._sections[number] = self._planner.submit(self._plan_section, number)
            return self._sections[number]

    def _plan_section(self, number: int) -> _Section:
        turn, part = divmod(number, self.sections_per_round)
        if self._round is None or self._round[0] != turn:
            self._round = (
                turn,
                *self.plan.plan_epochs(range(turn * self.epochs_per_round, (turn + 1) * self.epochs_per_round)),
            )
        _, walked, whole = self._round
        begin, end = len(whole) * part // self.sections_per_round, len(whole) * (part + 1) // self.sections_per_round
        before, span = begin / len(whole), (end - begin) / len(whole)
        sequences = self.plan.to_sequences(walked, whole[begin:end])
        if self.plan.pairs == "none":
            order = np.arange(len(sequences))
            # Of two places before a cut one is text, so that no sequence comes out as a separator and nothing else.
            least = 1 if walked.chain is None else 2
            begins, offsets = pack_by_splitting(sequences.lengths, self.batch_tokens, self.max_real_sequences, least)
        else:
            spare = _slack(sequences) if self.plan.pairs == "nsp" else np.zeros(len(sequences), np.int64)
            order, begins = pack_by_swapping(sequences.lengths, spare, self.batch_tokens, self.max_real_sequences)
            offsets = np.zeros_like(begins)
        return _Section(
            sequences=sequences,
            order=order,
            batch_starts=begins,
            offsets=offsets,
            epoch=self.epochs_per_round * (turn + before),
            span=self.epochs_per_round * span,
            chain=walked.chain,
        )

    def _assemble(self, batch: Sequences, chain: DocumentOrder | None, key: int) -> PackedBatch:
        """[CLS] first [SEP] second [SEP], sequence after sequence, and filler up to the number of tokens.

        A sequence without a second text is [CLS] first [SEP]; one across documents has a [SEP] behind each.
        """
        tokens, count = self.batch_tokens, len(batch)
        _trim(batch, tokens)
        lengths = batch.lengths
        starts, texts = batch.first_start, batch.first_length.astype(np.int64)
        spans, segment = texts + 2, np.zeros(count, np.int32)  # a text with the special tokens round it
        if self.plan.pairs != "none":
            held = np.stack([np.ones(count, bool), batch.label >= 0], 1).ravel()
            starts = np.stack([starts, batch.second_start], 1).ravel()[held]
            texts = np.stack([texts, batch.second_length], 1).ravel()[held]
            spans = texts + np.tile([2, 1], count)[held]
            segment = np.tile(np.array([0, 1], np.int32), count)[held]
        elif chain is not None:
            owner, starts, texts = chain.corpus_ranges(starts, texts)
            opens = np.diff(owner, prepend=-1)  # 1 where a sequence begins
            spans, segment = texts + 1 + opens, np.zeros(len(texts), np.int32)
            lengths = np.add.reduceat(spans, np.flatnonzero(opens))
        ends = np.cumsum(spans)
        real = int(ends[-1])
        filler = np.diff(np.append(np.arange(real, tokens, self.max_length), tokens))
        bounds = np.full(self.max_sequences + 1, tokens, np.int32)
        bounds[0] = 0
        np.cumsum(np.concatenate([lengths, filler]), out=bounds[1 : 1 + count + len(filler)])

        places = np.full(tokens, -1)
        places[:real] = np.arange(real) + np.repeat(starts - (ends - 1 - texts), spans)
        places[ends - 1] = -1
        places[bounds[:count]] = -1
        ids = np.full(tokens, self.padding, np.int32)
        ids[ends - 1] = self.stop
        ids[bounds[:count]] = self.start
        ids[places >= 0] = self.shards.gather(starts, texts)
        segments = np.zeros(tokens, np.int32)
        segments[:real] = np.repeat(segment, spans)
        positions = np.arange(tokens, dtype=np.int32) - np.repeat(bounds[:-1], np.diff(bounds))
        labels, epochs = np.full(self.max_sequences, -100), np.full(self.max_sequences, int(batch.epoch[-1]))
        labels[:count], epochs[:count] = batch.label, batch.epoch
        return PackedBatch(
            ids=ids,
            positions=positions,
            segments=segments,
            corpus_positions=places,
            bounds=bounds,
            labels=labels,
            epochs=epochs,
            max_length=self.max_length,
            real_tokens=real,
            real_sequences=count,
            epoch=int(batch.epoch[0]),
            seed=self.seed,
            key=key,
        )


def _batch(dealt: _Section, index: int) -> Sequences:
    """The sequences of a batch, of which the first may lack its beginning and the last its end."""
    (begin, end), (had, has) = dealt.batch_starts[index : index + 2], dealt.offsets[index : index + 2]
    batch = dealt.sequences.take(dealt.order[begin : end + (has > 0)])
    if has:
        batch.first_length[-1] = has
    batch.first_start[0] += had
    batch.first_length[0] -= had
    return batch


def _slack(batch: Sequences) -> Int64Array:
    """What could be taken off each sequence: half of a second text that is only a stand-in."""
    return np.where(batch.label == 1, batch.second_length // 2, 0).astype(np.int64)


def _trim(batch: Sequences, tokens: int) -> None:
    """Shorten stand-ins, from the last on, until the batch fits: seldom needed, and then by a few tokens."""
    excess = int(batch.lengths.sum()) - tokens
    if excess > 0:
        spare = _slack(batch)[::-1]
        before = np.cumsum(spare) - spare
        batch.second_length[:] -= np.clip(excess - before, 0, spare)[::-1]
