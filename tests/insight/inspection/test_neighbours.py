"""Neighbours of tokens: those of the table and those in context, against cosines that are written out."""

import numpy as np
import pytest
import torch

from bertsmith.insight.inspection import neighbours
from bertsmith.insight.inspection.neighbours import find_neighbours, nearest_positions, nearest_rows


def cosines(table: np.ndarray) -> np.ndarray:
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)


@pytest.mark.parametrize("block", [7, 20, 64])
def test_the_nearest_rows_are_those_of_all_cosines_whatever_the_block(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "BLOCK_TOKENS", block)
    table = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    excluded = np.zeros(20, bool)
    excluded[[0, 13]] = True
    rows = [3, 8, 19]
    found = nearest_rows(torch.from_numpy(table), torch.tensor(rows), torch.from_numpy(excluded), 5)
    for row, pairs in zip(rows, found, strict=True):
        own = cosines(table)[row]
        own[[row, 0, 13]] = -np.inf
        order = np.argsort(-own)[:5]
        assert [number for number, _ in pairs] == order.tolist()
        assert [cosine for _, cosine in pairs] == pytest.approx(own[order].tolist(), abs=1e-6)


def test_a_tiny_vocabulary_has_fewer_neighbours_and_none_that_is_excluded() -> None:
    table = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    found = nearest_rows(table, torch.tensor([1]), torch.tensor([True, False, False]), 8)
    assert [[number for number, _ in row] for row in found] == [[2]]


def test_neighbours_in_context_are_other_tokens_of_the_text_and_never_special_ones() -> None:
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0], [1.0, 0.0]])
    special = torch.tensor([True, False, False, False, True])
    found = nearest_positions(vectors, special, 3)
    assert [[number for number, _ in row] for row in found] == [[1, 2, 3], [2, 3], [1, 3], [2, 1], [1, 2, 3]]
    assert found[1][0][1] == pytest.approx(cosines(vectors.numpy())[1, 2], abs=1e-6)


def test_special_tokens_have_no_neighbours_in_the_table_and_equal_tokens_have_equal_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    table, vectors = torch.randn(12, 4, generator=generator), torch.randn(5, 4, generator=generator)
    ids, special = torch.tensor([0, 5, 7, 5, 1]), torch.tensor([True, False, False, False, True])
    excluded = torch.arange(12) < 2
    found = find_neighbours(table, ids, vectors, special, excluded)
    assert found.static[0] is None
    assert found.static[4] is None
    assert found.static[1] == found.static[3]
    figures = found.figures(lambda number: f"token {number}")
    assert figures["static"][1][0][0].startswith("token ")
    assert len(figures["contextual"]) == 5
    assert repr(found) == "Neighbours(5 tokens)"


def test_a_network_without_a_table_of_tokens_has_neighbours_in_context_alone() -> None:
    found = find_neighbours(None, torch.tensor([3, 4]), torch.eye(2), torch.zeros(2).bool(), torch.zeros(5).bool())
    assert found.static == [None, None]
    assert found.contextual == [[(1, 0.0)], [(0, 0.0)]]


def test_a_text_of_one_token_has_no_neighbours() -> None:
    found = find_neighbours(torch.eye(1), torch.tensor([0]), torch.eye(1), torch.tensor([False]), torch.tensor([False]))
    assert found.static == [[]]
    assert found.contextual == [[]]
