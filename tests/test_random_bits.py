import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.random_bits import mix, permute, uniform


def test_the_hash_is_that_of_the_published_generator():
    assert int(mix(0)) == 0xE220A8397B1DCDAF  # the first number of splitmix64 from seed 0


def test_the_hash_never_changes():
    assert int(mix(1, 2, 3)) == 16914669369030367833
    assert mix(7, np.arange(3)).tolist() == [9048807721209015062, 889264979836180879, 8149597475471274542]
    assert permute(np.arange(10), 10, 3).tolist() == [5, 9, 8, 7, 0, 2, 1, 6, 4, 3]


def test_numbers_and_arrays_are_hashed_alike():
    array = np.array([-5, 0, 3, 2**40])
    assert mix(9, array, 4).tolist() == [int(mix(9, int(number), 4)) for number in array]
    assert mix(array, 9).tolist() == [int(mix(int(number), 9)) for number in array]
    assert mix(array, array).tolist() == [int(mix(int(number), int(number))) for number in array]


def test_the_order_of_the_parts_matters():
    assert mix(1, 2) != mix(2, 1)
    assert mix(0, 1) != mix(1)


def test_uniform_numbers_are_uniform_and_independent():
    numbers = uniform(3, np.arange(100_000))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.bincount((numbers * 100).astype(int), minlength=100)
    assert ((counts - 1000) ** 2 / 1000).sum() < 170  # chi square with 99 degrees of freedom
    assert abs(np.corrcoef(numbers, uniform(4, np.arange(100_000)))[0, 1]) < 0.015
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.015


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**63))
def test_a_permutation_meets_every_index_once(size, key):
    assert np.array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 10**8), st.integers(0, 2**63), st.data())
def test_an_index_is_moved_without_knowing_the_others(size, key, data):
    some = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5, unique=True)))
    moved = permute(some, size, key)
    assert len(set(moved.tolist())) == len(some)
    assert moved.min() >= 0
    assert moved.max() < size
    assert np.array_equal(permute(some[::-1], size, key), moved[::-1])


def test_all_orders_are_about_equally_likely():
    orders = [tuple(permute(np.arange(3), 3, key).tolist()) for key in range(1200)]
    counts = np.array([orders.count(order) for order in set(orders)])
    assert len(counts) == 6
    assert counts.min() > 160
    assert counts.max() < 240


def test_a_permutation_leaves_no_trace_of_the_order():
    moved = permute(np.arange(50_000), 50_000, 5)
    assert abs(np.corrcoef(moved, np.arange(50_000))[0, 1]) < 0.02
    assert abs(np.corrcoef(np.diff(moved)[1:], np.diff(moved)[:-1])[0, 1] + 0.5) < 0.02  # as of independent numbers
