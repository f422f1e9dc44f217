"""Kinds of heads on matrices made for them, and attention rollout by its formula."""

import numpy as np
import pytest
from insight.inspection.small import token
from numpy.typing import NDArray

from bertsmith.insight.inspection.attention_maps import AttentionMaps
from bertsmith.insight.inspection.head_kinds import HeadKind, classify_heads
from bertsmith.insight.inspection.inputs import Token
from bertsmith.insight.inspection.rollout import rollout

SIZE = 8
# [CLS], six words of which the second has two tokens, [SEP]
WORD_NUMBERS = [0, 1, 1, 2, 3, 4]
TEXT = [token(number + 1, word) for number, word in enumerate(WORD_NUMBERS)]
TOKENS = [token(0, special=True), *TEXT, token(9, special=True)]


def kind_of(matrix: NDArray[np.floating], tokens: list[Token] = TOKENS, causal: bool = False) -> HeadKind:
    weights = (matrix / matrix.sum(-1, keepdims=True)).astype(np.float32)
    return classify_heads(weights[None, None], tokens, tokens, causal=causal)[0][0]


def toward(column: int) -> NDArray[np.floating]:
    matrix = np.zeros((SIZE, SIZE))
    matrix[:, column] = 1
    return matrix


@pytest.mark.parametrize(
    ("kind", "matrix"),
    [
        ("itself", np.eye(SIZE)),
        ("previous", np.eye(SIZE, k=-1) + np.outer(np.arange(SIZE) == 0, np.arange(SIZE) == 0)),
        ("next", np.eye(SIZE, k=1) + np.outer(np.arange(SIZE) == SIZE - 1, np.arange(SIZE) == 0)),
        ("separator", toward(SIZE - 1)),
        ("first", toward(0)),
        ("broad", np.ones((SIZE, SIZE))),
        ("mixed", np.exp(np.random.default_rng(4).normal(0, 3, (SIZE, SIZE)))),
    ],
)
def test_a_perfect_head_is_called_by_its_pattern(kind: str, matrix: NDArray[np.floating]) -> None:
    found = kind_of(matrix)
    assert found.kind == kind
    if kind not in ("broad", "mixed"):
        assert found.share == pytest.approx(1.0)
        assert found.shares[kind] == pytest.approx(1.0)
        assert found.entropy == pytest.approx(0.0)


def test_a_head_on_pieces_of_a_word_and_on_repeated_words_is_called_so() -> None:
    tokens = [*TOKENS[:5], token(1, 5), token(6, 6), TOKENS[-1]]  # word 1 stands twice, and 2 and 3 are one word
    matrix = np.eye(SIZE)
    for a, b in ((1, 5), (5, 1), (2, 3), (3, 2)):
        matrix[a] = np.eye(SIZE)[b]
    found = kind_of(matrix, tokens)
    assert (found.kind, found.shares["same word"]) == ("same word", 1.0)


def test_a_text_without_repeated_words_has_no_share_on_the_same_word() -> None:
    tokens = [token(number, number) for number in range(SIZE)]
    assert set(kind_of(np.eye(SIZE), tokens).shares) == {"itself", "previous", "next", "first"}


def test_even_attention_on_two_tokens_is_broad_although_each_pattern_has_half() -> None:
    tokens = [token(0, 0), token(1, 1)]
    assert kind_of(np.ones((2, 2)), tokens).kind == "broad"


def test_distance_entropy_and_special_share_are_means_over_tokens() -> None:
    weights = np.full((SIZE, SIZE), 1 / SIZE)
    found = kind_of(weights)
    places = np.arange(SIZE)
    assert found.distance == pytest.approx(np.abs(places[:, None] - places).mean())
    assert found.entropy == pytest.approx(np.log(SIZE))
    assert found.special == pytest.approx(2 / SIZE)


def test_the_first_token_of_a_causal_network_does_not_count() -> None:
    tokens = [token(number, number) for number in range(SIZE)]
    previous = np.eye(SIZE, k=-1)
    previous[0, 0] = 1
    found = kind_of(previous, tokens, causal=True)
    assert (found.kind, found.shares["itself"], found.distance) == ("previous", 0.0, 1.0)
    assert kind_of(np.tri(SIZE), tokens, causal=True).kind == "broad"
    sink = toward(0)
    assert kind_of(sink, tokens, causal=True).kind == "first"
    assert "next" not in found.shares


def test_between_texts_only_patterns_without_positions_are_looked_for() -> None:
    rows, columns = [token(number, number) for number in (5, 6, 7)], [*(token(n, n) for n in (7, 6, 5)), TOKENS[-1]]
    weights = np.eye(3, 4)[::-1].copy()
    found = classify_heads(weights[None, None].astype(np.float32), rows, columns, between_texts=True)[0][0]
    assert (found.kind, found.share, found.distance) == ("same word", 1.0, None)
    assert set(found.shares) == {"first", "separator", "same word"}


def test_one_token_alone_attends_to_itself() -> None:
    found = kind_of(np.ones((1, 1)), [token(3)])
    assert found.share == 1.0
    assert found.figures()["entropy"] == 0


def test_rollout_is_the_product_of_the_formula() -> None:
    dice = np.random.default_rng(0)
    weights = dice.dirichlet(np.ones(5), (3, 2, 5)).astype(np.float32)
    true = np.eye(5)
    for number, layer in enumerate(weights):
        true = (0.5 * layer.mean(0) + 0.5 * np.eye(5)) @ true
        np.testing.assert_allclose(rollout(weights)[number], true, atol=1e-6)
    np.testing.assert_allclose(rollout(weights).sum(-1), 1.0, atol=1e-6)


def test_attention_between_texts_has_no_rollout() -> None:
    weights = np.full((1, 1, 2, 2), 0.5, np.float32)
    tokens = [token(1), token(2)]
    assert AttentionMaps("cross-attention", "targets", "tokens", weights, tokens, tokens).rollout is None
    assert AttentionMaps("decoder", "targets", "targets", weights, tokens, tokens).rollout is not None
