"""The three scoring functions of attention against their formulas, and what none may do."""

import pytest
import torch
from torch import Tensor

from bertsmith.nn.padded import PaddedRows
from bertsmith.nn.rnn.attention import AdditiveAttention, BilinearAttention, Scoring, SourceAttention, make_attention

WIDTH = 6
LENGTHS = [3, 1, 4, 0, 2]  # of the source texts; the fourth is empty
SCORINGS: tuple[Scoring, ...] = ("dot", "bilinear", "mlp")
EVERY = pytest.mark.parametrize("scoring", SCORINGS)


def made(scoring: Scoring) -> SourceAttention:
    torch.manual_seed(0)
    return make_attention(scoring, WIDTH)


def texts() -> tuple[Tensor, Tensor, PaddedRows]:
    """Source vectors, queries of each text, and the rows of the texts."""
    dice = torch.Generator().manual_seed(1)
    bounds = torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32)
    source_vectors = torch.randn(sum(LENGTHS), WIDTH, generator=dice)
    return (
        source_vectors,
        torch.randn(len(LENGTHS), 2, WIDTH, generator=dice),
        PaddedRows.of(bounds, max(LENGTHS), len(source_vectors)),
    )


def score(attention: SourceAttention, query: Tensor, word: Tensor) -> Tensor:
    """The papers' formulas, for one query and one word."""
    if isinstance(attention, BilinearAttention):
        return query @ attention.projection.weight @ word
    if isinstance(attention, AdditiveAttention):
        return attention.score_projection.weight[0] @ torch.tanh(
            attention.key_projection.weight @ word
            + attention.query_projection.weight @ query
            + attention.query_projection.bias
        )
    return query @ word


@EVERY
def test_weights_are_the_softmax_of_the_papers_scores_over_the_text(scoring: Scoring) -> None:
    attention, (source_vectors, queries, rows) = made(scoring), texts()
    context, weights = attention(queries, attention.make_source(source_vectors, rows))
    for number, words in enumerate(source_vectors.split(LENGTHS)):
        for position in range(queries.shape[1]):
            if not len(words):
                continue
            scores = torch.stack([score(attention, queries[number, position], word) for word in words])
            found = weights[number, position]
            torch.testing.assert_close(found[: len(words)], scores.softmax(0), rtol=0, atol=1e-6)
            torch.testing.assert_close(context[number, position], scores.softmax(0) @ words, rtol=0, atol=1e-6)


@EVERY
def test_weights_sum_to_one_and_padding_has_none(scoring: Scoring) -> None:
    attention, (source_vectors, queries, rows) = made(scoring), texts()
    _, weights = attention(20 * queries, attention.make_source(source_vectors, rows))
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    for number, length in enumerate(LENGTHS):
        assert not weights[number, :, max(1, length) :].any()


@EVERY
def test_no_gradient_comes_from_another_text(scoring: Scoring) -> None:
    attention, (source_vectors, queries, rows) = made(scoring), texts()
    source_vectors.requires_grad_()
    (gradient,) = torch.autograd.grad(
        attention(queries, attention.make_source(source_vectors, rows))[0][2].square().sum(), source_vectors
    )
    assert gradient[4:8].abs().sum(1).min() > 0
    assert not gradient[:4].any()
    assert not gradient[8:].any()


@EVERY
def test_repeated_sources_give_the_same(scoring: Scoring) -> None:
    attention, (source_vectors, queries, rows) = made(scoring), texts()
    source = attention.make_source(source_vectors, rows)
    once, weights = attention(queries, source)
    spread, more = attention(queries.repeat_interleave(3, 0), source.repeat_interleave(3))
    torch.testing.assert_close(spread[::3], once)
    torch.testing.assert_close(more[2::3], weights)
