from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pace import pace, work
from prose import MASK, PADDING, START, STOP, VOCABULARY, Prose, prose

from bertsmith.data import packing
from bertsmith.data.feed import Feed
from bertsmith.data.packing.pack import Packer
from bertsmith.errors import RecipeError, RunError
from bertsmith.objectives.masked import Collator, MaskedLM
from bertsmith.objectives.masking import MaskingConfig, MaskingVocabulary, mask_tokens

pytestmark = pytest.mark.slow("packs epochs of many settings whole")


def pack(text, length=64, tokens=1024, pairs="none", seed=1, **settings):
    if pairs == "across":
        pairs, settings["cross_documents"] = "none", True
    return Packer(
        text,
        max_length=length,
        batch_tokens=tokens,
        pairs=pairs,
        seed=seed,
        start_id=START,
        stop_id=STOP,
        padding_id=PADDING,
        **settings,
    )


def whole_round(pack, number=0):
    sections = range(number * pack.sections_per_round, (number + 1) * pack.sections_per_round)
    return [pack(section << 32 | index) for section in sections for index in range(pack.batches(section))]


class Strict(Prose):
    """Text of which nothing can be gathered where there is none, as past the end of shards."""

    def gather(self, starts, lengths):
        assert lengths.min() >= 1
        assert (starts + lengths).max() <= self.tokens
        return super().gather(starts, lengths)


@pytest.fixture(params=[512, 100], ids=["one section", "sections"])
def section(request, monkeypatch):
    """A round in one section, and in several."""
    monkeypatch.setattr("bertsmith.data.packing.pack.SECTION_BATCHES", request.param)
    return request.param


def same(one, other):
    return all(np.array_equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))


def parts(packed):
    """Of each real sequence where its texts lie in the corpus; it is laid out as it should be."""
    for begin, end in zip(packed.bounds[: packed.real_sequences], packed.bounds[1:], strict=False):
        ids, places = packed.ids[begin:end], packed.corpus_positions[begin:end]
        stops = np.flatnonzero(ids == STOP)
        assert ids[0] == START
        assert stops[-1] == len(ids) - 1
        assert np.array_equal(np.flatnonzero(places < 0), [0, *stops])
        assert packed.positions[begin:end].tolist() == list(range(len(ids)))
        assert not packed.segments[begin:end].any()
        yield [places[first + 1 : last] for first, last in zip([0, *stops], stops, strict=False)]


def spread(packed, column):
    """A column of sequences as one of tokens."""
    return np.repeat(column, np.diff(packed.bounds))


def test_the_worked_example_is_what_comes_out():
    packer = pack(Prose([[4, 5, 3], [6, 2, 7]]), 12, 16, short_probability=0.0, once=True)
    letters = np.array(list("AAAABBBBBCCCDDDDDDEEFFFFFFF"))
    planned = packer.plan.sequences(range(1))
    ranges = zip(planned.first_start, planned.first_length, strict=True)
    order = [f"[{''.join(letters[start : start + length])}]" for start, length in ranges]
    signs = {START: "[", STOP: "]", PADDING: "."}
    batches = []
    for batch in whole_round(packer):
        tokens = zip(batch.ids.tolist(), batch.corpus_positions, strict=True)
        batches.append("".join(signs[token] if at < 0 else letters[at] for token, at in tokens))
    page = Path(__file__).parents[2] / "docs" / "design" / "packing.md"
    for picture in (packing.__doc__, page.read_text(encoding="utf-8")):
        assert "order      " + "  ".join(order) in picture
        assert "batches    " + "  ".join(batches) in picture


@pytest.mark.exhaustive(suite=8)
@pytest.mark.parametrize("pairs", ["none", "across", "nsp", "sop"])
@pytest.mark.parametrize(
    ("tokens", "length"), [(1024, 32), (1024, 64), (1024, 128), (4096, 32), (4096, 128), (4096, 512)]
)
def test_every_batch_is_full_but_for_one_percent(tokens, length, pairs):
    batches = whole_round(pack(prose(1000), length, tokens, pairs))
    assert len(batches) >= 256
    for packed in batches:
        assert (
            packed.ids.shape
            == packed.positions.shape
            == packed.segments.shape
            == packed.corpus_positions.shape
            == (tokens,)
        )
        assert packed.real_tokens >= 0.99 * tokens


@pytest.mark.parametrize("pairs", ["none", "across", "nsp", "sop"])
def test_the_last_batch_of_a_section_is_full_too(pairs, monkeypatch):
    monkeypatch.setattr("bertsmith.data.packing.pack.SECTION_BATCHES", 256)
    packer = pack(prose(4000), 64, 1024, pairs)
    assert packer.sections_per_round > 1
    assert all(packed.real_tokens >= 0.99 * 1024 for packed in whole_round(packer))


@pytest.mark.parametrize(("length", "pairs"), [(128, "none"), (512, "across"), (512, "nsp"), (512, "sop")])
def test_large_batches_are_full_too(length, pairs):
    packer = pack(prose(1000), length, 65_536, pairs)
    assert all(packer(index).real_tokens >= 0.99 * 65_536 for index in range(0, packer.batches(), 16))


@pytest.mark.parametrize("pairs", ["none", "nsp", "sop"])
@pytest.mark.parametrize("once", [False, True])
def test_a_batch_is_laid_out_as_its_bounds_say(pairs, once):
    text = prose(100)
    packer = pack(text, 64, 1024, pairs, once=once)
    for packed in (packer(0), packer(packer.batches() - 1)):
        lengths = np.diff(packed.bounds)
        assert packed.bounds.shape == (packer.max_sequences + 1,)
        assert packer.max_sequences % 8 == 0
        assert packed.bounds[0] == 0
        assert packed.bounds[-1] == 1024
        assert lengths.min() >= 0
        assert lengths.max() <= packed.max_length == 64
        assert lengths[: packed.real_sequences].sum() == packed.real_tokens
        assert (lengths[: packed.real_sequences] >= 3).all()
        assert (packed.ids[packed.real_tokens :] == PADDING).all()
        assert (packed.corpus_positions[packed.real_tokens :] == -1).all()
        assert (packed.labels[packed.real_sequences :] == -100).all()
        assert (packed.labels[: packed.real_sequences] == -100).all() == (pairs == "none")
        for sequence in range(packer.max_sequences):
            row = slice(packed.bounds[sequence], packed.bounds[sequence + 1])
            assert packed.positions[row].tolist() == list(range(lengths[sequence]))
            if sequence >= packed.real_sequences:
                continue
            ids, places, segments = packed.ids[row], packed.corpus_positions[row], packed.segments[row]
            stops = np.flatnonzero(ids == STOP)
            assert ids[0] == START
            assert stops[-1] == len(ids) - 1
            assert len(stops) == (1 if packed.labels[sequence] == -100 else 2)
            assert np.array_equal(np.flatnonzero(places < 0), [0, *stops])
            assert segments.tolist() == [0] * (stops[0] + 1) + [1] * (len(ids) - stops[0] - 1)
            for first, last in zip([0, *stops], stops, strict=False):
                assert (np.diff(places[first + 1 : last]) == 1).all()
        real = packed.corpus_positions >= 0
        assert np.array_equal(packed.ids[real], text.ids[packed.corpus_positions[real]])


@pytest.mark.exhaustive(suite=4)
@pytest.mark.parametrize("pairs", ["none", "across"])
@pytest.mark.parametrize(("documents", "tokens"), [(300, 1024), (30, 1024), (3, 1024)])
def test_without_pairs_every_token_is_seen_once_in_every_epoch_of_a_round(documents, tokens, pairs, section):
    text = prose(documents)
    packer = pack(text, 64, tokens, pairs)
    assert (packer.sections_per_round > 1) == (section == 100)
    for number in (0, 3):
        seen = np.zeros((packer.epochs_per_round, text.tokens), int)
        for packed in whole_round(packer, number):
            real = packed.corpus_positions >= 0
            np.add.at(
                seen,
                (spread(packed, packed.epochs)[real] - number * packer.epochs_per_round, packed.corpus_positions[real]),
                1,
            )
        assert (seen == 1).all()


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("short", [0.0, 0.1])
def test_across_documents_one_separator_is_between_the_end_of_one_and_the_beginning_of_the_next(once, short):
    text = prose(200, sentences=3)
    begins = np.flatnonzero(np.diff(text.document, prepend=-1))
    ends = np.flatnonzero(np.diff(text.document, append=-1))
    packer = pack(text, 64, 1024, "across", once=once, short_probability=short)
    crossed, followers = 0, {}
    for packed in whole_round(packer):
        assert packed.labels.max() == -100
        for epoch, texts in zip(packed.epochs, parts(packed), strict=False):
            assert all(len(places) and (np.diff(places) == 1).all() for places in texts)
            for one, other in pairwise(texts):
                assert one[-1] in ends
                assert other[0] in begins
                followers.setdefault(int(epoch), []).append((one[-1], other[0]))
                crossed += 1
        real = packed.corpus_positions >= 0
        assert np.array_equal(packed.ids[real], text.ids[packed.corpus_positions[real]])
        assert (packed.ids[packed.real_tokens :] == PADDING).all()
    assert crossed > 100 * packer.epochs_per_round
    for pairs in followers.values():  # no document has two neighbours on one side
        assert all(len(set(side)) == len(pairs) for side in zip(*pairs, strict=True))
    if packer.epochs_per_round > 1:
        first, second, *_ = followers.values()
        assert len(set(first) & set(second)) < 0.1 * len(first)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=2), min_size=1, max_size=60),
    st.integers(3, 12),
    st.integers(0, 3),
    st.integers(0, 2**32),
)
@example([[1]] * 20, 5, 0, 1)  # a sequence is cut twice, round its separator
def test_across_documents_no_cut_leaves_a_separator_alone(documents, length, more, seed):
    text = Strict(documents)
    packer = pack(text, length, length + more, "across", seed, once=True)
    seen = np.zeros(text.tokens, int)
    for packed in whole_round(packer):
        for texts in parts(packed):
            assert all(len(places) for places in texts)
            np.add.at(seen, np.concatenate(texts), 1)
    assert (seen == 1).all()


@pytest.mark.parametrize(("length", "sentences"), [(64, 2), (64, 12), (128, 12), (512, 12), (512, 100)])
def test_across_documents_sequences_are_fuller(length, sentences):
    text = prose(12_000 // sentences, sentences)
    means = []
    for pairs in ("none", "across"):
        batches = whole_round(pack(text, length, 16_384, pairs, once=True))
        means.append(sum(packed.real_tokens for packed in batches) / sum(packed.real_sequences for packed in batches))
    assert means[0] < means[1] <= length


@pytest.mark.parametrize("unit", ["token", "word", "span", "gram"])
def test_across_documents_separators_are_never_hidden_nor_reached_over(unit):
    packer = pack(prose(300, sentences=3), 128, 4096, "across")
    special = np.arange(VOCABULARY) < 5
    pieces = MaskingVocabulary.of((np.arange(VOCABULARY) % 3 == 0) & ~special, special, MASK)
    for index in range(10):
        packed = packer(index)
        ids, chosen, _ = mask_tokens(packed, MaskingConfig(unit=unit, mask_rate=0.4), pieces)
        assert len(chosen) == round(0.4 * 4096)
        stops = np.flatnonzero(packed.ids == STOP)
        assert len(stops) > 2 * packed.real_sequences
        assert not np.isin(chosen, stops).any()
        assert (ids[stops] == STOP).all()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_across_documents_a_feed_resumes_at_its_position_with_any_number_of_workers(workers):
    special = np.arange(VOCABULARY) < 5
    collate = Collator(MaskedLM.Config(pairs="none"), MaskingVocabulary.of(~special, special, MASK))
    packer = pack(prose(60), pairs="across")
    stood = packer.batches() - 5  # the next round begins on the way
    straight = [packer.next_position(stood)]
    while len(straight) < 10:
        straight.append(packer.next_position(straight[-1]))
    anew = Feed(pack(prose(60), pairs="across"), collate, "", workers)
    with anew.loader(straight[0], pin_memory=False) as loader:
        for position in straight:
            found, batch = next(loader)
            expected = collate(packer(position))
            assert found == position
            assert batch.tokens.ids.tolist() == expected.tokens.ids.tolist()
            assert batch.tokens.bounds.tolist() == expected.tokens.bounds.tolist()
            assert batch.target_positions.tolist() == expected.target_positions.tolist()


@pytest.mark.exhaustive(suite=2)
@pytest.mark.parametrize(("documents", "tokens"), [(300, 1024), (30, 1024), (3, 1024)])
def test_with_nsp_every_token_occurs_once_an_epoch_outside_of_random_seconds(documents, tokens, section):
    text = prose(documents, sentences=40 if documents == 3 else 12)
    packer = pack(text, 64, tokens, "nsp")
    seen = np.zeros((packer.epochs_per_round, text.tokens), int)
    labels, extra = [], 0
    for packed in whole_round(packer, 2):
        label = spread(packed, packed.labels)
        own = (packed.corpus_positions >= 0) & ((packed.segments == 0) | (label == 0))
        np.add.at(
            seen, (spread(packed, packed.epochs)[own] - 2 * packer.epochs_per_round, packed.corpus_positions[own]), 1
        )
        labels.append(packed.labels[: packed.real_sequences])
        extra += int(((packed.corpus_positions >= 0) & ~own).sum())
        firsts = packed.bounds[: packed.real_sequences] + 1
        seconds = np.flatnonzero((packed.segments == 1) & (np.diff(packed.segments, prepend=0) == 1))
        random = packed.labels[: packed.real_sequences] == 1
        other = (
            text.document[packed.corpus_positions[firsts[random]]]
            != text.document[packed.corpus_positions[seconds[random]]]
        )
        assert other.all()
    assert (seen == 1).all()
    assert extra > 0
    assert abs((np.concatenate(labels) == 0).mean() - 0.5) < 0.01


@pytest.mark.exhaustive(suite=4)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("documents", [300, 30, 1])
def test_in_order_every_token_is_seen_once_in_every_epoch_of_a_round(documents, seed, section):
    lengths = (7, 31, 12, 20, 5, 90, 16, 3, 44, 28)
    text = Strict([[*lengths[number % 7 :]] * (number % 3) + [9] for number in range(1, documents + 1)])
    packer = pack(text, 64, 1024, "sop", seed)
    seen = np.zeros((packer.epochs_per_round, text.tokens), int)
    labels = []
    for packed in whole_round(packer, 2):
        real = packed.corpus_positions >= 0
        np.add.at(
            seen, (spread(packed, packed.epochs)[real] - 2 * packer.epochs_per_round, packed.corpus_positions[real]), 1
        )
        labels.append(packed.labels[: packed.real_sequences])
        assert (
            packed.real_tokens >= (0.99 if section == 512 else 0.98) * 1024
        )  # a short section has less to choose from
        for begin, end, label in zip(packed.bounds, packed.bounds[1:], labels[-1], strict=False):
            places, segments = packed.corpus_positions[begin:end], packed.segments[begin:end]
            first, second = (places[(places >= 0) & (segments == part)] for part in (0, 1))
            match label:
                case 0:
                    assert second[0] == first[-1] + 1
                case 1:
                    assert first[0] == second[-1] + 1
                case _:
                    assert len(second) == 0
                    assert len(places) == len(first) + 2
                    assert not segments.any()
            assert len(np.unique(text.document[places[places >= 0]])) == 1
    assert (seen == 1).all()
    found = np.concatenate(labels)
    assert (found == -100).any()
    pairs = int((found >= 0).sum())
    assert abs((found == 1).sum() / pairs - 0.5) < 2 / pairs**0.5


@pytest.mark.parametrize("pairs", ["none", "across", "nsp", "sop"])
def test_a_position_always_gives_the_same_batch(pairs):
    text = prose(200)
    packer = pack(text, pairs=pairs)
    positions = [5, 0, 7 << 32 | 3, 255, 7 << 32, 2 << 32 | 9, 5]
    once = {position: packer(position) for position in positions}
    anew = pack(text, pairs=pairs)
    with ThreadPoolExecutor(4) as threads:
        again = dict(zip(positions[::-1], threads.map(anew, positions[::-1]), strict=True))
    assert all(same(once[position], again[position]) for position in positions)
    assert not same(once[0], once[5])
    assert not same(once[0], pack(text, pairs=pairs, seed=2)(0))


def test_each_batch_has_its_own_random_bits():
    packer = pack(prose(200))
    keys = [packer(number << 32 | index).key for number in (0, 1) for index in range(20)]
    assert len(set(keys)) == 40
    assert pack(prose(200), seed=2)(0).key not in keys


def test_positions_follow_one_another_through_the_rounds(section):
    packer = pack(prose(30))
    position, seen = packer.first_position(), []
    while position >> 32 < 2:
        seen.append(position)
        position = packer.next_position(position)
    assert seen[0] == 0
    assert seen == [number << 32 | index for number in (0, 1) for index in range(packer.batches(number))]
    assert position == 2 << 32


def test_the_next_round_is_planned_before_it_is_needed():
    packer = pack(prose(30))
    last = packer.batches() - 1
    asked, walked = Queue(), packer.plan.plan_epochs

    def noted(epochs):
        asked.put(epochs.start)
        return walked(epochs)

    packer.plan.plan_epochs = noted
    packer(0)
    assert asked.empty()
    packer(last)
    assert asked.get(timeout=10) == packer.epochs_per_round


def test_epochs_are_counted_as_they_pass(section):
    packer = pack(prose(30))
    numbers = range(2 * packer.sections_per_round)
    epochs = [packer.epoch(number << 32 | index) for number in numbers for index in range(packer.batches(number))]
    assert epochs[0] == 0
    assert (np.diff(epochs) > 0).all()
    later = 5 * packer.sections_per_round
    assert packer.epoch(later << 32) == 5 * packer.epochs_per_round
    packed = packer(later << 32 | 40)
    assert abs(packed.epoch - packer.epoch(later << 32 | 40)) < 1
    assert packed.epoch == packed.epochs[0]


@pytest.mark.parametrize("pairs", ["none", "across", "nsp", "sop"])
def test_once_through_is_one_epoch_in_even_batches(pairs):
    text = prose(60)
    packer = pack(text, tokens=4096, pairs=pairs, once=True)
    batches = whole_round(packer)
    assert packer.epochs_per_round == 1
    seen = np.zeros(text.tokens, int)
    for packed in batches:
        stand_in = (pairs == "nsp") & (packed.segments == 1) & (spread(packed, packed.labels) == 1)
        own = (packed.corpus_positions >= 0) & ~stand_in
        seen += np.bincount(packed.corpus_positions[own], minlength=text.tokens)
    assert (seen == 1).all()
    real = np.array([packed.real_tokens for packed in batches])
    assert real.max() - real.min() < 64


def test_a_corpus_smaller_than_a_batch_can_be_validated_on():
    packer = pack(prose(2), tokens=4096, once=True)
    assert packer.batches() == 1
    assert packer(0).real_tokens < 2048


class Vast:
    """The bounds of about a million sequences of 128 tokens; its text is the same token over and over."""

    def __init__(self, documents):
        chance = np.random.default_rng(0)
        counts = chance.geometric(1 / 25, documents)
        self.document_ends = np.cumsum(counts)
        self.sentence_ends = np.cumsum(chance.geometric(1 / 22, counts.sum()))

    def gather(self, starts, lengths):
        return np.full(lengths.sum(), 9, np.int32)


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("tokens", [4096, 65_536])
@pytest.mark.parametrize(("pairs", "documents"), [("nsp", 35_000), ("across", 45_000)])
def test_the_billionth_sequence_is_found_again_at_once(tokens, pairs, documents):
    text = Vast(documents)
    packer = pack(text, 128, tokens, pairs)
    far = 4400 * packer.sections_per_round << 32 | 100
    packed = packer(far)
    assert packed.epoch == 4400 * packer.epochs_per_round
    sequences = packer.sections_per_round * packer.batches(0) * packed.real_sequences  # sections are alike
    assert 4400 * sequences > 1e9
    # By one that was just made, as when a run is gone on with. The best counts: others use the machine, too.
    near, billionth = (
        min(work(lambda place=place: pack(text, 128, tokens, pairs)(place)) for _ in range(2)) for place in (100, far)
    )
    assert billionth < 2 * near
    assert billionth < 3 * pace()


@pytest.mark.parametrize("pairs", ["none", "nsp", "sop"])
def test_very_uneven_lengths_stay_within_the_limit(pairs):
    text = Prose(([[1, 1]] * 19 + [[510]]) * 100)
    packer = pack(text, 512, 4096, pairs)
    counts = [packed.real_sequences for packed in whole_round(packer)]
    assert max(counts) <= packer.max_real_sequences
    assert max(counts) > 1.2 * np.mean(counts)


def test_across_very_uneven_documents_batches_stay_within_the_limit():
    packer = pack(Prose(([[1]] * 40 + [[511]]) * 100), 512, 4096, "across")
    assert max(packed.real_sequences for packed in whole_round(packer)) <= packer.max_real_sequences


def test_a_batch_must_hold_a_sequence():
    with pytest.raises(RecipeError, match=r"^batch_tokens = 100: a sequence has up to 128\. Choose at least 128\.$"):
        pack(prose(5), 128, 100)


def test_a_position_past_the_end_is_refused():
    packer = pack(prose(30))
    with pytest.raises(RunError, match=r"^position \d+: section 0 has only \d+ batches\. Is this the text, .*\?$"):
        packer(packer.batches())
