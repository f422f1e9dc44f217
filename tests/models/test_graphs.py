"""The forward pass is one graph: nothing in it looks into a tensor on the way."""

import subprocess
import sys
from pathlib import Path

import pytest


def run(script: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("graphs.py")), script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_equal_and_ragged_rows_compile_as_one_graph() -> None:
    run("without_a_device")


@pytest.mark.gpu
def test_ragged_rows_compile_as_one_graph_that_never_waits() -> None:
    run("ragged_rows_by_autocast")


@pytest.mark.gpu
def test_ragged_rows_train_as_one_graph_with_dropout_by_seed() -> None:
    run("ragged_rows_in_training")
