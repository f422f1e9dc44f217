"""The log is JSON at every moment, and a resumed run's log equals an undisturbed one's."""

import errno
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import FolderError, RunError
from bertsmith.train.log import NAME, Log, read


def steps(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {"kind": "step", "step": step, "loss": 1 / step, "terms": {"masked": 0.5}} for step in range(first, last + 1)
    ]


def written(folder: Path, records: list[dict[str, Any]]) -> None:
    with Log(folder, tensorboard=False) as log:
        for record in records:
            log.write(record)


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    records = [
        *steps(1, 3),
        {"kind": "validation", "step": 3, "loss": 0.1},
        {"kind": "note", "text": "naïve\n\u2028"},
    ]
    written(tmp_path / "new", records)
    assert read(tmp_path / "new" / NAME) == records
    assert len((tmp_path / "new" / NAME).read_bytes().splitlines()) == len(records)


def test_a_record_can_be_read_as_soon_as_it_is_written(tmp_path: Path) -> None:
    with Log(tmp_path, tensorboard=False) as log:
        log.write({"kind": "note", "text": "first"})
        assert read(tmp_path / NAME) == [{"kind": "note", "text": "first"}]


def test_non_finite_numbers_stay_json(tmp_path: Path) -> None:
    odd = {
        "kind": "step",
        "step": 1,
        "loss": math.nan,
        "terms": {"nsp": -math.inf},
        "norms": [math.inf, 1.0],
    }
    written(tmp_path, [odd])

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    record = json.loads((tmp_path / NAME).read_text(), parse_constant=refuse)
    assert (record["loss"], record["terms"], record["norms"]) == ("nan", {"nsp": "-inf"}, ["inf", 1.0])
    assert math.isnan(float(record["loss"]))


def test_a_resumed_log_equals_an_undisturbed_one(tmp_path: Path) -> None:
    note = {"kind": "note", "text": "belongs to the step before"}
    first = [*steps(1, 4), {"kind": "validation", "step": 4, "loss": 0.3}, note]
    written(tmp_path / "whole", [*first, *steps(5, 9)])
    written(tmp_path / "resumed", [*first, *steps(5, 7), note])
    with Log(tmp_path / "resumed", tensorboard=False) as log:
        log.rewind(4)
        for record in steps(5, 9):
            log.write(record)
        log.sync()
    assert (tmp_path / "resumed" / NAME).read_bytes() == (tmp_path / "whole" / NAME).read_bytes()


def test_a_log_can_be_rewound_to_before_its_beginning(tmp_path: Path) -> None:
    written(tmp_path, [{"kind": "validation", "step": 0, "loss": 9.0}, *steps(1, 2)])
    with Log(tmp_path, tensorboard=False) as log:
        log.rewind(-1)
    assert read(tmp_path / NAME) == []


def test_a_log_is_written_after_rewinding(tmp_path: Path) -> None:
    with Log(tmp_path, tensorboard=False) as log:
        for record in steps(1, 5):
            log.write(record)
        log.rewind(2)
        log.write(steps(3, 3)[0])
    assert read(tmp_path / NAME) == steps(1, 3)


def test_a_torn_last_line_is_dropped_wherever_it_is_torn(tmp_path: Path) -> None:
    written(tmp_path, steps(1, 3))
    whole = (tmp_path / NAME).read_bytes()
    second = whole.rindex(b"\n", 0, -1) + 1
    for length in range(second, len(whole)):
        (tmp_path / NAME).write_bytes(whole[:length])
        assert read(tmp_path / NAME) == steps(1, 2)
        written(tmp_path, steps(3, 3))
        assert (tmp_path / NAME).read_bytes() == whole


def test_a_tail_of_zeros_left_by_a_power_cut_is_dropped(tmp_path: Path) -> None:
    written(tmp_path, steps(1, 2))
    with (tmp_path / NAME).open("ab") as file:
        file.write(bytes(500))
    written(tmp_path, steps(3, 3))
    assert read(tmp_path / NAME) == steps(1, 3)


def test_a_kill_while_rewinding_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, steps(1, 5))

    def die(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    for call in ("write", "fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, die)
            with pytest.raises(KeyboardInterrupt):
                Log(tmp_path, tensorboard=False).rewind(2)
        assert read(tmp_path / NAME) == steps(1, 5)


def test_making_a_log_touches_nothing_before_the_first_record(tmp_path: Path) -> None:
    log = Log(tmp_path / "run", tensorboard=False)
    log.sync()
    log.close()
    assert not (tmp_path / "run").exists()


def test_sync_puts_the_log_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    fsync = os.fsync

    def watch(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        fsync(file)

    with Log(tmp_path, tensorboard=False) as log:
        log.write(steps(1, 1)[0])
        monkeypatch.setattr(os, "fsync", watch)
        log.sync()
    assert synced == [str(tmp_path / NAME)]


def test_a_full_disk_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Log(tmp_path, tensorboard=False) as log:
        log.write(steps(1, 1)[0])
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(RunError, match=rf"{tmp_path / NAME}: the disk is full: \d+ bytes needed, "):
            log.write(steps(2, 2)[0])
    assert read(tmp_path / NAME) == steps(1, 1)


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(FolderError) as caught:
        read(tmp_path / NAME)
    assert str(caught.value) == f"{tmp_path / NAME}:2: is not a JSON record. Remove the line."


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderError) as caught:
        read(tmp_path / NAME)
    assert str(caught.value) == f"{tmp_path / NAME}: cannot be read (No such file or directory)."


@pytest.mark.slow("waits a second")
def test_tensorboard_draws_the_numbers_and_a_resumed_run_draws_over(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with Log(tmp_path, tensorboard=True) as log:
        for record in [*steps(1, 6), {"kind": "validation", "step": 6, "loss": 0.25, "good": True}]:
            log.write(record)
        log.sync()
    time.sleep(1.1)  # TensorBoard names its files by the second
    with Log(tmp_path, tensorboard=True) as log:
        log.rewind(4)
        for record in steps(5, 8):
            log.write(record)
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"step/loss", "step/terms/masked", "validation/loss"}
    losses = [(event.step, event.value) for event in events.Scalars("step/loss")]
    assert losses == [(step, pytest.approx(1 / step)) for step in range(1, 9)]
    assert [event.step for event in events.Scalars("validation/loss")] == []


def test_without_tensorboard_the_log_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with Log(tmp_path, tensorboard=True) as log:
        for record in steps(1, 2):
            log.write(record)
        log.sync()
    assert read(tmp_path / NAME) == steps(1, 2)
    assert not (tmp_path / "tensorboard").exists()


def test_damaged_lines_are_left_out_and_said(tmp_path: Path) -> None:
    written(tmp_path, steps(1, 6))
    lines = (tmp_path / NAME).read_bytes().splitlines(keepends=True)
    (tmp_path / NAME).write_bytes(b"".join([*lines[:2], b'{"kind": "st\x00', *lines[3:]]))
    with Log(tmp_path, tensorboard=False) as log:
        assert log.rewind(6) == f"{tmp_path / NAME}: 1 damaged lines left out"
        assert log.rewind(6) == ""
        lost = "damaged, the records of 2 of 6 steps are lost. Only the curves lack them"
        assert log.rewind(6, every_step=True) == f"{tmp_path / NAME}: {lost}"


def test_one_damaged_number_does_not_cut_off_what_follows(tmp_path: Path) -> None:
    written(tmp_path, steps(1, 6))
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes().replace(b'"step": 3', b'"step": 93'))
    with Log(tmp_path, tensorboard=False) as log:
        assert "the records of 1 of 5 steps are lost" in log.rewind(5, every_step=True)
    assert [record["step"] for record in read(path)] == [1, 2, 4, 5]


def test_a_torn_last_line_is_no_damage(tmp_path: Path) -> None:
    written(tmp_path, steps(1, 3))
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"kind": "step", "st')
    with Log(tmp_path, tensorboard=False) as log:
        assert log.rewind(3, every_step=True) == ""
