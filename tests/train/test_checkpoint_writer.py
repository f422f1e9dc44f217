"""Checkpoints that are written while training goes on: nothing is waited for, lost, mixed up or forgotten."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from tiny import assert_same, losses, prepared, recipe

from bertsmith.commands import pretrain
from bertsmith.errors import RunError
from bertsmith.train import checkpoint
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.checkpoint_writer import CheckpointWriter, copied
from bertsmith.train.processes import Processes
from bertsmith.train.trainer import Trainer


@pytest.fixture
def writer(tmp_path: Path) -> CheckpointWriter:
    return CheckpointWriter(tmp_path / "checkpoints", keep=2)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Nothing is written before it is set."""
    opened, save = Event(), checkpoint.save

    def saving(*arguments: Any, **options: Any) -> Path:
        assert opened.wait(60)
        return save(*arguments, **options)

    monkeypatch.setattr(checkpoint, "save", saving)
    return opened


def made(step: int) -> Checkpoint:
    return Checkpoint(step, {"model": {"weight": torch.full((5,), float(step))}}, {"position": step})


def found(folder: Path) -> Checkpoint:
    newest = checkpoint.load_newest(folder)
    assert newest is not None
    return newest[0]


def test_training_changes_no_checkpoint_that_is_being_written(writer: CheckpointWriter, gate: Event) -> None:
    saved = made(1)
    writer.save(saved)
    saved.tensors["model"]["weight"].zero_()
    assert checkpoint.load_newest(writer.folder) is None
    gate.set()
    writer.wait()
    assert found(writer.folder).tensors["model"]["weight"].tolist() == [1.0] * 5


def test_the_time_is_told_that_a_checkpoint_took_until_it_was_on_the_disk(tmp_path: Path, gate: Event) -> None:
    told = list[float]()
    writer = CheckpointWriter(tmp_path, keep=1, tell_seconds=told.append)
    writer.save(made(1))
    assert not told
    gate.set()
    writer.wait()
    assert len(told) == 1
    assert told[0] > 0


def test_a_save_waits_for_the_one_before(
    writer: CheckpointWriter, gate: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, before = writer.wait, list[bool]()

    def waiting() -> None:
        gate.set()
        wait()
        before.append((writer.folder / "step-000000001").exists())

    monkeypatch.setattr(writer, "wait", waiting)
    for step in (1, 2):
        writer.save(made(step))
    assert before == [False, True]
    wait()
    assert found(writer.folder).step == 2


def full(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that has no room for the checkpoint of this number, and the log has always been written."""
    save, calls = checkpoint.save, iter(range(1, 100))

    def saving(*arguments: Any, **options: Any) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            if next(calls) == number:
                patch.setattr(os, "write", refuse)
            return save(*arguments, **options)

    def refuse(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "save", saving)


def test_a_checkpoint_that_cannot_be_written_is_one_line(
    writer: CheckpointWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(2, monkeypatch)
    for step in (1, 2):
        writer.save(made(step))
    line = rf"{writer.folder}/step-000000002: the disk is full: 20 bytes needed, [\d,]+ free\. Free space and run the"
    with pytest.raises(RunError, match=line):
        writer.wait()
    assert not writer.failed
    assert found(writer.folder).step == 1
    writer.save(made(3))
    writer.wait()
    assert found(writer.folder).step == 3
    assert sorted(path.name for path in writer.folder.iterdir()) == ["step-000000001", "step-000000003"]


def test_an_error_of_the_run_is_not_hidden_by_that_of_a_checkpoint(
    writer: CheckpointWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(1, monkeypatch)
    writer.save(made(1))
    with pytest.raises(ZeroDivisionError), writer:
        raise ZeroDivisionError
    with pytest.raises(RunError, match="the disk is full"), writer:
        pass


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_processes_write_every_tensor_once_and_about_as_much_each(size: int) -> None:
    tensors = {f"layer {number}": torch.rand(10 + number % 3) for number in range(40)}
    whole = Checkpoint(1, {"model": tensors, "optimizer": tensors, "average": {}}, {})
    parts = [copied(whole, Processes(rank, size)).tensors for rank in range(size)]
    names = [(table, name) for part in parts for table, found in part.items() for name in found]
    assert names == [(table, name) for table in ("model", "optimizer") for name in tensors]
    written = [sum(one.nbytes for found in part.values() for one in found.values()) for part in parts]
    assert max(written) - min(written) <= 2 * 12 * 4


def one(data: Path, out: Path) -> Any:
    return recipe(data, out, "train.steps=12", "train.checkpoints=4", "train.evaluations=1")


@pytest.mark.slow
def test_a_disk_that_fills_during_a_run_stops_it_at_the_next_step_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = prepared(tmp_path)
    pretrain.pretrain(one(data, tmp_path / "whole"))
    update = Trainer.update

    def after_the_writer(self: Trainer, *arguments: Any) -> None:
        update(self, *arguments)
        self.writer._join()  # so that the step at which it fails is not left to chance

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", after_the_writer)
        full(2, patch)
        with pytest.raises(RunError, match="step-000000006: the disk is full: "):
            pretrain.pretrain(one(data, tmp_path / "run"))
    assert found(tmp_path / "run" / "checkpoints").step == 3
    assert losses(tmp_path / "run")[-1][0] <= 7
    pretrain.pretrain(one(data, tmp_path / "run"))
    assert_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
def test_a_run_that_fails_finishes_the_checkpoint_that_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, update = prepared(tmp_path), Trainer.update
    finish: Callable[..., Any] = checkpoint._finish
    failed = Event()

    def failing(self: Trainer, *arguments: Any) -> None:
        if self.state.step == 3:
            failed.set()
            raise ZeroDivisionError
        update(self, *arguments)

    def late(*arguments: Any) -> None:
        assert failed.wait(60)
        finish(*arguments)

    monkeypatch.setattr(Trainer, "update", failing)
    monkeypatch.setattr(checkpoint, "_finish", late)
    with pytest.raises(ZeroDivisionError):
        pretrain.pretrain(one(data, tmp_path / "run"))
    assert found(tmp_path / "run" / "checkpoints").step == 3
