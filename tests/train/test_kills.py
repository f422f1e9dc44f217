"""A killed run, started again by the same command, ends exactly as if it had never been killed.

Runs are started in processes forked from a server that has everything imported, so that many starts cost little; and
they are short, since what may break is how a run starts, saves and ends. `make torture` kills 200 times.
"""

import random
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import scripts
from tasks.small_images import save_folder, train_on_images
from tiny import assert_same, losses, prepared, recipe, train_in_a_child

from bertsmith.train import checkpoint

pytestmark = pytest.mark.slow("kills runs")

Start = Callable[[Path], BaseProcess]  # of a run that writes into this folder

SHAPE = ("train.checkpoints=8", "train.evaluations=3", "train.steps=24")


@pytest.fixture(scope="module")
def server() -> ForkServerContext:
    return scripts.server()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def start(server: ForkServerContext, data: Path) -> Start:
    """Pretraining on text."""

    def started(out: Path) -> BaseProcess:
        process = server.Process(target=train_in_a_child, args=(recipe(data, out, *SHAPE), out.parent / "output.txt"))
        process.start()
        return process

    return started


@pytest.fixture(scope="module")
def undisturbed(start: Start, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The run nobody disturbs, and how long it takes."""
    return _undisturbed(start, tmp_path_factory.mktemp("undisturbed"), assert_same)


def _undisturbed(start: Start, folder: Path, compare: Callable[[Path, Path], None]) -> tuple[Path, float]:
    _finish(start, folder / "first")  # so that the time is that of a warm start
    began = time.monotonic()
    _finish(start, folder / "run")
    compare(folder / "first", folder / "run")
    return folder / "run", time.monotonic() - began


def _finish(start: Start, out: Path) -> None:
    process = start(out)
    process.join(900)  # a machine may be busy with other things; what is promised here is not time
    assert process.exitcode == 0, (out.parent / "output.txt").read_text()


@pytest.mark.torture("A1", suite=8, whole=200)
def test_kills_at_random_moments_change_no_result(
    start: Start, undisturbed: tuple[Path, float], tmp_path: Path, times: int
) -> None:
    _kill(start, undisturbed, tmp_path, times, assert_same)


@pytest.mark.torture("A1", suite=3, whole=50)
def test_kills_of_training_on_images_change_no_result(server: ForkServerContext, tmp_path: Path, times: int) -> None:
    images = save_folder(tmp_path / "images", 48)

    def start(out: Path) -> BaseProcess:
        process = server.Process(target=train_on_images, args=(images, out, out.parent / "output.txt"))
        process.start()
        return process

    whole = _undisturbed(start, tmp_path, _same_model)
    _kill(start, whole, tmp_path, times, _same_model)


def _same_model(first: Path, second: Path) -> None:
    """Checkpoints of a finished fine-tuning are gone: its log and its model are compared."""
    assert losses(first / "seed-0") == losses(second / "seed-0")
    one, other = ((folder / "model" / "model.safetensors").read_bytes() for folder in (first, second))
    assert one == other


def _kill(
    start: Start, undisturbed: tuple[Path, float], tmp_path: Path, times: int, compare: Callable[[Path, Path], None]
) -> None:
    """Kill runs at random moments, and compare how each of them ends with the undisturbed one."""
    whole, duration = undisturbed
    chance = random.Random(2018)
    kills = runs = 0
    while kills < times:
        out = tmp_path / f"run-{runs}"
        runs += 1
        for _ in range(min(10, times - kills)):  # a run that is killed ten times is then left in peace
            process = start(out)
            process.join(chance.uniform(0.0, duration))
            process.kill()
            process.join()
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL, (out.parent / "output.txt").read_text()
            kills += 1
        _finish(start, out)
        compare(whole, out)


@pytest.mark.torture("A7", suite=6, whole=100)
def test_a_signal_costs_at_most_one_step(
    start: Start, undisturbed: tuple[Path, float], tmp_path: Path, times: int
) -> None:
    """SIGTERM, once or twice in a row: what was logged is saved, and the run ends as the undisturbed one."""
    whole, duration = undisturbed
    chance = random.Random(2019)
    asked = runs = 0
    while asked < times:
        out = tmp_path / f"run-{runs}"
        runs += 1
        while True:
            process = start(out)
            _wait_for_training(out, process)
            time.sleep(chance.uniform(0.0, duration / 8))
            for _ in range(chance.choice([1, 2])):
                process.terminate()
            process.join(60)
            if process.exitcode == 0:
                break
            said = (out.parent / "output.txt").read_text()
            early = process.exitcode == 4 and said.strip().splitlines()[-1].startswith(f"{out}: stopped before the fir")
            if early or process.exitcode == -signal.SIGTERM:  # before or after the loop there is nothing to save
                continue
            assert process.exitcode == 3, said
            asked += 1
            found = checkpoint.load_newest(out / "checkpoints")
            taken = losses(out)  # none where the signal came during the evaluation before the first step
            assert (taken[-1][0] if taken else 0) == (found[0].step if found else 0)  # every step is saved
            if asked >= times:
                break
        _finish(start, out)
        assert_same(whole, out)


def _wait_for_training(out: Path, process: BaseProcess) -> None:
    """Until this start has written to the log, or has ended."""
    path = out / "log.jsonl"
    began, before = time.monotonic(), path.stat().st_mtime_ns if path.exists() else 0
    while process.is_alive() and time.monotonic() - began < 30:
        if path.exists() and path.stat().st_mtime_ns != before:
            return
        time.sleep(0.005)
