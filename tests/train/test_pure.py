"""Steps in pure half precision: one graph, and nearly the numbers of full precision."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny import losses, prepared, recipe, weights

from bertsmith import run


def script(name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(__file__).with_name("pure.py")), name]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_step_is_one_graph() -> None:
    done = script("without_a_device")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.gpu
def test_a_compiled_step_has_the_losses_and_gradients_of_full_precision() -> None:
    done = script("on_a_device")
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_run_learns_as_in_full_precision(tmp_path: Path) -> None:
    """The same batches, weights and dropout; what is rounded differs by a few parts in a thousand."""
    data, seen = prepared(tmp_path), {}
    for precision in ("float32", "pure"):
        run.pretrain(recipe(data, tmp_path / precision, "train.steps=40", f"train.precision={precision}"))
        seen[precision] = [loss for _, loss in losses(tmp_path / precision)]
    assert seen["pure"] == pytest.approx(seen["float32"], rel=0.02)
    assert seen["pure"] != seen["float32"]
    assert {weight.dtype for weight in weights(tmp_path / "pure").values()} == {torch.float32}
