"""Streams for truncated BPTT: the text in parallel streams, each batch continuing where the one before ended.

Zaremba et al. 2014, section 4.1.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int32, Int64

from bertsmith.data.packing.sequences import Int64Array, TokenSource
from bertsmith.errors import RecipeError, RunError, TextError
from bertsmith.random_bits import DOCUMENT, WALK, mix, permute, uniform

MIN_BATCHES = 16  # of a stream of validation text: the fewer streams, the longer the context of each token


@dataclass(frozen=True, kw_only=True)
class StreamBatch:
    """A batch of n tokens of every stream, stream after stream, and the token that follows each of them.

    Where a stream has ended there is filler, whose targets are -100.
    """

    ids: Int32[np.ndarray, "T"]
    targets: Int64[np.ndarray, "T"]
    stream_positions: Int32[np.ndarray, "B"]  # of each first token in its stream; 0 where a stream begins or is reset
    real_tokens: int  # tokens that are not filler


@dataclass(frozen=True)
class _DocumentOrder:
    """All documents in the order of an epoch, each after its separator."""

    starts: Int64Array  # where each document begins in this order, its separator first, and the end
    corpus_starts: Int64Array  # and where in the corpus


class Streams:
    """Batches by position, which is `epoch << 32 | index`; a pure function.

    All documents of an epoch are laid end to end, each after the `separator`: the tokens that end a text and begin one.
    This text is cut into as many streams as a batch has rows, and batch n has tokens n * length to (n + 1) * length of
    each. Every token is read once an epoch, and every one except the first separator is predicted. In each batch the
    state of a share of the streams is reset (`state_reset`): networks that never start from zero come to rely on states
    accumulated over thousands of tokens, and predict the beginning of a text badly (Melis et al. 2017, section 4). Each
    epoch shuffles the documents; with `once` they keep their order, in few and long streams, as validation needs it.
    """

    def __init__(
        self,
        source: TokenSource,
        *,
        length: int,
        tokens: int,
        seed: int,
        separator: tuple[int, ...],
        padding_id: int,
        state_reset: float = 0.0,
        once: bool = False,
    ) -> None:
        if tokens % length:
            fact = f"batch_tokens = {tokens} is no whole number of streams of {length} tokens each"
            raise RecipeError("data", fact, f"Use {tokens // length * length} or {(tokens // length + 1) * length}")
        self.source, self.length, self.seed, self.once = source, length, seed, once
        self.separator, self.padding_id = np.array(separator, np.int32), padding_id
        self.state_reset = 0.0 if once else state_reset
        sentences = np.concatenate([[0], source.sentence_ends])
        self.documents: Int64Array = sentences[np.concatenate([[0], source.document_ends])]
        if len(self.documents) == 1:
            raise TextError("corpus", "it holds no tokens", "Give it text of at least one sentence")
        self.total_tokens = int(self.documents[-1]) + len(separator) * (len(self.documents) - 1)
        self.streams = tokens // length
        if once:
            self.streams = int(np.clip(self.total_tokens // (MIN_BATCHES * length), 1, self.streams))
        elif self.total_tokens < self.streams * 2:
            fact = f"{self.total_tokens:,} tokens are too few for {self.streams} streams"
            raise TextError("corpus", fact, "Give it more text, or lower data.batch_tokens")
        self.stream_length = -(-self.total_tokens // self.streams)  # tokens of a stream; the last may have fewer
        self.batch_tokens = self.streams * length  # in a batch
        self._document_order = lru_cache(2)(self._order_documents)

    def __call__(self, position: int) -> StreamBatch:
        epoch, index = position >> 32, position & 0xFFFF_FFFF
        if index >= self.batches():
            raise RunError(
                f"position {position}",
                f"an epoch has only {self.batches()} batches",
                "Is this the text, the length and the number of tokens that the run began with?",
            )
        start = index * self.length
        offsets = start + np.arange(self.length + 1)
        positions = np.arange(self.streams)[:, None] * self.stream_length + offsets  # B L+1, in the document order
        # After its last token a stream has the first of the next stream, which does follow it in the text.
        real = (offsets[None, :-1] < self.stream_length) & (positions[:, :-1] < self.total_tokens)
        tokens = self._read(epoch, np.minimum(positions, self.total_tokens).ravel()).reshape(positions.shape)
        ids, targets = tokens[:, :-1], tokens[:, 1:].astype(np.int64)
        reset = uniform(int(mix(self.seed, WALK, epoch, index)), np.arange(self.streams)) < self.state_reset
        return StreamBatch(
            ids=np.where(real, ids, self.padding_id).astype(np.int32).ravel(),
            targets=np.where(real, targets, -100).ravel(),
            stream_positions=np.where(reset, 0, start).astype(np.int32),
            real_tokens=int(real.sum()),
        )

    def first_position(self) -> int:
        return 0

    def next_position(self, position: int) -> int:
        """The position that follows."""
        epoch, index = position >> 32, position & 0xFFFF_FFFF
        return position + 1 if index + 1 < self.batches() else (epoch + 1) << 32

    def batches(self) -> int:
        """The number of batches of an epoch."""
        return -(-self.stream_length // self.length)

    def epoch(self, position: int) -> float:
        """The number of epochs before the position."""
        return (position >> 32) + (position & 0xFFFF_FFFF) / self.batches()

    def _order_documents(self, epoch: int) -> _DocumentOrder:
        count = len(self.documents) - 1
        order = np.arange(count)
        if not self.once:
            order = permute(order, count, int(mix(self.seed, DOCUMENT, epoch)))
        spans = self.documents[order + 1] - self.documents[order] + len(self.separator)
        return _DocumentOrder(np.concatenate([[0], np.cumsum(spans)]), self.documents[order])

    def _read(self, epoch: int, positions: Int64Array) -> Int32[np.ndarray, "N"]:
        """The tokens at positions of the document order. The last document ends with the separator's first token."""
        order = self._document_order(epoch)
        document = np.minimum(np.searchsorted(order.starts, positions, side="right") - 1, len(order.corpus_starts) - 1)
        offset = positions - order.starts[document]
        separates = (offset < len(self.separator)) | (positions == self.total_tokens)
        tokens = np.empty(len(positions), np.int32)
        tokens[separates] = self.separator[np.where(positions == self.total_tokens, 0, offset)[separates]]
        corpus = (order.corpus_starts[document] + offset - len(self.separator))[~separates]
        if len(corpus):
            # Neighbouring tokens of a document are fetched together; two documents may lie in two shards.
            edges = np.flatnonzero((np.diff(corpus) != 1) | (np.diff(document[~separates]) != 0)) + 1
            starts = np.concatenate([[0], edges])
            tokens[~separates] = self.source.gather(corpus[starts], np.diff(np.append(starts, len(corpus))))
        return tokens
