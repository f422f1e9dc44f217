"""Neighbours: the gradient is that of the stated loss; what is drawn follows the formulas; sentences stay apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.stretch import KINDS, SMALL, Kind, exact, made
from scipy import stats

from bertsmith.models.word2vec import Word2Vec, Word2VecConfig
from bertsmith.objectives.word2vec import GRADIENTS, MAX_UPDATE_NORM, loss, sgd_step
from bertsmith.objectives.word2vec_blocks import (
    TILE,
    NegativeSamplingConfig,
    cumulative_distribution,
    keep_probability,
    make_blocks,
    resolve_config,
    sample_blocks,
)
from bertsmith.random_bits import uniform


def model(kind: Kind, vocabulary: int = 20, width: int = 7, dtype: torch.dtype = torch.float64) -> Word2Vec:
    chance = torch.Generator().manual_seed(1)
    tables = (torch.randn(vocabulary, width, generator=chance, dtype=dtype) for _ in range(2))
    return Word2Vec(Word2VecConfig(kind=kind, width=width), *tables)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_loss(kind: Kind) -> None:
    """Words repeat within a block, sentences of one word have no neighbours, and the last block is not full."""
    found, whole = made([5, 1, 30, 12, 40, 1, 2], 20), model(kind)
    for number in range(len(found)):
        block = exact(found[number])
        tables = whole.inputs.clone().requires_grad_(), whole.outputs.clone().requires_grad_()
        total, _ = loss(Word2Vec(whole.config, *tables), block, SMALL.negatives)
        total.backward()
        ours = {id(whole.inputs): torch.zeros_like(whole.inputs), id(whole.outputs): torch.zeros_like(whole.outputs)}
        for table, rows, gradient in GRADIENTS[kind](whole, block, SMALL.negatives, 1.0):
            ours[id(table)].index_add_(0, rows, gradient)
        for table, truth in zip((whole.inputs, whole.outputs), tables, strict=True):
            assert truth.grad is not None
            assert truth.grad.abs().max() > 0.1
            assert torch.allclose(ours[id(table)], truth.grad, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_a_loop_over_words(kind: Kind) -> None:
    found, whole = made([5, 1, 30, 12], 20), model(kind)
    block = found[0]
    total, targets = loss(whole, exact(block), 4)
    expected, count = 0.0, 0
    window = SMALL.window
    for tile in range(len(block.word_ids)):
        for word in range(TILE):
            near = [
                block.word_ids[tile, place] for place in block.is_neighbour[tile, word].nonzero().flatten().tolist()
            ]
            centre = block.word_ids[tile, window + word]
            if kind == "skip-gram":
                pairs = [(whole.inputs[centre], other) for other in near]
            else:
                pairs = [(whole.inputs[torch.stack(near)].mean(0), centre)] if near else []
            for read, other in pairs:
                expected -= float(torch.nn.functional.logsigmoid(read @ whole.outputs[other]))
                false = torch.nn.functional.logsigmoid(-(whole.outputs[block.negative_ids] @ read))
                expected -= 4 * float(false.mean())
                count += 1
    assert float(total) == pytest.approx(expected)
    assert int(targets) == count > 30


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_is_one_sgd_step(kind: Kind) -> None:
    block, whole = made([30, 34], 20)[0], model(kind, dtype=torch.float32)
    before, targets = loss(whole, block, SMALL.negatives)
    rows = [one.clone() for one in (whole.inputs, whole.outputs)]
    sgd_step(whole, block, SMALL.negatives, 1e-3)
    after, _ = loss(whole, block, SMALL.negatives)
    slope = sum(float((one - old).square().sum()) for one, old in zip((whole.inputs, whole.outputs), rows, strict=True))
    assert float(before - after) == pytest.approx(slope / 1e-3, rel=0.05)  # a short step gains rate times slope squared
    assert targets > 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 6), st.integers(0, 99))
def test_neighbours_are_those_of_a_loop_and_never_cross_sentences(lengths: list[int], window: int, seed: int) -> None:
    config = NegativeSamplingConfig(window=window, block=64, shared_negatives=2)
    chance, total = np.random.default_rng(seed), sum(lengths)
    sentences, reach = np.repeat(np.arange(len(lengths)), lengths), chance.integers(1, window + 1, total)
    count = -(-total // 64)
    # Every word is unique, so that a neighbour identifies its position.
    found = make_blocks(np.arange(total), sentences, reach, np.zeros(2 * count), np.ones(total), config, total)
    expected = {
        (place, other)
        for place in range(total)
        for other in range(max(0, place - reach[place]), min(total, place + reach[place] + 1))
        if other != place and sentences[other] == sentences[place]
    }
    pairs = set()
    for block, tile, word, context in found.is_neighbour.nonzero().tolist():
        place = block * 64 + tile * TILE + word
        pairs.add((place, int(found.word_ids[block, tile, context])))
        assert place == found.word_ids[block, tile, window + word]
    assert pairs == expected
    assert torch.equal(found.neighbour_counts, found.is_neighbour.sum(3).view(count, 64, 1))
    assert int(found.neighbour_counts.sum()) == len(expected)


def test_subsampling_follows_the_formula() -> None:
    counts = np.array([60_000, 20_000, 5_000, 900, 100])
    chances = keep_probability(counts, 1e-3)
    share = counts / counts.sum()
    assert chances == pytest.approx(np.minimum(1, np.sqrt(1e-3 / share) + 1e-3 / share))
    assert chances[-1] == 1
    assert (keep_probability(counts, 0) == 1).all()
    config = NegativeSamplingConfig(window=1, block=64, shared_negatives=1)
    ids = np.repeat(np.arange(5), counts)
    found = sample_blocks(ids, np.arange(len(ids)), np.arange(len(ids)), (chances, np.ones(5)), config, (0, 0, 0))
    seen = np.bincount(found.word_ids[:, :, 1 : 1 + TILE].flatten().numpy(), minlength=5)
    assert found.words_read == len(ids)
    for word in (1, 2, 3):  # word 0 also fills the last block
        spread = np.sqrt(counts[word] * chances[word] * (1 - chances[word]))
        assert abs(seen[word] - counts[word] * chances[word]) < 4 * spread + 1e-9
    assert seen[4] == 100


def test_words_are_kept_independently_of_each_other() -> None:
    left = uniform(3, 16, 0, np.arange(100_000)) < 0.3
    assert stats.binomtest(int(left.sum()), 100_000, 0.3).pvalue > 1e-4
    both = int((left[1:] & left[:-1]).sum())
    assert abs(both / 99_999 - 0.09) < 5e-3


def test_negatives_are_drawn_by_a_power_of_word_counts() -> None:
    counts = np.array([5_000, 1_000, 300, 100, 30, 10])
    chances = cumulative_distribution(counts, 0.75)
    config = NegativeSamplingConfig(window=1, block=32, shared_negatives=50)
    ids = np.zeros(32 * 400, np.int64)
    found = sample_blocks(ids, ids, np.arange(len(ids)), (np.ones(6), chances), config, (7, 1, 2))
    seen = np.bincount(found.negative_ids.flatten().numpy(), minlength=6)
    expected = counts**0.75 / (counts**0.75).sum() * seen.sum()
    assert seen.sum() == 400 * 50
    assert stats.chisquare(seen, expected).pvalue > 1e-4
    assert stats.chisquare(seen, counts / counts.sum() * seen.sum()).pvalue < 1e-9  # and not by the counts themselves
    again = sample_blocks(ids, ids, np.arange(len(ids)), (np.ones(6), chances), config, (7, 1, 2))
    assert torch.equal(found.negative_ids, again.negative_ids)
    assert torch.equal(found.is_neighbour, again.is_neighbour)
    other = sample_blocks(ids, ids, np.arange(len(ids)), (np.ones(6), chances), config, (7, 1, 3))
    assert not torch.equal(found.negative_ids, other.negative_ids)


@pytest.mark.parametrize("kind", KINDS)
def test_the_update_of_a_negative_is_clipped(kind: Kind) -> None:
    """All words of the block push away the same false neighbours, which are none of the block's words."""
    block, whole = made([32, 32], 10)[0], model(kind, dtype=torch.float32)
    block = replace(block, negative_ids=torch.arange(10, 16))
    before = whole.outputs.clone()
    sgd_step(whole, block, SMALL.negatives, 10.0)
    lengths = (whole.outputs - before)[10:16].norm(dim=1)
    assert lengths.max() <= MAX_UPDATE_NORM + 1e-5
    assert lengths.min() > 0
    assert torch.equal(whole.outputs[16:], before[16:])


def test_blocks_are_small_where_a_text_has_few_words() -> None:
    config = NegativeSamplingConfig()
    many = (1e6 / np.arange(1, 50_001)).astype(np.int64)
    assert resolve_config(config, "skip-gram", many, 0.025) == replace(config, shared_negatives=64)
    assert resolve_config(config, "cbow", many, 0.15) == replace(config, shared_negatives=32)
    assert resolve_config(replace(config, shared_negatives=7), "cbow", many, 0.15).shared_negatives == 7
    few = np.array([50, 30, 20])
    assert resolve_config(config, "skip-gram", few, 0.025).block == TILE
    some = np.full(100, 1_000)
    sizes = [resolve_config(config, "skip-gram", some, rate).block for rate in (0.025, 0.05, 0.1)]
    assert sizes[0] == 512 > sizes[1] > sizes[2]
    each = 0.05 * 6 * 6 / 100  # what a word of the block moves each row by, in the mean
    assert sizes[1] * each <= 8 < (sizes[1] + TILE) * each
    assert resolve_config(config, "cbow", some, 0.025).block == 512


def test_window_sizes_are_uniform() -> None:
    config = NegativeSamplingConfig(window=5, block=32, shared_negatives=1)
    ids = np.zeros(32 * 1_000, np.int64)
    found = sample_blocks(ids, ids, np.arange(len(ids)), (np.ones(1), np.ones(1)), config, (0, 0, 0))
    inner = found.neighbour_counts.flatten()[5:-5].long().numpy()
    assert set(inner.tolist()) == {2, 4, 6, 8, 10}
    assert stats.chisquare(np.bincount(inner // 2)[1:]).pvalue > 1e-4


def test_an_empty_text_has_no_blocks() -> None:
    nothing = np.zeros(0, np.int64)
    found = make_blocks(nothing, nothing, nothing, np.zeros(0), np.ones(3), SMALL, 5)
    assert (len(found), found.words_read) == (0, 5)


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"window": 0}, "window is 0. Give 1 to 100"),
        ({"negatives": 0}, "negatives and shared_negatives are at least 1"),
        ({"shared_negatives": 0}, "negatives and shared_negatives are at least 1"),
        ({"block": 100}, "a block of 100 words cannot be tiled. Give a multiple of 32"),
        ({"subsample": -1.0}, "subsample is -1.0. Give 0 or more"),
        ({"subsample": float("nan")}, "subsample is nan. Give 0 or more"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, float], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        NegativeSamplingConfig(**settings)  # type: ignore[arg-type]
