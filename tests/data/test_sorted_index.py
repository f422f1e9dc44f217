"""The sorted index finds what `np.searchsorted` finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.data.packing.sorted_index import SortedIndex


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(0, 2**32 - 1))
def test_it_equals_searchsorted(lengths: list[int], seed: int) -> None:
    numbers = np.concatenate([[0], np.cumsum(lengths)])
    places = np.random.default_rng(seed).integers(0, numbers[-1] + 40, 200)
    places = np.concatenate([places, numbers, numbers[1:] - 1])
    assert SortedIndex(numbers).searchsorted(places).tolist() == np.searchsorted(numbers, places, side="right").tolist()


@pytest.mark.parametrize("numbers", [[0, 1], [0, 10**12], [0, 1, 2, 10**6]])
def test_units_may_be_as_uneven_as_they_like(numbers: list[int]) -> None:
    places = np.array([0, 1, 2, numbers[-1] - 1, numbers[-1], numbers[-1] + 7])
    found = SortedIndex(np.array(numbers)).searchsorted(places)
    assert found.tolist() == np.searchsorted(numbers, places, side="right").tolist()
