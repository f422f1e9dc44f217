"""Streams: a text as several that are read side by side, each batch going on where the one before it ended."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int32, Int64

from bertsmith.data.packing.plan import Int64Array, TokenSource
from bertsmith.errors import RecipeError, RunError, TextError
from bertsmith.random_bits import DOCUMENT, WALK, mix, permute, uniform

MIN_BATCHES = (
    16  # batches that a stream of validation text has at least: the fewer streams, the more has been read before
)


@dataclass(frozen=True, kw_only=True)
class StreamBatch:
    """What a batch has of every stream, one behind the other: so many tokens each, and the token behind each of them.

    Filler stands only where a stream has come to its end: what it is followed by is -100.
    """

    ids: Int32[np.ndarray, "T"]
    targets: Int64[np.ndarray, "T"]
    stream_positions: Int32[np.ndarray, "B"]  # of each first token in its stream; nought where one begins, or is to
    real_tokens: int  # tokens that are not filler


@dataclass(frozen=True)
class _DocumentOrder:
    """All documents in the order of an epoch, each behind its frame."""

    starts: Int64Array  # where each begins in the chain, its frame first, and the end
    corpus_starts: Int64Array  # and where in the corpus


class Streams:
    """Batches by position, which is `epoch << 32 | index`. A pure function, as all that gives batches.

    All documents of an epoch stand one behind the other, each behind the `frame` that parts it from the last: the
    pieces that end a text and begin one. That is cut into as many streams as a batch has rows, and batch n has tokens
    n * length to (n + 1) * length of each. Every token is read once an epoch, and every one but the first frame's is
    guessed. At a batch a share of the streams is `fresh`: to be read as if it began there, since networks that never
    begin come to lean on what they have added up over thousands of tokens, and begin badly (Melis et al. 2017,
    section 4). Each epoch deals the documents anew; with `once` they stand as they are, in few and long streams, as
    validation needs it. Zaremba et al. 2014, section 4.1.
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
        self.separator, self.padding_id, self.state_reset = (
            np.array(separator, np.int32),
            padding_id,
            0.0 if once else state_reset,
        )
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
        place = index * self.length
        within = place + np.arange(self.length + 1)
        places = np.arange(self.streams)[:, None] * self.stream_length + within  # B L+1, in the chain
        # Behind its last token a stream has the first of the next: text that follows it all the same.
        there = (within[None, :-1] < self.stream_length) & (places[:, :-1] < self.total_tokens)
        found = self._read(epoch, np.minimum(places, self.total_tokens).ravel()).reshape(places.shape)
        ids, following = found[:, :-1], found[:, 1:].astype(np.int64)
        begins = uniform(int(mix(self.seed, WALK, epoch, index)), np.arange(self.streams)) < self.state_reset
        return StreamBatch(
            ids=np.where(there, ids, self.padding_id).astype(np.int32).ravel(),
            targets=np.where(there, following, -100).ravel(),
            stream_positions=np.where(begins, 0, place).astype(np.int32),
            real_tokens=int(there.sum()),
        )

    def first_position(self) -> int:
        return 0

    def next_position(self, position: int) -> int:
        """The position that follows."""
        epoch, index = position >> 32, position & 0xFFFF_FFFF
        return position + 1 if index + 1 < self.batches() else (epoch + 1) << 32

    def batches(self) -> int:
        """How many batches an epoch has."""
        return -(-self.stream_length // self.length)

    def epoch(self, position: int) -> float:
        """How many epochs lie before the position."""
        return (position >> 32) + (position & 0xFFFF_FFFF) / self.batches()

    def _order_documents(self, epoch: int) -> _DocumentOrder:
        count = len(self.documents) - 1
        order = np.arange(count)
        if not self.once:
            order = permute(order, count, int(mix(self.seed, DOCUMENT, epoch)))
        spans = self.documents[order + 1] - self.documents[order] + len(self.separator)
        return _DocumentOrder(np.concatenate([[0], np.cumsum(spans)]), self.documents[order])

    def _read(self, epoch: int, positions: Int64Array) -> Int32[np.ndarray, "N"]:
        """The tokens at places of the chain. Behind the last document its frame's first piece ends it."""
        chain = self._document_order(epoch)
        document = np.minimum(np.searchsorted(chain.starts, positions, side="right") - 1, len(chain.corpus_starts) - 1)
        inside = positions - chain.starts[document]
        framed = (inside < len(self.separator)) | (positions == self.total_tokens)
        tokens = np.empty(len(positions), np.int32)
        tokens[framed] = self.separator[np.where(positions == self.total_tokens, 0, inside)[framed]]
        corpus = (chain.corpus_starts[document] + inside - len(self.separator))[~framed]
        if len(corpus):
            # Tokens that stand side by side in the corpus are fetched together.
            edges = np.flatnonzero(np.diff(corpus) != 1) + 1
            starts = np.concatenate([[0], edges])
            tokens[~framed] = self.source.gather(corpus[starts], np.diff(np.append(starts, len(corpus))))
        return tokens
