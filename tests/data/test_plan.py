import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prose import Prose, prose

from bertsmith.data.packing.plan import Plan
from bertsmith.data.packing.sequences import Sequences
from bertsmith.errors import RecipeError, TextError


def plan(text, length=64, pairs="none", seed=1, **settings):
    return Plan(text, length=length, pairs=pairs, seed=seed, **settings)


def ordered(plan, epochs):
    return plan.sequences(epochs)


def crossed(plan, epochs):
    """Sequences across documents, and the texts that each is made of: whose, where from, where to."""
    found, order = plan.plan_epochs(epochs)
    sequences = plan.to_sequences(found, order)
    owner, starts, lengths = found.document_order.corpus_ranges(
        sequences.first_start, sequences.first_length.astype(np.int64)
    )
    return sequences, owner, starts, starts + lengths


def columns(sequences):
    return [getattr(sequences, name).tolist() for name in Sequences.__dataclass_fields__]


def covered(starts, lengths, tokens):
    """How often each token of the corpus lies in one of the ranges."""
    edges = np.zeros(tokens + 1, int)
    np.add.at(edges, starts, 1)
    np.add.at(edges, starts + lengths, -1)
    return np.cumsum(edges)[:-1]


def longer(ones, others):
    """The chance that one of the first kind is longer than one of the second."""
    others = np.sort(others)
    smaller = np.searchsorted(others, ones, side="left") + np.searchsorted(others, ones, side="right")
    return smaller.mean() / (2 * len(others))


@pytest.mark.parametrize("length", [3, 16, 64, 512])
def test_without_pairs_every_token_is_seen_once_an_epoch(length):
    text = prose(100)
    for epoch in range(3):
        sequences = ordered(plan(text, length), range(epoch, epoch + 1))
        assert (covered(sequences.first_start, sequences.first_length, text.tokens) == 1).all()
        assert sequences.lengths.max() <= length
        assert (sequences.label == -100).all()
        assert not sequences.second_length.any()


@pytest.mark.parametrize("pairs", ["none", "nsp", "sop"])
def test_no_text_of_a_sequence_crosses_a_document(pairs):
    text = prose(100)
    sequences = ordered(plan(text, 128, pairs), range(1))
    for start, length in (
        (sequences.first_start, sequences.first_length),
        (sequences.second_start, np.maximum(sequences.second_length, 1)),
    ):
        start = np.minimum(start, text.tokens - 1)
        assert np.array_equal(text.document[start], text.document[start + length - 1])


@pytest.mark.parametrize(("pairs", "most"), [("none", 62), ("nsp", 30), ("sop", 30)])
def test_a_sentence_is_cut_only_if_it_is_too_long(pairs, most):
    text = prose(100)
    sequences = ordered(plan(text, 64, pairs), range(1))
    begins = np.concatenate([[0], text.sentence_ends])
    sentence = np.searchsorted(begins, sequences.first_start, side="right") - 1
    inside = sequences.first_start > begins[sentence]
    assert inside.any()
    assert (np.diff(begins)[sentence[inside]] > most).all()


def test_a_long_sentence_is_cut_into_equal_parts():
    sequences = ordered(plan(Prose([[100]]), 42, short_probability=0.0), range(1))
    assert sorted(sequences.first_length.tolist()) == [33, 33, 34]


def test_most_sequences_are_as_long_as_they_can_be():
    lengths = ordered(plan(prose(100, sentences=200), 128), range(1)).lengths
    assert lengths.mean() > 100
    assert 0.05 < (lengths < 80).mean() < 0.2  # about one in ten was meant to be short


def test_epochs_are_cut_and_ordered_differently():
    text = prose(50)
    first, second = (ordered(plan(text), range(epoch, epoch + 1)) for epoch in (0, 1))
    assert sorted(first.first_start) != sorted(second.first_start)
    starts = np.intersect1d(first.first_start, second.first_start)
    places = [np.flatnonzero(np.isin(epoch.first_start, starts)) for epoch in (first, second)]
    assert first.first_start[places[0]].tolist() != second.first_start[places[1]].tolist()


@pytest.mark.parametrize("pairs", ["none", "nsp", "sop"])
def test_an_epoch_is_the_same_alone_and_among_others(pairs):
    text = prose(40)
    together = ordered(plan(text, pairs=pairs), range(3, 7))
    rows = np.flatnonzero(together.epoch == 5)
    assert columns(together.take(rows)) == columns(ordered(plan(text, pairs=pairs), range(5, 6)))
    assert np.array_equal(np.unique(together.epoch), np.arange(3, 7))
    assert (np.diff(together.epoch) >= 0).all()


def test_another_seed_gives_other_sequences():
    text = prose(40)
    assert columns(ordered(plan(text, seed=1), range(1))) != columns(ordered(plan(text, seed=2), range(1)))


@pytest.mark.parametrize("length", [5, 32, 128])
def test_with_nsp_every_token_occurs_once_an_epoch_outside_of_random_seconds(length):
    text = prose(150)
    sequences = ordered(plan(text, length, "nsp"), range(4, 5))
    true = sequences.take(np.flatnonzero(sequences.label == 0))
    starts = np.concatenate([sequences.first_start, true.second_start])
    lengths = np.concatenate([sequences.first_length, true.second_length])
    assert (covered(starts, lengths, text.tokens) == 1).all()
    assert np.array_equal(true.second_start, true.first_start + true.first_length)
    assert sequences.lengths.max() <= length
    assert sequences.first_length.min() >= 1
    assert sequences.second_length.min() >= 1


def test_a_random_second_text_is_always_from_another_document():
    text = prose(5, sentences=30)
    sequences = ordered(plan(text, 64, "nsp"), range(40))
    random = sequences.take(np.flatnonzero(sequences.label == 1))
    assert len(random) > 500
    own, other = text.document[random.first_start], text.document[random.second_start]
    assert (own != other).all()
    meetings = np.zeros((5, 5), int)
    np.add.at(meetings, (own, other), 1)
    assert (meetings[~np.eye(5, dtype=bool)] > 0).all()


@pytest.mark.parametrize(("sentences", "length"), [(4, 64), (12, 128), (300, 128), (12, 512)])
def test_half_of_the_pairs_are_true(sentences, length):
    sequences = ordered(plan(prose(12_000 // sentences, sentences), length, "nsp"), range(12))
    assert abs((sequences.label == 0).mean() - 0.5) < 0.01


@pytest.mark.parametrize("length", [64, 128, 512])
def test_neither_lengths_nor_endings_give_the_label_away(length):
    text = prose(200, sentences=150)
    sequences = ordered(plan(text, length, "nsp"), range(2))
    true, random = (sequences.take(np.flatnonzero(sequences.label == label)) for label in (0, 1))
    assert abs(longer(random.second_length, true.second_length) - 0.5) < 0.06
    assert abs(longer(random.lengths, true.lengths) - 0.5) < 0.06
    long = np.diff(text.sentence_ends, prepend=0) > (length - 3) // 2
    ends = text.sentence_ends[~long]
    assert np.isin(random.second_start + random.second_length, ends).mean() > 0.97 * (
        np.isin(true.second_start + true.second_length, ends).mean()
    )


documents = st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=8)


@pytest.mark.slow("tries many texts")
@settings(deadline=None)
@given(documents, st.integers(5, 64), st.integers(0, 2**32), st.integers(0, 1000))
def test_with_sop_every_sentence_occurs_once_an_epoch_next_to_its_neighbour(documents, length, seed, epoch):
    text = Prose([*documents, [3, 4], [2]])
    made = plan(text, length, "sop", seed)
    sequences = ordered(made, range(epoch, epoch + 1))
    first, second = sequences.first_start, sequences.second_start
    first_end, second_end = first + sequences.first_length, second + sequences.second_length
    own, swapped, single = (np.flatnonzero(sequences.label == label) for label in (0, 1, -100))
    assert len(own) + len(swapped) + len(single) == len(sequences)
    pairs = np.concatenate([own, swapped])
    texts = np.concatenate([first, second[pairs]]), np.concatenate([first_end, second_end[pairs]])
    assert (covered(texts[0], texts[1] - texts[0], text.tokens) == 1).all()
    assert (texts[0] < texts[1]).all()
    assert np.isin(texts[1], made.unit_starts).all()
    assert np.array_equal(first_end[own], second[own])
    assert np.array_equal(second_end[swapped], first[swapped])
    assert np.array_equal(text.document[first[pairs]], text.document[second[pairs]])
    assert np.array_equal(text.document[texts[0]], text.document[texts[1] - 1])
    assert not sequences.second_length[single].any()
    assert np.isin(
        first_end[single], made.unit_starts[made.walk_starts]
    ).all()  # only what is left over at the end is alone
    assert np.isin(first[single], made.unit_starts[np.searchsorted(made.unit_starts, first_end[single]) - 1]).all()
    special = np.where(sequences.label == -100, 2, 3)
    assert np.array_equal(sequences.lengths, sequences.first_length + sequences.second_length + special)
    assert sequences.lengths.max() <= length


@pytest.mark.slow
@settings(deadline=None)
@given(documents, st.integers(3, 64), st.integers(0, 2**32), st.integers(0, 1000), st.sampled_from([0.0, 0.1, 1.0]))
def test_across_documents_every_sentence_occurs_once_an_epoch(documents, length, seed, epoch, short):
    text = Prose([*documents, [3, 4], [2]])
    made = plan(text, length, seed=seed, short_probability=short, cross_documents=True)
    sequences, owner, starts, ends = crossed(made, range(epoch, epoch + 1))
    assert (covered(starts, ends - starts, text.tokens) == 1).all()
    assert np.isin(starts, made.unit_starts).all()
    assert np.isin(ends, made.unit_starts).all()
    assert np.array_equal(text.document[starts], text.document[ends - 1])
    within = np.flatnonzero(np.diff(owner) == 0)  # texts that another follows in their sequence
    bounds = made.unit_starts[made.document_starts]
    assert np.isin(ends[within], bounds).all()
    assert np.isin(starts[within + 1], bounds).all()
    texts = np.bincount(owner, ends - starts).astype(int)
    assert np.array_equal(sequences.lengths, texts + np.bincount(owner) - 1 + 2)
    assert sequences.lengths.max() <= length
    assert (sequences.label == -100).all()


def filled(lengths, most):
    """The lengths of sequences that sentences are put into one after the other, by hand."""
    sequences, last = [], None
    for document, sentences in enumerate(lengths):
        for sentence in sentences:
            taken = sentence + (last is not None and last != document)  # and the separator before it
            if sequences and sequences[-1] + taken <= most:
                sequences[-1] += taken
            else:
                sequences.append(sentence)
            last = document
    return sequences


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=8),
    st.integers(64, 128),
    st.integers(0, 2**32),
)
def test_across_documents_a_sequence_ends_only_where_the_next_sentence_does_not_fit(documents, length, seed):
    made = plan(Prose(documents), length, seed=seed, short_probability=0.0, cross_documents=True)
    for epoch in (0, 1):
        found, _ = made.plan_epochs(range(epoch, epoch + 1))
        order = np.searchsorted(np.cumsum([0, *map(sum, documents)]), found.document_order.corpus_starts)
        assert sorted(order) == list(range(len(documents)))
        by_hand = filled([documents[number] for number in order], length - 2)
        assert np.sort(found.start).tolist() == found.start.tolist()
        assert (found.stop - found.start).tolist() == by_hand


def test_across_documents_every_epoch_and_seed_has_neighbours_of_its_own():
    text = Prose([[20]] * 150)
    followers = []
    for seed in (1, 2):
        for epoch in (0, 1):
            made = plan(text, 64, seed=seed, short_probability=0.0, cross_documents=True)
            _, owner, starts, _ = crossed(made, range(epoch, epoch + 1))
            within = np.flatnonzero(np.diff(owner) == 0)
            followers.append(set(zip(starts[within].tolist(), starts[within + 1].tolist(), strict=True)))
    for one in range(4):
        assert len(followers[one]) == 100  # three documents in a sequence
        for other in range(one):
            assert len(followers[one] & followers[other]) < 5


def test_across_documents_an_epoch_is_the_same_alone_and_among_others():
    text = prose(40)
    together, owner, starts, ends = crossed(plan(text, cross_documents=True), range(3, 7))
    rows = together.epoch[owner] == 5
    alone, _, alone_starts, alone_ends = crossed(plan(text, cross_documents=True), range(5, 6))
    assert np.array_equal(starts[rows], alone_starts)
    assert np.array_equal(ends[rows], alone_ends)
    assert np.array_equal(together.lengths[together.epoch == 5], alone.lengths)
    assert (np.diff(together.epoch) >= 0).all()
    assert np.array_equal(np.unique(together.epoch), np.arange(3, 7))


@pytest.mark.parametrize("sentences", [2, 12, 100])
def test_across_documents_sequences_are_as_full_as_sentences_allow(sentences):
    text = prose(12_000 // sentences, sentences)
    within, across = (
        ordered(plan(text, 128, short_probability=0.0, cross_documents=across), range(1)).lengths
        for across in (False, True)
    )
    assert across.mean() > within.mean()
    assert across.mean() > 128 - 20  # what is left is less than the sentence that did not fit
    assert len(across) < len(within)


@pytest.mark.parametrize(("sentences", "length"), [(2, 64), (4, 64), (12, 128), (300, 128), (12, 512)])
def test_half_of_the_pairs_are_swapped_and_lengths_do_not_tell_which(sentences, length):
    sequences = ordered(plan(prose(12_000 // sentences, sentences), length, "sop"), range(12))
    own, swapped = (sequences.take(np.flatnonzero(sequences.label == label)) for label in (0, 1))
    total = len(own) + len(swapped)
    assert abs(len(own) / total - 0.5) < 2 / total**0.5  # four deviations
    assert abs(longer(swapped.lengths, own.lengths) - 0.5) < 0.02
    assert abs(longer(swapped.second_length, own.second_length) - 0.5) < 0.05


def test_each_epoch_and_seed_swaps_other_pairs():
    text = Prose([[5, 6]] * 400)
    labels = [
        sequences.label[np.argsort(np.minimum(sequences.first_start, sequences.second_start))]
        for seed in (1, 2)
        for sequences in (ordered(plan(text, 32, "sop", seed), range(epoch, epoch + 1)) for epoch in (0, 1))
    ]
    for one in range(4):
        assert (labels[one] >= 0).all()
        for other in range(one):
            assert abs((labels[one] == labels[other]).mean() - 0.5) < 0.1


def test_one_document_is_enough_for_order():
    sequences = ordered(plan(Prose([[5, 6, 7]]), 32, "sop"), range(100))
    assert set(sequences.label.tolist()) == {-100, 0, 1}


def test_empty_sentences_and_documents_are_passed_over():
    text = Prose([[], [4, 0, 5], [0], [], [6, 7], []])
    sequences = ordered(plan(text, 32, "nsp"), range(20))
    assert (covered(sequences.first_start, sequences.first_length, 22) > 0).any()
    assert set(text.document[sequences.first_start].tolist()) == {1, 4}
    whole = ordered(plan(text, 32), range(1))
    assert (covered(whole.first_start, whole.first_length, 22) == 1).all()


def test_one_document_cannot_give_pairs():
    with pytest.raises(TextError, match=r"^corpus: it is one document, .* Put a blank .* or set pairs = \"none\"\.$"):
        plan(Prose([[5, 6, 7]]), pairs="nsp")


@pytest.mark.parametrize("pairs", ["nsp", "sop"])
def test_single_sentences_cannot_give_pairs(pairs):
    with pytest.raises(TextError, match=r"^corpus: no document has two sentences, .* or set pairs = \"none\"\.$"):
        plan(Prose([[5], [0, 6], [7]]), pairs=pairs)


@pytest.mark.parametrize("pairs", ["nsp", "sop"])
def test_pairs_across_documents_are_refused(pairs):
    remedy = r'Set pairs = "none", or cross_documents = false\.'
    line = rf'^pairs = "{pairs}": a sequence that goes on with .* holds no pair\. {remedy}$'
    with pytest.raises(RecipeError, match=line):
        plan(prose(5), pairs=pairs, cross_documents=True)


def test_an_empty_corpus_is_refused():
    with pytest.raises(TextError, match=r"^corpus: it holds no tokens\. Give it text of at least one sentence\.$"):
        plan(Prose([[0], []]))


@pytest.mark.parametrize(("pairs", "length"), [("none", 2), ("nsp", 4), ("sop", 4)])
def test_a_length_without_room_for_text_is_refused(pairs, length):
    with pytest.raises(
        RecipeError, match=rf"^max_length = {length}: leaves no room for text\. Choose at least {length + 1}\.$"
    ):
        plan(prose(5), length, pairs)
