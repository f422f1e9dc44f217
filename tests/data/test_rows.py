"""Rows go many at a time and come back in order."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.data.rows import Row, batch_by_length, map_rows, pack_rows


def row(size: int, begin: int = 0) -> Row:
    return Row(np.arange(begin, begin + size, dtype=np.int32), np.arange(size, dtype=np.int32) % 2)


def test_rows_are_laid_end_to_end() -> None:
    tokens = pack_rows([row(3, 10), row(1, 20), row(2, 30)])
    assert tokens.ids.tolist() == [10, 11, 12, 20, 30, 31]
    assert tokens.segments is not None
    assert tokens.segments.tolist() == [0, 1, 0, 0, 0, 1]
    assert tokens.bounds.tolist() == [0, 3, 4, 6]
    assert tokens.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert (tokens.max_length, tokens.equal_lengths) == (3, False)
    assert tokens.ids.dtype == tokens.bounds.dtype == tokens.positions.dtype == torch.int32
    assert pack_rows([row(3), row(3)]).equal_lengths


@given(st.lists(st.integers(1, 30), max_size=60), st.integers(1, 100))
def test_each_row_is_in_one_pass_none_over_the_budget_but_alone_and_the_longest_first(
    lengths: list[int], budget: int
) -> None:
    found = list(batch_by_length(lengths, budget))
    assert sorted(number for some in found for number in some) == list(range(len(lengths)))
    sizes = [[lengths[number] for number in some] for some in found]
    assert all(sum(some) <= budget or len(some) == 1 for some in sizes)
    flat = [size for some in sizes for size in some]
    assert flat == sorted(flat, reverse=True)
    for some, following in pairwise(sizes):  # none could have been larger
        assert sum(some) + following[0] > budget


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 40))
def test_answers_come_in_the_order_of_the_rows(lengths: list[int], budget: int) -> None:
    rows = [row(size, 100 * number) for number, size in enumerate(lengths)]

    def sums(tokens: Tokens) -> list[Tensor]:
        return [part.sum() for part in torch.split(tokens.ids, tokens.bounds.diff().tolist())]

    assert [int(one) for one in map_rows(rows, sums, batch_tokens=budget)] == [int(one.ids.sum()) for one in rows]


def test_an_answer_too_few_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        map_rows([row(2), row(2)], lambda tokens: [1])


def test_letters_are_laid_with_their_rows_and_filler_has_none() -> None:
    spelt = Row(*(np.arange(2, dtype=np.int32),) * 2, np.array([[7, 8, 9], [4, 5, 6]], np.int16))
    tokens = pack_rows([spelt, row(2)])
    assert tokens.character_ids is not None
    assert tokens.character_ids.tolist() == [[7, 8, 9], [4, 5, 6], [0, 0, 0], [0, 0, 0]]
    assert tokens.to("cpu").character_ids is not None
    assert pack_rows([row(2)]).character_ids is None
