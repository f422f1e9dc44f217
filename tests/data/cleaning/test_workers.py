"""Workers of a cleaning: an error of one of them is one line."""

from pathlib import Path

import pytest

from bertsmith.data.cleaning import passages
from bertsmith.data.cleaning.workers import read_all
from bertsmith.errors import RunError

CHUNK = passages.Chunk([passages.NumberedPassage(0, ["A line."], "text.txt:1", "lines")], 1, 1.0)


@pytest.mark.slow("starts processes")
def test_a_worker_that_fails_in_the_first_reading_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^clean: a worker process failed \(.*settings\.json: is missing"):
        list(read_all([(CHUNK, CHUNK.passages)], tmp_path, reading="judge", workers=1))


@pytest.mark.slow("starts processes")
def test_a_worker_that_fails_in_the_second_reading_is_reported_in_one_line(tmp_path: Path) -> None:
    config = '{"config": {"similarity": 0.75, "skip": [], "personal": false, "decontaminate": []}}'
    (tmp_path / "settings.json").write_text(config)
    with pytest.raises(RunError, match=r"^clean: a worker process failed \(.*decisions\.json: is missing"):
        list(read_all([(CHUNK, CHUNK.passages)], tmp_path, reading="rewrite", workers=1))


def test_passages_travel_as_they_are() -> None:
    assert passages.decode(passages.encode(CHUNK.passages)) == CHUNK.passages
