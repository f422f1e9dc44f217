"""Neighbours: the gradient is that of the stated loss; what is drawn follows the formulas; sentences stay apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.stretch import KINDS, SMALL, Kind, exact, made
from scipy import stats

from bertsmith.data.shuffle import uniform
from bertsmith.models.word2vec import Word2Vec, Word2VecConfig
from bertsmith.objectives.neighbours import (
    FARTHEST,
    GRADIENTS,
    TILE,
    NeighboursConfig,
    blocks,
    cumulative,
    draw,
    fitted,
    kept,
    loss,
    move,
)


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
    total, told = loss(whole, exact(block), 4)
    expected, count = 0.0, 0
    window = SMALL.window
    for tile in range(len(block.words)):
        for word in range(TILE):
            near = [block.words[tile, place] for place in block.near[tile, word].nonzero().flatten().tolist()]
            centre = block.words[tile, window + word]
            if kind == "skip-gram":
                pairs = [(whole.inputs[centre], other) for other in near]
            else:
                pairs = [(whole.inputs[torch.stack(near)].mean(0), centre)] if near else []
            for read, other in pairs:
                expected -= float(torch.nn.functional.logsigmoid(read @ whole.outputs[other]))
                false = torch.nn.functional.logsigmoid(-(whole.outputs[block.false] @ read))
                expected -= 4 * float(false.mean())
                count += 1
    assert float(total) == pytest.approx(expected)
    assert int(told) == count > 30


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_is_one_step_down(kind: Kind) -> None:
    block, whole = made([30, 34], 20)[0], model(kind, dtype=torch.float32)
    before, told = loss(whole, block, SMALL.negatives)
    rows = [one.clone() for one in (whole.inputs, whole.outputs)]
    move(whole, block, SMALL.negatives, 1e-3)
    after, _ = loss(whole, block, SMALL.negatives)
    slope = sum(float((one - old).square().sum()) for one, old in zip((whole.inputs, whole.outputs), rows, strict=True))
    assert float(before - after) == pytest.approx(slope / 1e-3, rel=0.05)  # a short step gains rate times slope squared
    assert told > 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 6), st.integers(0, 99))
def test_neighbours_are_those_of_a_loop_and_never_cross_sentences(lengths: list[int], window: int, seed: int) -> None:
    config = NeighboursConfig(window=window, block=64, shared=2)
    chance, total = np.random.default_rng(seed), sum(lengths)
    sentences, reach = np.repeat(np.arange(len(lengths)), lengths), chance.integers(1, window + 1, total)
    count = -(-total // 64)
    # Every word is a word of its own, so that a neighbour tells where it stands.
    found = blocks(np.arange(total), sentences, reach, np.zeros(2 * count), np.ones(total), config, total)
    expected = {
        (place, other)
        for place in range(total)
        for other in range(max(0, place - reach[place]), min(total, place + reach[place] + 1))
        if other != place and sentences[other] == sentences[place]
    }
    pairs = set()
    for block, tile, word, context in found.near.nonzero().tolist():
        place = block * 64 + tile * TILE + word
        pairs.add((place, int(found.words[block, tile, context])))
        assert place == found.words[block, tile, window + word]
    assert pairs == expected
    assert torch.equal(found.company, found.near.sum(3).view(count, 64, 1))
    assert int(found.company.sum()) == len(expected)


def test_frequent_words_are_dropped_as_the_formula_says() -> None:
    counts = np.array([60_000, 20_000, 5_000, 900, 100])
    chances = kept(counts, 1e-3)
    share = counts / counts.sum()
    assert chances == pytest.approx(np.minimum(1, np.sqrt(1e-3 / share) + 1e-3 / share))
    assert chances[-1] == 1
    assert (kept(counts, 0) == 1).all()
    config = NeighboursConfig(window=1, block=64, shared=1)
    ids = np.repeat(np.arange(5), counts)
    found = draw(ids, np.arange(len(ids)), np.arange(len(ids)), (chances, np.ones(5)), config, (0, 0, 0))
    seen = np.bincount(found.words[:, :, 1 : 1 + TILE].flatten().numpy(), minlength=5)
    assert found.read == len(ids)
    for word in (1, 2, 3):  # word 0 also fills the last block
        spread = np.sqrt(counts[word] * chances[word] * (1 - chances[word]))
        assert abs(seen[word] - counts[word] * chances[word]) < 4 * spread + 1e-9
    assert seen[4] == 100


def test_words_are_kept_independently_of_each_other() -> None:
    left = uniform(3, 16, 0, np.arange(100_000)) < 0.3
    assert stats.binomtest(int(left.sum()), 100_000, 0.3).pvalue > 1e-4
    both = int((left[1:] & left[:-1]).sum())
    assert abs(both / 99_999 - 0.09) < 5e-3


def test_false_neighbours_are_drawn_by_the_power_of_their_counts() -> None:
    counts = np.array([5_000, 1_000, 300, 100, 30, 10])
    chances = cumulative(counts, 0.75)
    config = NeighboursConfig(window=1, block=32, shared=50)
    ids = np.zeros(32 * 400, np.int64)
    found = draw(ids, ids, np.arange(len(ids)), (np.ones(6), chances), config, (7, 1, 2))
    seen = np.bincount(found.false.flatten().numpy(), minlength=6)
    expected = counts**0.75 / (counts**0.75).sum() * seen.sum()
    assert seen.sum() == 400 * 50
    assert stats.chisquare(seen, expected).pvalue > 1e-4
    assert stats.chisquare(seen, counts / counts.sum() * seen.sum()).pvalue < 1e-9  # and not by the counts themselves
    again = draw(ids, ids, np.arange(len(ids)), (np.ones(6), chances), config, (7, 1, 2))
    assert torch.equal(found.false, again.false)
    assert torch.equal(found.near, again.near)
    other = draw(ids, ids, np.arange(len(ids)), (np.ones(6), chances), config, (7, 1, 3))
    assert not torch.equal(found.false, other.false)


@pytest.mark.parametrize("kind", KINDS)
def test_a_false_neighbour_is_not_moved_too_far(kind: Kind) -> None:
    """All words of the block push away the same false neighbours, which are none of the block's words."""
    block, whole = made([32, 32], 10)[0], model(kind, dtype=torch.float32)
    block = replace(block, false=torch.arange(10, 16))
    before = whole.outputs.clone()
    move(whole, block, SMALL.negatives, 10.0)
    lengths = (whole.outputs - before)[10:16].norm(dim=1)
    assert lengths.max() <= FARTHEST + 1e-5
    assert lengths.min() > 0
    assert torch.equal(whole.outputs[16:], before[16:])


def test_blocks_are_small_where_a_text_has_few_words() -> None:
    config = NeighboursConfig()
    many = (1e6 / np.arange(1, 50_001)).astype(np.int64)
    assert fitted(config, "skip-gram", many, 0.025) == replace(config, shared=64)
    assert fitted(config, "cbow", many, 0.15) == replace(config, shared=32)
    assert fitted(replace(config, shared=7), "cbow", many, 0.15).shared == 7
    few = np.array([50, 30, 20])
    assert fitted(config, "skip-gram", few, 0.025).block == TILE
    some = np.full(100, 1_000)
    sizes = [fitted(config, "skip-gram", some, rate).block for rate in (0.025, 0.05, 0.1)]
    assert sizes[0] == 512 > sizes[1] > sizes[2]
    each = 0.05 * 6 * 6 / 100  # what a word of the block moves each row by, in the mean
    assert sizes[1] * each <= 8 < (sizes[1] + TILE) * each
    assert fitted(config, "cbow", some, 0.025).block == 512


def test_reaches_are_even() -> None:
    config = NeighboursConfig(window=5, block=32, shared=1)
    ids = np.zeros(32 * 1_000, np.int64)
    found = draw(ids, ids, np.arange(len(ids)), (np.ones(1), np.ones(1)), config, (0, 0, 0))
    inner = found.company.flatten()[5:-5].long().numpy()
    assert set(inner.tolist()) == {2, 4, 6, 8, 10}
    assert stats.chisquare(np.bincount(inner // 2)[1:]).pvalue > 1e-4


def test_nothing_to_learn_from_is_no_block() -> None:
    nothing = np.zeros(0, np.int64)
    found = blocks(nothing, nothing, nothing, np.zeros(0), np.ones(3), SMALL, 5)
    assert (len(found), found.read) == (0, 5)


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"window": 0}, "a window of 0 words is none. Give 1 to 100"),
        ({"negatives": 0}, "negatives and shared are at least 1"),
        ({"shared": 0}, "negatives and shared are at least 1"),
        ({"block": 100}, "a block of 100 words cannot be tiled. Give a multiple of 32"),
        ({"sample": -1.0}, "a sample of -1.0 is no part of a text"),
        ({"sample": float("nan")}, "a sample of nan is no part of a text"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, float], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        NeighboursConfig(**settings)  # type: ignore[arg-type]
