import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.packing.bins import pack_by_splitting, pack_by_swapping

lengths = st.lists(st.integers(3, 40), min_size=1, max_size=200).map(lambda numbers: np.array(numbers, np.int64))


@settings(deadline=None)
@given(lengths, st.integers(40, 300), st.integers(2, 60), st.integers(1, 2))
def test_cutting_loses_and_repeats_nothing(lengths, tokens, most, least):
    begins, offsets = pack_by_splitting(lengths, tokens, most, least)
    seen = np.zeros(len(lengths), int)
    for index in range(len(begins) - 1):
        rows = np.arange(begins[index], begins[index + 1] + (offsets[index + 1] > 0))
        texts = lengths[rows] - 2
        if offsets[index + 1]:
            texts[-1] = offsets[index + 1]
        texts[0] -= offsets[index]
        assert texts.min() >= 1
        assert offsets[index + 1] == 0 or texts[-1] >= least
        assert (texts + 2).sum() <= tokens
        assert len(rows) <= most
        seen[rows] += texts
    assert np.array_equal(seen, lengths - 2)


@settings(deadline=None)
@given(lengths, st.integers(40, 300), st.integers(2, 60), st.integers(0, 2**32))
def test_exchanging_loses_and_repeats_nothing(lengths, tokens, most, bits):
    spare = np.where(np.arange(len(lengths)) * bits % 3 == 0, (lengths - 3) // 2, 0)
    order, begins = pack_by_swapping(lengths, spare, tokens, most)
    assert np.array_equal(np.sort(order), np.arange(len(lengths)))
    assert begins[0] == 0
    assert begins[-1] == len(lengths)
    assert (np.diff(begins) > 0).all()
    assert np.diff(begins).max() <= most
    assert np.add.reduceat((lengths - spare)[order], begins[:-1]).max() <= tokens


def test_cut_batches_lack_next_to_nothing():
    lengths = 3 + np.arange(20_000) * 7919 % 100
    begins, offsets = pack_by_splitting(lengths, 1024, 1000)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    sizes = np.diff(ends[begins] + offsets) + 2 * (offsets[1:] > 0)
    assert sizes.max() <= 1024
    assert sizes.min() >= 1019


def test_exchanged_batches_come_out_near_the_mean():
    lengths = 3 + np.arange(20_000) * 7919 % 100
    order, begins = pack_by_swapping(lengths, np.zeros_like(lengths), 1024, 1000)
    sizes = np.add.reduceat(lengths[order], begins[:-1])
    assert sizes.max() <= 1024
    assert sizes.min() >= 0.99 * 1024


@settings(deadline=None)
@given(st.lists(st.sampled_from([3, 4, 5, 250, 512]), min_size=20, max_size=200), st.integers(4, 20))
def test_batches_of_very_uneven_sequences_fit_too(lengths, most):
    lengths = np.array(lengths, np.int64)
    order, begins = pack_by_swapping(lengths, np.zeros_like(lengths), 1024, most)
    assert np.array_equal(np.sort(order), np.arange(len(lengths)))
    assert np.add.reduceat(lengths[order], begins[:-1]).max() <= 1024
    assert np.diff(begins).max() <= most


def test_exchanging_moves_sequences_only_a_little():
    lengths = 3 + np.arange(20_000) * 7919 % 100
    order, _ = pack_by_swapping(lengths, np.zeros_like(lengths), 1024, 1000)
    assert (np.abs(order - np.arange(len(order))) < 300).mean() > 0.97
