import numpy as np
import pytest
from prose import MASK, PADDING, START, STOP, VOCABULARY, prose

from bertsmith.data.packing.pack import Packer
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.masking import MaskingConfig, MaskingVocabulary, mask_tokens
from bertsmith.objectives.mixed import MixedLM
from bertsmith.objectives.replaced import ReplacedTokenDetection
from bertsmith.random_bits import TEXT, mix, uniform

UNITS = ("token", "word", "span", "gram")
SPECIAL = np.arange(VOCABULARY) < 5
CONTINUES = (uniform(1, np.arange(VOCABULARY)) < 0.4) & ~SPECIAL
PIECES = MaskingVocabulary.of(CONTINUES, SPECIAL, MASK)


def pack(tokens=4096, pairs="nsp", length=64, once=False):
    ids = {"start_id": START, "stop_id": STOP, "padding_id": PADDING}
    return Packer(prose(300), max_length=length, batch_tokens=tokens, pairs=pairs, seed=1, once=once, **ids)


@pytest.fixture(scope="module")
def batches():
    packer = pack()
    return [packer(index) for index in range(20)]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("copies", [0, 3])
@pytest.mark.parametrize("rate", [0.01, 0.15, 0.4])
def test_exactly_the_mask_rate_is_chosen_and_no_special_token(batches, unit, copies, rate):
    for packed in batches:
        ids, chosen, targets = mask_tokens(
            packed, MaskingConfig(unit=unit, static_masks=copies, mask_rate=rate), PIECES
        )
        assert len(chosen) == len(targets) == round(rate * 4096)
        assert (np.diff(chosen) > 0).all()
        assert (packed.corpus_positions[chosen] >= 0).all()
        assert np.array_equal(targets, packed.ids[chosen])
        untouched = np.delete(np.arange(4096), chosen)
        assert np.array_equal(ids[untouched], packed.ids[untouched])


@pytest.mark.parametrize("unit", UNITS)
def test_chosen_tokens_are_masked_replaced_and_kept_80_10_10(batches, unit):
    masked = kept = total = 0
    replaced = []
    for packed in batches:
        ids, chosen, targets = mask_tokens(packed, MaskingConfig(unit=unit, mask_rate=0.3), PIECES)
        now = ids[chosen]
        total += len(now)
        masked += (now == MASK).sum()
        kept += (now == targets).sum()
        replaced += now[(now != MASK) & (now != targets)].tolist()
    assert abs(masked / total - 0.8) < 0.015
    assert abs(kept / total - 0.1) < 0.015
    assert abs(len(replaced) / total - 0.1) < 0.015
    assert min(replaced) >= 5  # never a special one
    counts = np.bincount(np.array(replaced) // 100, minlength=10)  # replaced by any, all equally likely
    assert counts.min() > 0.75 * counts.mean()
    assert counts.max() < 1.25 * counts.mean()


def test_the_rates_of_corruption_can_be_set(batches):
    ids, chosen, _ = mask_tokens(batches[0], MaskingConfig(keep_rate=0.0, random_rate=0.0), PIECES)
    assert (ids[chosen] == MASK).all()
    ids, *_ = mask_tokens(batches[0], MaskingConfig(keep_rate=1.0, random_rate=0.0), PIECES)
    assert np.array_equal(ids, batches[0].ids)


def test_every_token_is_equally_likely_to_be_chosen(batches):
    packer = pack()
    packed = packer(0)
    chosen = np.zeros(4096)
    for index in range(200):
        chosen[mask_tokens(packer(index), MaskingConfig(), PIECES)[1]] += 1
    text = chosen[: packed.real_tokens]
    thirds = [part.mean() for part in np.array_split(text, 3)]
    assert max(thirds) - min(thirds) < 2


def words_of(packed):
    """The positions of each word."""
    words, last = [], -2
    for position in np.flatnonzero(packed.corpus_positions >= 0):
        if position == last + 1 and CONTINUES[packed.ids[position]]:
            words[-1].append(position)
        else:
            words.append([position])
        last = position
    return words


@pytest.mark.parametrize("rate", [0.02, 0.15, 0.5])
def test_whole_words_are_chosen_except_one_at_most(batches, rate):
    for packed in batches:
        chosen = set(mask_tokens(packed, MaskingConfig(unit="word", mask_rate=rate), PIECES)[1].tolist())
        parts = [(len(chosen.intersection(word)), len(word)) for word in words_of(packed)]
        halves = [(part, whole) for part, whole in parts if 0 < part < whole]
        assert len(halves) <= 1
        if halves:  # then no word that is left would have fitted
            assert min(whole for part, whole in parts if part == 0) > halves[0][0]


def test_a_word_is_cut_if_no_short_one_is_left():
    packed = pack()(0)
    everything_continues = MaskingVocabulary.of(~SPECIAL, SPECIAL, MASK)  # a text is one word
    chosen = mask_tokens(packed, MaskingConfig(unit="word", mask_rate=0.001), everything_continues)[1]
    assert len(chosen) == 4


def test_spans_are_long_and_stay_inside_their_text(batches):
    lengths = []
    for packed in batches:
        chosen = mask_tokens(packed, MaskingConfig(unit="span", mask_rate=0.02), PIECES)[1]
        runs = np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1)
        assert all((np.diff(packed.corpus_positions[run]) == 1).all() for run in runs)
        lengths += [len(run) for run in runs]
    assert max(lengths) <= 20  # ten, or two that touch
    assert 3.0 < np.mean(lengths) < 4.6  # 3.8 by the paper, less where a text ends


def test_ngrams_are_up_to_three_whole_words_of_one_text(batches):
    counts = []
    for packed in batches:
        chosen = mask_tokens(packed, MaskingConfig(unit="gram", mask_rate=0.01), PIECES)[1]
        taken, words = set(chosen.tolist()), words_of(packed)
        whole = [len(taken.intersection(word)) == len(word) for word in words]
        cut = sum(0 < len(taken.intersection(word)) < len(word) for word in words)
        assert cut <= 1  # the last gram, where enough are chosen
        runs = np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1)
        assert all((np.diff(packed.corpus_positions[run]) == 1).all() for run in runs)
        ends = {word[0]: number for number, word in enumerate(words)}
        counts += [sum(whole[ends[place]] for place in run.tolist() if place in ends) for run in runs]
    assert max(counts) <= 6  # three, or two grams that touch
    shares = [counts.count(size) / len(counts) for size in (1, 2, 3)]
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.08)


@pytest.mark.parametrize("unit", ["span", "gram"])
def test_the_tokens_of_a_span_are_corrupted_alike(batches, unit):
    ids, chosen, _ = mask_tokens(batches[0], MaskingConfig(unit=unit, mask_rate=0.02), PIECES)
    runs = np.split(np.arange(len(chosen)), np.flatnonzero(np.diff(chosen) > 1) + 1)
    mixed = sum(0 < (ids[chosen[run]] == MASK).mean() < 1 for run in runs)
    assert mixed <= 0.2 * len(runs)  # only spans that touch


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("copies", [0, 2])
def test_masking_is_a_pure_function(batches, unit, copies):
    hiding = MaskingConfig(unit=unit, static_masks=copies)
    for one, other in zip(mask_tokens(pack()(3), hiding, PIECES), mask_tokens(batches[3], hiding, PIECES), strict=True):
        assert np.array_equal(one, other)


def hidden_places(packer, epoch, hiding):
    """What became of each token of the corpus in one epoch, for those that were hidden."""
    found = {}
    for index in range(packer.batches(epoch)):
        packed = packer(epoch << 32 | index)
        ids, chosen, _ = mask_tokens(packed, hiding, PIECES)
        found.update(zip(packed.corpus_positions[chosen].tolist(), ids[chosen].tolist(), strict=True))
    return found


def test_dynamic_masking_differs_in_every_epoch():
    packer = pack(pairs="none", once=True)
    first, second = (hidden_places(packer, epoch, MaskingConfig()) for epoch in (0, 4))
    shared = first.keys() & second.keys()
    assert len(shared) < 0.2 * len(first)


def test_static_masks_repeat_after_their_number_of_epochs():
    packer, hiding = pack(pairs="none", once=True), MaskingConfig(static_masks=4)
    first, again, other = (hidden_places(packer, epoch, hiding) for epoch in (0, 4, 5))
    shared = first.keys() & again.keys()
    assert len(shared) > 0.95 * len(first)
    assert all(first[place] == again[place] for place in shared)
    assert len(first.keys() & other.keys()) < 0.2 * len(first)


def test_static_masks_follow_the_epoch_of_each_sequence():
    packer = pack(tokens=4096, pairs="none")
    assert packer.epochs_per_round > 1
    packed = next(packer(index) for index in range(256) if len(set(packer(index).epochs.tolist())) > 1)
    words = mix(packed.seed, TEXT, np.repeat(packed.epochs, np.diff(packed.bounds)) % 10, packed.corpus_positions)
    chosen = mask_tokens(packed, MaskingConfig(static_masks=10), PIECES)[1]
    rest = np.setdiff1d(np.flatnonzero(packed.corpus_positions >= 0), chosen)
    assert words[chosen].max() < words[rest].min()


def test_a_partial_batch_masks_its_share():
    packed = pack(tokens=65_536, pairs="none", once=True, length=128)
    batches = [packed(index) for index in range(packed.batches())]
    for batch in batches:
        full = batch.real_tokens >= 0.98 * 65_536
        count = len(mask_tokens(batch, MaskingConfig(), PIECES)[1])
        assert count == round(0.15 * (65_536 if full else batch.real_tokens))
    assert any(batch.real_tokens < 0.98 * 65_536 for batch in batches)


@pytest.mark.parametrize("kind", [MaskingConfig, MaskedLM.Config, MixedLM.Config, ReplacedTokenDetection.Config])
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mask_rate": 15.0}, r"^mask_rate is 15.0. Give a share above 0 and below 1, usually 0.15$"),
        ({"mask_rate": -0.1}, r"^mask_rate is -0.1. Give a share above 0"),
        ({"mask_rate": float("nan")}, r"^mask_rate is nan. Give a share above 0"),
        (
            {"keep_rate": 0.7, "random_rate": 0.7},
            r"^keep_rate is 0.7 and random_rate 0.7. Give two shares of at most 1 together, usually 0.1 each$",
        ),
        ({"keep_rate": -0.1, "random_rate": 0.1}, r"^keep_rate is -0.1 and random_rate 0.1. Give two shares"),
        ({"static_masks": -1}, r"^static_masks is -1. Give at least 0, usually 0 or 10$"),
    ],
)
def test_settings_that_cannot_mask_are_refused(kind, settings, said):
    with pytest.raises(ValueError, match=said):
        kind(**settings)
