"""Runs that learn by spans: stopped and gone on with, in micro-batches, and with a folder that writes at their end."""

from dataclasses import replace
from pathlib import Path

import pytest
import scripts
import torch
from tiny import prepared

from bertsmith import config
from bertsmith.commands import pretrain
from bertsmith.inference.load import load
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.hf import folder as folders
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.recipe import Recipe
from bertsmith.runs.warm_start import warm_start
from bertsmith.text.extend import extend
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import log

pytestmark = pytest.mark.slow("trains")


def test_in_half_precision_every_weight_has_its_gradient() -> None:
    scripts.run(__file__, "spans_graphs.py", "every_gradient_without_a_device")


@pytest.mark.gpu
def test_on_a_gpu_every_weight_has_its_gradient() -> None:
    """Tables of distances, too, whose gradient our own attention adds up over all sequences."""
    scripts.run(__file__, "spans_graphs.py", "every_gradient_on_a_device")


def tiny(data: Path, out: Path, *changes: str) -> Recipe:
    shape = {"layers": 2, "decoder_layers": 1, "width": 32, "heads": 2, "feed_forward": 64, "max_length": 32}
    values = {
        "out": str(out),
        "model": {"kind": "t5-base", **shape},
        "objective": {"kind": "span_corruption"},
        "data": {"folder": str(data), "max_length": 32, "batch_tokens": 512, "workers": 1, "cross_documents": True},
        "optimizer": {"learning_rate": 0.01},
        "train": {"steps": 12, "precision": "float32", "evaluations": 2, "checkpoints": 3},
    }
    return config.build(config.override(values, changes), Recipe, "tiny.toml")


def test_micro_batches_half_precision_and_muon_train_both_networks(tmp_path: Path) -> None:
    data = prepared(tmp_path, "t5")
    changes = [
        "train.gradient_accumulation=2",
        "train.steps=3",
        "optimizer.hidden_optimizer=muon",
        "train.precision=pure",
    ]
    changes += ["data.max_length=16", "data.batch_tokens=128"]  # it is slow on a processor that lacks bfloat16
    pretrain.pretrain(tiny(data, tmp_path / "run", *changes))
    steps = [line for line in log.read(tmp_path / "run" / log.NAME) if line["kind"] == "step"]
    assert [line["skipped"] for line in steps] == [0, 0, 0]
    assert all(line["terms"].keys() == {"spans", "sentinels"} for line in steps)


def test_its_folder_writes_and_its_reader_gives_vectors(tmp_path: Path) -> None:
    data = prepared(tmp_path, "t5")
    pretrain.pretrain(tiny(data, tmp_path / "run", "train.steps=2"))
    opened = folders.read(tmp_path / "run" / "model")
    assert opened.config_json["decoder_start_token_id"] == opened.config_json["pad_token_id"] == 0
    model = load(tmp_path / "run" / "model")
    one, other = model.generate(["some <extra_id_0> text"], max_new_tokens=5, samples=2)
    assert isinstance(one, str)
    assert isinstance(other, str)
    assert model.trunk.config.decoder_layers == 0
    saved = torch.equal(opened.state_dict["trunk.encoder.embedding.weight"], model.objective.trunk.embedding.weight)
    assert saved
    assert "text2text-generation" in (tmp_path / "run" / "model" / "README.md").read_text()
    assert "masked spans" in (tmp_path / "run" / "report.html").read_text()


def test_a_run_starts_from_a_folder_with_another_vocabulary(tmp_path: Path) -> None:
    """Every table of both networks has a row for each piece of the new vocabulary."""
    data, model = prepared(tmp_path, "t5"), tmp_path / "run" / "model"
    pretrain.pretrain(tiny(data, tmp_path / "run", "train.steps=2", "model.kind=t5-v1.1-base", "model.gated=true"))
    before = Tokenizer.load(model)
    after = extend(before, ["cats catsdogs catsdogs birdfish birdfish"] * 20, 3)
    assert after.vocabulary > before.vocabulary
    config = replace(folders.read(model).config, vocabulary=after.vocabulary)
    objective = SpanCorruption(EncoderDecoder(config), SpanCorruption.Config())
    warm_start(objective, model, after)
    old, new = folders.read(model).state_dict, objective.state_dict()
    for name in ("trunk.encoder.embedding.weight", "trunk.lm_head.weight"):
        assert torch.equal(new[name][: before.vocabulary], old[name][: before.vocabulary])
        parts = before.split_piece(after.piece(before.vocabulary))
        torch.testing.assert_close(new[name][before.vocabulary], old[name][parts].mean(0))
