"""Streams of text: no token lost or repeated, and every batch continues where the one before ended."""

from copy import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prose import PADDING, START, STOP, Prose, prose

from bertsmith.data.packing.streams import MIN_BATCHES, Streams
from bertsmith.errors import RecipeError, RunError, TextError

SEPARATORS = st.sampled_from([(STOP,), (STOP, START)])


def streams(text, length=4, tokens=32, seed=1, separator=(STOP,), once=False, state_reset=0.0):
    settings = {"separator": separator, "padding_id": PADDING, "state_reset": state_reset, "once": once}
    return Streams(text, length=length, tokens=tokens, seed=seed, **settings)


def epoch(source, number=0):
    """All batches of an epoch side by side: ids and targets, a row a stream."""
    batches = [source(number << 32 | index) for index in range(source.batches())]
    ids, targets = (
        np.concatenate([getattr(batch, part).reshape(source.streams, -1) for batch in batches], 1)
        for part in ("ids", "targets")
    )
    return ids, targets


def documents(text):
    ends = np.concatenate([[0], text.sentence_ends])[np.concatenate([[0], text.document_ends])]
    return [tuple(text.gather(ends[[n]], ends[[n + 1]] - ends[[n]]).tolist()) for n in range(len(ends) - 1)]


def split(tokens, separator):
    """The documents that a text of several was made of."""
    joined, found = [*tokens, separator[0]], []
    while joined[len(separator) :]:
        stop = joined.index(separator[0], len(separator))
        found.append(tuple(joined[len(separator) : stop]))
        joined = joined[stop:]
    return found


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(1, 6), SEPARATORS, st.booleans())
def test_an_epoch_reads_every_document_once_and_predicts_all_of_it(seed, length, rows, separator, once):
    text = prose(documents=6, sentences=3, words=4, seed=seed)
    source = streams(text, length, rows * length, seed, separator, once)
    ids, targets = epoch(source)
    real = targets != -100
    tokens = ids[real]  # stream after stream
    assert sorted(split(tokens.tolist(), separator)) == sorted(documents(text))
    assert np.array_equal(targets[real], [*tokens[1:], separator[0]])
    assert (ids[~real] == PADDING).all()
    assert real.sum() == source.total_tokens == text.tokens + 6 * len(separator)
    counted = sum(source(index).real_tokens for index in range(source.batches()))
    assert counted == source.total_tokens


def test_a_batch_continues_where_the_one_before_ended():
    source = streams(prose(documents=12, words=6), length=5, tokens=40)
    position = source.first_position()
    before = source(position)
    while (position := source.next_position(position)) >> 32 == 0:
        batch = source(position)
        assert (batch.stream_positions == before.stream_positions + 5).all()
        last, first = before.targets.reshape(8, 5)[:, -1], batch.ids.reshape(8, 5)[:, 0]
        assert np.array_equal(last[last != -100], first[last != -100])
        before = batch
    assert position == 1 << 32
    assert (source(position).stream_positions == 0).all()


def test_the_state_of_a_share_of_the_streams_is_reset_and_always_of_the_same():
    text = prose(documents=12, words=6)
    source, again = (streams(text, state_reset=0.25) for _ in range(2))
    positions = np.stack([source(index).stream_positions for index in range(1, source.batches())])
    assert 0.15 < (positions == 0).mean() < 0.35
    assert len(np.unique(positions == 0, axis=0)) > 10
    assert np.array_equal(positions, [again(index).stream_positions for index in range(1, source.batches())])
    assert np.array_equal(source(3).ids, streams(text)(3).ids)  # the tokens are the same
    assert all((streams(text, state_reset=0.9, once=True)(index).stream_positions > 0).all() for index in range(1, 9))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32), SEPARATORS, st.booleans())
def test_neighbouring_documents_may_lie_in_two_shards(seed, separator, once):
    class InShards(Prose):  # a shard a document: the most that can be
        def gather(self, starts, lengths):
            assert (self.document[starts] == self.document[starts + lengths - 1]).all()
            return super().gather(starts, lengths)

    text = prose(documents=6, sentences=3, words=4, seed=seed)
    shards = copy(text)
    shards.__class__ = InShards
    settings = {"seed": seed, "separator": separator, "once": once}
    for found, wanted in zip(epoch(streams(shards, **settings)), epoch(streams(text, **settings)), strict=True):
        assert np.array_equal(found, wanted)


def test_every_epoch_and_every_seed_shuffle_the_documents_differently():
    text = prose(documents=20, words=6)
    first, second = (epoch(streams(text), number)[0] for number in (0, 1))
    other = epoch(streams(text, seed=2))[0]
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert np.array_equal(first, epoch(streams(text))[0])


def test_validation_text_keeps_its_order_in_few_and_long_streams():
    text = prose(documents=20, words=6)
    source = streams(text, once=True)
    ids, targets = epoch(source)
    assert split(ids[targets != -100].tolist(), (STOP,)) == documents(text)
    assert source.batches() >= MIN_BATCHES
    assert source.batch_tokens == source.streams * 4
    assert streams(prose(documents=2), length=64, tokens=1024, once=True).streams == 1


def test_positions_count_epochs():
    source = streams(prose(documents=12, words=6))
    assert source.epoch(source.first_position()) == 0
    assert source.epoch(3 << 32) == 3
    assert 0.4 < source.epoch(source.batches() // 2) < 0.6


def test_text_that_does_not_fill_the_streams_is_refused_in_one_line():
    with pytest.raises(RecipeError) as caught:
        streams(prose(documents=9), length=5, tokens=32)
    line = "data: batch_tokens = 32 is no whole number of streams of 5 tokens each. Use 30 or 35."
    assert str(caught.value) == line
    with pytest.raises(TextError, match=r"corpus: \d+ tokens are too few for 800 streams. Give it more text, or lower"):
        streams(prose(documents=2), length=5, tokens=4000)
    empty = Prose([])
    empty.document_ends = np.zeros(0, np.int64)
    with pytest.raises(TextError, match="it holds no tokens"):
        streams(empty)
    source = streams(prose(documents=9))
    with pytest.raises(RunError, match=r"an epoch has only \d+ batches. Is this the text"):
        source(source.batches())
