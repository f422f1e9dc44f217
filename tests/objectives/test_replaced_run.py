"""Runs that learn by replaced tokens: stopped and gone on with, in micro-batches, and in compiled steps."""

from pathlib import Path

import pytest
import torch
from tiny import losses, prepared, weights

from bertsmith import config
from bertsmith.commands import pretrain
from bertsmith.recipe import Recipe
from bertsmith.train import log

pytestmark = pytest.mark.slow("trains")


def tiny(data: Path, out: Path, *changes: str) -> Recipe:
    shape = {"layers": 2, "width": 32, "embedding_width": 16, "heads": 2, "feed_forward": 64, "max_length": 32}
    values = {
        "out": str(out),
        "model": {"kind": "electra-small", **shape},
        "objective": {"kind": "replaced_tokens", "generator_size": 0.5},
        "data": {"folder": str(data), "max_length": 32, "batch_tokens": 512, "workers": 1},
        "optimizer": {"learning_rate": 0.003},
        "train": {"steps": 20, "precision": "float32", "evaluations": 2, "checkpoints": 5},
    }
    return config.build(config.override(values, changes), Recipe, "tiny.toml")


def test_micro_batches_of_a_run_and_muon_train_both_networks(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    changes = ["train.gradient_accumulation=2", "train.steps=3", "optimizer.hidden_optimizer=muon"]
    pretrain.pretrain(tiny(data, tmp_path / "run", *changes))
    steps = [line for line in log.read(tmp_path / "run" / log.NAME) if line["kind"] == "step"]
    assert [line["skipped"] for line in steps] == [0, 0, 0]
    assert all(line["terms"].keys() == {"masked", "replaced"} for line in steps)


def test_tables_of_both_networks_learn_in_pure_half_precision(tmp_path: Path) -> None:
    """Cast for a step, the shared tables must be float32 again after it."""
    data, seen = prepared(tmp_path), {}
    # It is slow on a processor that lacks bfloat16.
    few = ["train.steps=8", "data.max_length=16", "data.batch_tokens=128"]
    for precision in ("float32", "pure"):
        pretrain.pretrain(tiny(data, tmp_path / precision, *few, f"train.precision={precision}"))
        seen[precision] = [loss for _, loss in losses(tmp_path / precision)]
    assert seen["pure"] == pytest.approx(seen["float32"], rel=0.02)
    learnt = {name: weights(tmp_path / name)["trunk.embedding.weight"] for name in seen}
    assert learnt["pure"].dtype == torch.float32
    torch.testing.assert_close(learnt["pure"], learnt["float32"], rtol=0, atol=0.02)
