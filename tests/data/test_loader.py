import threading
import time
import traceback
from itertools import count

import pytest
import torch

from bertsmith.data.batch import LabelledBatch, Tokens
from bertsmith.data.loader import Loader


def make(position):
    time.sleep(0.001 * (position % 3))  # so that threads finish out of order
    return LabelledBatch(tokens=Tokens.from_rows([[position, position + 1]]), labels=torch.tensor([position]))


def take(loader, number):
    return [(position, batch.tokens.ids.tolist()) for position, batch in (next(loader) for _ in range(number))]


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_the_number_of_workers_does_not_change_the_batches(workers):
    with Loader(make, count(10, 2), workers) as loader:
        assert take(loader, 20) == [(position, [position, position + 1]) for position in range(10, 50, 2)]


def test_batches_are_made_ahead_but_not_too_far():
    made = []

    def noted(position):
        made.append(position)
        return make(position)

    with Loader(noted, count(0, 2), workers=2, prefetch=3) as loader:
        next(loader)
        deadline = time.monotonic() + 5
        while len(made) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert sorted(made) == [0, 2, 4]


def test_without_workers_nothing_is_made_ahead():
    made = []

    def noted(position):
        made.append(position)
        return make(position)

    before = set(threading.enumerate())
    next(Loader(noted, count(0, 2), workers=0))
    assert made == [0]
    assert set(threading.enumerate()) == before


def broken(position):
    if position == 4:
        raise ValueError("the third batch is broken")
    return make(position)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_surfaces_where_its_batch_is_asked_for_with_its_own_traceback(workers):
    with Loader(broken, count(0, 2), workers) as loader:
        assert len(take(loader, 2)) == 2
        with pytest.raises(ValueError, match="the third batch is broken") as caught:
            next(loader)
        assert "in broken" in "".join(traceback.format_exception(caught.value))


def test_closing_stops_the_threads():
    before = set(threading.enumerate())
    loader = Loader(make, count(0, 2), workers=3)
    next(loader)
    assert set(threading.enumerate()) > before
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < 1
    assert set(threading.enumerate()) <= before


def test_leaving_by_an_error_stops_the_threads_too():
    before = set(threading.enumerate())

    def interrupted():
        with Loader(make, count(0, 2), workers=2) as loader:
            next(loader)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert set(threading.enumerate()) <= before


@pytest.mark.gpu
def test_pinned_batches_are_pinned_throughout():
    with Loader(make, count(0, 2), workers=1, pin_memory=True) as loader:
        _, batch = next(loader)
    assert batch.labels.is_pinned()
    assert batch.tokens.ids.is_pinned()
    assert batch.tokens.bounds.is_pinned()
