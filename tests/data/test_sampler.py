"""Every epoch sees each item once, in an order that is a pure function."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.data.feed import PositionSource
from bertsmith.data.sampler import BatchSampler


def walk(source: BatchSampler, lists: int, position: int = 0) -> tuple[list[list[int]], int]:
    found = []
    for _ in range(lists):
        found.append(source(position))
        position = source.next_position(position)
    return found, position


@pytest.mark.slow("tries many sizes")
@given(st.integers(1, 70), st.integers(1, 20), st.integers(0, 2**40), st.integers(0, 3))
def test_each_item_comes_once_an_epoch_and_lists_are_full_but_the_last(
    count: int, size: int, seed: int, epoch: int
) -> None:
    source = BatchSampler(range(count), size, seed)
    found, after = walk(source, -(-count // size), epoch << 32)
    assert sorted(item for some in found for item in some) == list(range(count))
    assert all(len(some) == size for some in found[:-1])
    assert len(found[-1]) == (count - 1) % size + 1
    assert after == (epoch + 1) << 32


def test_positions_count_lists_and_then_epochs() -> None:
    source = BatchSampler("abcdefg", 3, 0)
    assert isinstance(source, PositionSource)
    assert source.first_position() == 0
    assert source.next_position(0) == 1
    assert source.next_position(1) == 2
    assert source.next_position(2) == 1 << 32
    assert source.next_position((5 << 32) + 2) == 6 << 32
    assert [source.epoch(place) for place in (0, 1, (1 << 32) + 2)] == [0.0, 1 / 3, 1 + 2 / 3]


@given(st.integers(0, 2**40), st.integers(0, 1000), st.integers(0, 4))
def test_the_batch_at_a_position_depends_on_no_other_batch(seed: int, epoch: int, index: int) -> None:
    position = (epoch << 32) + index
    used = BatchSampler(range(50), 11, seed)
    walk(used, 7)
    assert used(position) == BatchSampler(range(50), 11, seed)(position)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = set()
    for seed in range(5):
        source = BatchSampler(range(40), 40, seed)
        orders |= {tuple(source(epoch << 32)) for epoch in range(5)}
    assert len(orders) == 25
    assert tuple(range(40)) not in orders


def test_the_size_of_a_list_does_not_change_the_order() -> None:
    whole = BatchSampler(range(23), 23, 7)(3 << 32)
    found, _ = walk(BatchSampler(range(23), 5, 7), 5, 3 << 32)
    assert [item for some in found for item in some] == whole
