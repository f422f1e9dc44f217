"""The three ways to score, each against its formula, and what no way may do."""

import pytest
import torch
from torch import Tensor

from bertsmith.nn.padded import PaddedRows
from bertsmith.nn.rnn.attention import AdditiveAttention, BilinearAttention, Scoring, SourceAttention, make_attention

WIDTH = 6
LENGTHS = [3, 1, 4, 0, 2]  # of what was read; the fourth text is empty
WAYS: tuple[Scoring, ...] = ("dot", "bilinear", "mlp")
EVERY = pytest.mark.parametrize("scoring", WAYS)


def made(scoring: Scoring) -> SourceAttention:
    torch.manual_seed(0)
    return make_attention(scoring, WIDTH)


def texts() -> tuple[Tensor, Tensor, PaddedRows]:
    """What was read, what asks of each text, and where the texts lie."""
    dice = torch.Generator().manual_seed(1)
    bounds = torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32)
    read = torch.randn(sum(LENGTHS), WIDTH, generator=dice)
    return read, torch.randn(len(LENGTHS), 2, WIDTH, generator=dice), PaddedRows.of(bounds, max(LENGTHS), len(read))


def score(way: SourceAttention, asks: Tensor, word: Tensor) -> Tensor:
    """The papers' formulas, of one vector that asks and one word."""
    if isinstance(way, BilinearAttention):
        return asks @ way.projection.weight @ word
    if isinstance(way, AdditiveAttention):
        return way.score_projection.weight[0] @ torch.tanh(
            way.key_projection.weight @ word + way.query_projection.weight @ asks + way.query_projection.bias
        )
    return asks @ word


@EVERY
def test_weights_are_the_softmax_of_the_papers_scores_over_the_text(scoring: Scoring) -> None:
    way, (read, asking, rows) = made(scoring), texts()
    taken, weights = way(asking, way.make_source(read, rows))
    for number, words in enumerate(read.split(LENGTHS)):
        for place in range(asking.shape[1]):
            if not len(words):
                continue
            scores = torch.stack([score(way, asking[number, place], word) for word in words])
            found = weights[number, place]
            torch.testing.assert_close(found[: len(words)], scores.softmax(0), rtol=0, atol=1e-6)
            torch.testing.assert_close(taken[number, place], scores.softmax(0) @ words, rtol=0, atol=1e-6)


@EVERY
def test_weights_sum_to_one_and_nothing_is_taken_from_beside_the_text(scoring: Scoring) -> None:
    way, (read, asking, rows) = made(scoring), texts()
    _, weights = way(20 * asking, way.make_source(read, rows))
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    for number, length in enumerate(LENGTHS):
        assert not weights[number, :, max(1, length) :].any()


@EVERY
def test_no_gradient_comes_from_another_text(scoring: Scoring) -> None:
    way, (read, asking, rows) = made(scoring), texts()
    read.requires_grad_()
    (gradient,) = torch.autograd.grad(way(asking, way.make_source(read, rows))[0][2].square().sum(), read)
    assert gradient[4:8].abs().sum(1).min() > 0
    assert not gradient[:4].any()
    assert not gradient[8:].any()


@EVERY
def test_texts_that_are_spread_are_the_same_texts_again(scoring: Scoring) -> None:
    way, (read, asking, rows) = made(scoring), texts()
    source = way.make_source(read, rows)
    once, weights = way(asking, source)
    spread, more = way(asking.repeat_interleave(3, 0), source.repeat_interleave(3))
    torch.testing.assert_close(spread[::3], once)
    torch.testing.assert_close(more[2::3], weights)
