"""Workers under a limit on open files: as many as the limit allows do the work."""

import errno
from pathlib import Path
from typing import Any

import pytest

from bertsmith.data.shards import workers
from bertsmith.data.workers import FEWER_WORKERS, SPARE_WORKERS
from bertsmith.errors import RunError


class Few(workers.Worker):
    """Replaces a worker; only a few can be started."""

    alive, most = 0, 10

    def __init__(self, *_: Any) -> None:
        if Few.alive == Few.most:
            raise OSError(errno.EMFILE, "Too many open files")
        Few.alive += 1

    def encode(self, groups: list[Any]) -> list[Any]:
        return []

    def kill(self) -> None:
        Few.alive -= 1

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "Worker", Few)
    monkeypatch.setattr(Few, "alive", 0)


def test_as_many_workers_as_can_be_started_do_the_work() -> None:
    items = [(number, [[[f"text {number}"]]]) for number in range(30)]
    done = workers.encode_all(items, Path(), "int32", 40)
    first = next(done)
    assert Few.alive == Few.most - SPARE_WORKERS  # the others gave their files back
    assert [number for number, _ in (first, *done)] == list(range(30))
    assert Few.alive == 0


def test_where_no_worker_can_be_started_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Few, "most", 2)
    with pytest.raises(RunError) as caught:
        list(workers.encode_all([], Path(), "int32", 3))
    fact = "prepare: no worker process can be started (Too many open files)"
    assert str(caught.value) == f"{fact}. {FEWER_WORKERS}."
    assert Few.alive == 0
