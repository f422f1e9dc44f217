"""Sequence packing: a position, which is one integer, becomes a flat batch of exactly n tokens. A pure function."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import numpy as np
from jaxtyping import Int32, Int64

from bertsmith.data.batch import end_to_end, with_filler
from bertsmith.data.packing.bins import pack_by_splitting, pack_by_swapping
from bertsmith.data.packing.document_order import DocumentOrder
from bertsmith.data.packing.pairs import Pairs
from bertsmith.data.packing.plan import Plan
from bertsmith.data.packing.sequences import Int64Array, Sequences, TokenSource, UnitRanges
from bertsmith.errors import RecipeError, RunError
from bertsmith.random_bits import BATCH, mix

MIN_ROUND_BATCHES = 256  # batches of a round, at least, so that each has next to no filler
SECTION_BATCHES = 512  # batches of a section, about: a round is packed in sections, so that a run resumes quickly


@dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """A batch before masking: real sequences, then filler, then empty sequences."""

    ids: Int32[np.ndarray, "T"]
    positions: Int32[np.ndarray, "T"]  # each token's position in its sequence
    segments: Int32[np.ndarray, "T"]  # 1 in the second text of a pair
    corpus_positions: Int64[np.ndarray, "T"]  # each token's position in the corpus; -1 for special tokens and filler
    labels: Int64[np.ndarray, "B"]  # 0: the true next text; 1: a random one (NSP) or the one before (SOP); -100: none
    epochs: Int64[np.ndarray, "B"]  # the epoch of each sequence
    bounds: Int32[np.ndarray, "B+1"]  # where each sequence begins, and the end; B is the same for the whole run
    max_length: int  # no sequence is longer
    real_tokens: int  # tokens that are not filler
    real_sequences: int  # sequences that are not filler
    epoch: int  # of the first sequence
    seed: int
    key: int  # a hash of (seed, section, index), which all randomness of this batch is drawn from


@dataclass(frozen=True, kw_only=True)
class _Section:
    """A part of a round of whole epochs, packed into batches."""

    sequences: Sequences
    order: Int64Array  # of the sequences
    batch_starts: Int64Array  # the first sequence of each batch, and the end
    offsets: Int64Array  # how many text tokens of that sequence are in the batch before
    epoch: float  # epochs before this section
    span: float  # epochs in this section
    document_order: DocumentOrder | None = None  # the sequences are ranges of it, if not of the corpus

    def __len__(self) -> int:
        return len(self.batch_starts) - 1


class Packer:
    """Batches by position: `position = section << 32 | index`; a few sections make a round of whole epochs.

    Sequences are laid end to end in the order of the plan. Without pairs the one that does not fit into a batch any
    more is cut in two; with pairs one is swapped with another that fits. With `cross_documents` a sequence may continue
    with the next document, after a separator. With `once` a round is one epoch and one section, as validation needs it.
    """

    def __init__(
        self,
        shards: TokenSource,
        *,
        max_length: int,
        batch_tokens: int,
        pairs: Pairs,
        seed: int,
        start_id: int,
        stop_id: int,
        padding_id: int,
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
        self.shards, self.max_length, self.batch_tokens = shards, max_length, batch_tokens
        self.seed, self.once = seed, once
        self.start_id, self.stop_id, self.padding_id = start_id, stop_id, padding_id
        total = int(self.plan.unit_starts[-1])
        self.epochs_per_round = 1 if once else -(-MIN_ROUND_BATCHES * batch_tokens // total)
        self.sections_per_round = (
            1 if once else max(1, self.epochs_per_round * total // (SECTION_BATCHES * batch_tokens))
        )
        self.max_real_sequences = 8 + int(1.5 * batch_tokens / self.plan.mean_length())
        # Room for as much filler as a batch of nothing else would have.
        self.max_sequences = -(-(self.max_real_sequences - (-batch_tokens // max_length)) // 8) * 8
        self._sections: dict[int, Future[_Section]] = {}
        self._round: tuple[int, UnitRanges, Int64Array] | None = None  # the last that was planned; used by the planner
        self._lock, self._planner = Lock(), ThreadPoolExecutor(1, thread_name_prefix="plan")

    def __call__(self, position: int) -> PackedBatch:
        number, index = position >> 32, position & 0xFFFF_FFFF
        section = self._section(number)
        if index >= len(section):
            raise RunError(
                f"position {position}",
                f"section {number} has only {len(section)} batches",
                "Is this the text, the length and the number of tokens that the run began with?",
            )
        if not self.once and 4 * index >= 3 * len(section):
            self._request(number + 1)  # planned in a thread, before it is needed
        key = int(mix(self.seed, BATCH, number, index))
        return self._assemble(_batch(section, index), section.document_order, key)

    def first_position(self) -> int:
        return 0

    def next_position(self, position: int) -> int:
        """The position that follows."""
        number, index = position >> 32, position & 0xFFFF_FFFF
        return position + 1 if index + 1 < self.batches(number) else (number + 1) << 32

    def batches(self, number: int = 0) -> int:
        """The number of batches of a section."""
        return len(self._section(number))

    def epoch(self, position: int) -> float:
        """The number of epochs before the position."""
        number, index = position >> 32, position & 0xFFFF_FFFF
        section = self._section(number)
        return section.epoch + section.span * float(section.batch_starts[index]) / len(section.order)

    def _section(self, number: int) -> _Section:
        return self._request(number).result()

    def _request(self, number: int) -> Future[_Section]:
        """A section as a future; two are kept."""
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
        _, ranges, rows = self._round
        begin, end = len(rows) * part // self.sections_per_round, len(rows) * (part + 1) // self.sections_per_round
        before, span = begin / len(rows), (end - begin) / len(rows)
        sequences = self.plan.to_sequences(ranges, rows[begin:end])
        if self.plan.pairs == "none":
            order = np.arange(len(sequences))
            # Of two positions before a cut one is text, so that no sequence is a separator alone.
            min_tokens = 1 if ranges.document_order is None else 2
            batch_starts, offsets = pack_by_splitting(
                sequences.lengths, self.batch_tokens, self.max_real_sequences, min_tokens
            )
        else:
            slack = _slack(sequences) if self.plan.pairs == "nsp" else np.zeros(len(sequences), np.int64)
            order, batch_starts = pack_by_swapping(sequences.lengths, slack, self.batch_tokens, self.max_real_sequences)
            offsets = np.zeros_like(batch_starts)
        return _Section(
            sequences=sequences,
            order=order,
            batch_starts=batch_starts,
            offsets=offsets,
            epoch=self.epochs_per_round * (turn + before),
            span=self.epochs_per_round * span,
            document_order=ranges.document_order,
        )

    def _assemble(self, batch: Sequences, document_order: DocumentOrder | None, key: int) -> PackedBatch:
        """[CLS] first [SEP] second [SEP], sequence after sequence, and filler up to the number of tokens.

        A sequence without a second text is [CLS] first [SEP]; one across documents has a [SEP] after each document.
        """
        tokens, count = self.batch_tokens, len(batch)
        _trim(batch, tokens)
        lengths = batch.lengths
        starts, texts = batch.first_start, batch.first_length.astype(np.int64)
        spans, segment = texts + 2, np.zeros(count, np.int32)  # tokens of a text with its special tokens
        if self.plan.pairs != "none":
            exists = np.stack([np.ones(count, bool), batch.label >= 0], 1).ravel()
            starts = np.stack([starts, batch.second_start], 1).ravel()[exists]
            texts = np.stack([texts, batch.second_length], 1).ravel()[exists]
            spans = texts + np.tile([2, 1], count)[exists]
            segment = np.tile(np.array([0, 1], np.int32), count)[exists]
        elif document_order is not None:
            owner, starts, texts = document_order.corpus_ranges(starts, texts)
            opens = np.diff(owner, prepend=-1)  # 1 where a sequence begins
            spans, segment = texts + 1 + opens, np.zeros(len(texts), np.int32)
            lengths = np.add.reduceat(spans, np.flatnonzero(opens))
        ends = np.cumsum(spans)
        real = int(ends[-1])
        shape = {"tokens": tokens, "max_length": self.max_length, "sequences": self.max_sequences}
        bounds, positions = end_to_end(with_filler(lengths, **shape))

        corpus_positions = np.full(tokens, -1)
        corpus_positions[:real] = np.arange(real) + np.repeat(starts - (ends - 1 - texts), spans)
        corpus_positions[ends - 1] = -1
        corpus_positions[bounds[:count]] = -1
        ids = np.full(tokens, self.padding_id, np.int32)
        ids[ends - 1] = self.stop_id
        ids[bounds[:count]] = self.start_id
        ids[corpus_positions >= 0] = self.shards.gather(starts, texts)
        segments = np.zeros(tokens, np.int32)
        segments[:real] = np.repeat(segment, spans)
        labels, epochs = np.full(self.max_sequences, -100), np.full(self.max_sequences, int(batch.epoch[-1]))
        labels[:count], epochs[:count] = batch.label, batch.epoch
        return PackedBatch(
            ids=ids,
            positions=positions,
            segments=segments,
            corpus_positions=corpus_positions,
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


def _batch(section: _Section, index: int) -> Sequences:
    """The sequences of a batch; the first may lack its beginning and the last its end."""
    begin, end = section.batch_starts[index : index + 2]
    skipped, cut = section.offsets[index : index + 2]
    batch = section.sequences.take(section.order[begin : end + (cut > 0)])
    if cut:
        batch.first_length[-1] = cut
    batch.first_start[0] += skipped
    batch.first_length[0] -= skipped
    return batch


def _slack(batch: Sequences) -> Int64Array:
    """The tokens that each sequence can do without: half of a random second text."""
    return np.where(batch.label == 1, batch.second_length // 2, 0).astype(np.int64)


def _trim(batch: Sequences, tokens: int) -> None:
    """Shorten random second texts, from the last on, until the batch fits: seldom needed, and by a few tokens."""
    excess = int(batch.lengths.sum()) - tokens
    if excess > 0:
        slack = _slack(batch)[::-1]
        before = np.cumsum(slack) - slack
        batch.second_length[:] -= np.clip(excess - before, 0, slack)[::-1]
