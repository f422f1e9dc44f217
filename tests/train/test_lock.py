"""Two runs cannot share a folder, and a killed run leaves it free."""

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bertsmith.errors import RunError
from bertsmith.train.lock import Lock

# Tries to take the lock at each given moment, and prints the outcome.
RUNNER = """
import os, sys, time
from pathlib import Path
from bertsmith.errors import RunError
from bertsmith.train.lock import Lock

for line in sys.stdin:
    start = float(line)
    while time.monotonic() < start:
        pass
    try:
        with Lock(Path(sys.argv[1])):
            print("won", flush=True)
            sys.stdin.readline()
        print("released", flush=True)
    except RunError as error:
        print(time.monotonic() - start, error, flush=True)
        sys.stdin.readline()
        print("released", flush=True)
"""

# Takes the lock, forks a worker, says so, and stays.
PARENT = """
import os, sys, time
from pathlib import Path
from bertsmith.train.lock import Lock

heard, said = os.pipe()
with Lock(Path(sys.argv[1])):
    worker = os.fork()
    if worker:
        os.read(heard, 1)
        print(worker, flush=True)
    else:
        os.write(said, b"x")  # it is up, and has let go of what it was born with
    time.sleep(60)
"""


@contextmanager
def process(code: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", code, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        try:
            yield child
        finally:
            child.kill()


def tell(child: "subprocess.Popen[str]", line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def heard(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_a_folder_is_locked_and_released(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mine"
    with Lock(folder):
        assert (folder / ".lock").read_text() == str(os.getpid())
        with pytest.raises(RunError) as caught, Lock(folder):
            pass
        assert str(caught.value) == (
            f"{folder}: another run (process {os.getpid()}) is using it. "
            "Wait for it, stop it, or choose another folder."
        )
    with Lock(folder):
        pass


def test_the_process_id_of_a_killed_run_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("99999999999")
    with Lock(tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
    assert (tmp_path / ".lock").read_text() == ""


def test_a_lock_is_released_when_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Lock(tmp_path):
        raise ZeroDivisionError
    with Lock(tmp_path):
        pass


def test_of_two_runs_that_start_together_exactly_one_is_refused(tmp_path: Path) -> None:
    winners = set()
    with process(RUNNER, tmp_path) as one, process(RUNNER, tmp_path) as other:
        for _ in range(100):
            start = time.monotonic() + 0.002
            for child in (one, other):
                tell(child, str(start))
            answers = {child: heard(child) for child in (one, other)}
            winner, loser = (one, other) if answers[one] == "won" else (other, one)
            assert answers[winner] == "won"
            seconds, message = answers[loser].split(" ", 1)
            assert re.match(rf"{tmp_path}: another run (\(process {winner.pid}\) )?is using it\.", message)
            winners.add(winner.pid)
            for child in (one, other):
                tell(child, "release")
            assert [heard(child) for child in (one, other)] == ["released", "released"]
            assert float(seconds) < 1
    assert len(winners) == 2  # or it was no race


def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    for _ in range(3):
        with process(PARENT, tmp_path) as child:
            worker = int(heard(child))
            with pytest.raises(RunError, match=rf"process {child.pid}\) is using it"), Lock(tmp_path):
                pass
            child.send_signal(signal.SIGKILL)
            child.wait()
            os.kill(worker, 0)  # the worker still lives, and holds nothing
            with Lock(tmp_path):
                pass
            os.kill(worker, signal.SIGKILL)


def test_a_disk_without_locks_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(RunError) as caught, Lock(tmp_path):
        pass
    assert str(caught.value) == f"{tmp_path}: cannot be locked (No locks available). Choose a folder on a local disk."


def test_a_folder_that_cannot_be_written_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RunError, match="the disk is read-only"), Lock(tmp_path):
        pass
