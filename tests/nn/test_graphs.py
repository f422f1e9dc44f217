"""What a compiled step does in its own way, it does right: scripts in processes where no shapes are checked."""

import subprocess
import sys
from pathlib import Path

import pytest


def run(script: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("graphs.py")), script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_dropout_fits_into_one_graph() -> None:
    run("without_a_device")


@pytest.mark.gpu
@pytest.mark.parametrize("script", ["forgetting", "a_head", "attention"])
def test_on_a_gpu_they_are_what_they_are_elsewhere(script: str) -> None:
    run(script)
