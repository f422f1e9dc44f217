"""Steps in pure half precision: one graph, and nearly the numbers of full precision."""

from pathlib import Path

import pytest
import scripts
import torch
from tiny import losses, prepared, recipe, weights

from bertsmith.commands import pretrain


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_step_is_one_graph() -> None:
    scripts.run(__file__, "pure.py", "without_a_device")


@pytest.mark.gpu
def test_a_compiled_step_has_the_losses_and_gradients_of_full_precision() -> None:
    scripts.run(__file__, "pure.py", "on_a_device")


@pytest.mark.slow
def test_a_run_learns_as_in_full_precision(tmp_path: Path) -> None:
    """The same batches, weights and dropout; what is rounded differs by a few parts in a thousand."""
    data, seen = prepared(tmp_path), {}
    few = [
        "train.steps=20",
        "data.max_length=16",
        "data.batch_tokens=128",
    ]  # it is slow on a processor that lacks bfloat16
    for precision in ("float32", "pure"):
        pretrain.pretrain(recipe(data, tmp_path / precision, *few, f"train.precision={precision}"))
        seen[precision] = [loss for _, loss in losses(tmp_path / precision)]
    assert seen["pure"][-1] < seen["pure"][0] - 0.5
    assert seen["pure"] == pytest.approx(seen["float32"], rel=0.02)
    assert seen["pure"] != seen["float32"]
    assert {weight.dtype for weight in weights(tmp_path / "pure").values()} == {torch.float32}
