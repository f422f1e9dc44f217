"""Pretraining on images: a folder without labels becomes a model folder; a killed run resumes; refusals in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data.images.gratings import write_gratings
from tiny import assert_same
from typer.testing import CliRunner

import bertsmith
from bertsmith.cli.application import app
from bertsmith.commands import pretrain, pretrain_images
from bertsmith.errors import BertsmithError
from bertsmith.inference.reconstruction import reconstruct_by_folder
from bertsmith.models.hf import vision_folder
from bertsmith.runs import image_pretraining
from bertsmith.runs.next_commands import next_commands
from bertsmith.runs.verdict import pixel_verdict
from bertsmith.train import log
from bertsmith.train.trainer import Trainer

SMALL = [
    "model.width=16",
    "model.feed_forward=32",
    "objective.decoder_width=16",
    "objective.decoder_feed_forward=32",
    "data.batch_size=8",
]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 small images, some in a folder of their own, and a file that is none."""
    folder = write_gratings(tmp_path_factory.mktemp("gratings"), 40)
    (folder / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight steps by the command line, with validations and checkpoints."""
    out = tmp_path_factory.mktemp("run") / "mae"
    arguments = ["pretrain", "tiny/mae", str(images), *SMALL, "--out", str(out), "--steps", "8"]
    done = CliRunner().invoke(app, [*arguments, "train.checkpoints=4"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out


def test_images_become_a_model_folder_and_a_report(run: Path) -> None:
    opened = vision_folder.read(run / "model")
    shape = opened.config
    assert (shape.image_size, shape.patch_size, shape.channels, shape.positions) == (16, 4, 3, "sinusoidal")
    assert opened.parts == {"decoder"}
    assert (opened.config_json["mask_ratio"], opened.config_json["norm_pix_loss"]) == (0.75, True)
    page = (run / "report.html").read_text()
    assert page.count("data:image/png") == 4 * 3  # a tenth of the images is held out
    assert "1 image" not in page
    assert "broken.png" in page
    steps = [line for line in log.read(run / log.NAME) if line["kind"] == "step"]
    assert steps[0]["tokens"] == 8 * 17
    checked = [line for line in log.read(run / log.NAME) if line["kind"] == "validation"]
    assert checked[-1]["loss"] == checked[-1]["pixels_loss"] > 0
    assert "pixels_accuracy" not in checked[-1]
    assert "has learnt to complete images" in (run / "model" / "README.md").read_text()
    (_, tune), (_, opening) = next_commands(run, use="masked_autoencoder", examples=())
    assert tune == f"bertsmith finetune {run / 'model'} IMAGES --out {run}-tuned"
    assert "ViTMAEForPreTraining" in opening


def test_a_killed_run_resumes_with_the_same_bits(run: Path, images: Path, tmp_path: Path) -> None:
    recipe = pretrain_images.read_recipe("tiny/mae", images, tmp_path / "mae", [*SMALL, "train.steps=8"])
    update = Trainer.update

    def failing(self: Trainer, *arguments: Any) -> None:
        if self.state.step == 5:
            raise RuntimeError("the plug was pulled")
        update(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "update", failing)
        with pytest.raises(RuntimeError, match="plug"):
            pretrain_images.pretrain(recipe)
    assert not (tmp_path / "mae" / "model").exists()
    pretrain_images.pretrain(recipe)
    assert_same(run, tmp_path / "mae")


def test_a_classifier_starts_from_the_encoder(run: Path, tmp_path: Path) -> None:
    classes = tmp_path / "classes"
    for number, name in enumerate("ab"):
        write_gratings(classes / name, 6 + number)
    arguments = ["finetune", str(run / "model"), str(classes), "--out", str(tmp_path / "tuned"), "--steps", "1"]
    done = CliRunner().invoke(app, [*arguments, "optimizer.learning_rate=1e-9"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    before, after = vision_folder.read(run / "model"), vision_folder.read(tmp_path / "tuned" / "model")
    assert (after.config_json["model_type"], after.labels) == ("vit", ("a", "b"))
    for name in ("trunk.embedding.positions", "trunk.layers.1.attention.qkv.weight"):
        torch.testing.assert_close(after.state_dict[name], before.state_dict[name], atol=1e-6, rtol=0)


def test_images_of_many_sizes_are_read_as_they_are(tmp_path: Path) -> None:
    for side in (12, 16, 20):
        write_gratings(tmp_path / "images" / str(side), 8, side)
    changes = [*SMALL, "data.fit=keep", "train.steps=2", "data.size=16", "train.evaluations=0"]
    recipe = pretrain_images.read_recipe("tiny/mae", tmp_path / "images", tmp_path / "out", changes)
    figures = pretrain_images.pretrain(recipe)
    assert 0 < figures["loss"] < 2
    assert json.loads((tmp_path / "out" / "model" / "preprocessor_config.json").read_text())["do_resize"] is False


@pytest.mark.parametrize("size", [(16, 16), (24, 12)])
def test_a_reconstruction_keeps_what_is_seen(run: Path, size: tuple[int, int]) -> None:
    image = torch.randint(0, 256, (3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    first, second = reconstruct_by_folder(vision_folder.read(run / "model"), [image, image[:, :8, :8]], seed=3)
    assert np.array_equal(first.original, image.numpy())
    grey = (first.masked == 128).all(0)
    assert grey.mean() == pytest.approx(0.75, abs=0.03)
    assert np.array_equal(first.reconstructed[:, ~grey], first.original[:, ~grey])
    assert not np.array_equal(first.reconstructed[:, grey], first.original[:, grey])
    assert second.original.shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["mae-small", None], r"mae-small: names no images. Give their folder: bertsmith pretrain mae-small IMAGES"),
        (["mae-small", "nowhere"], r"nowhere: does not exist. Name a folder of images"),
        (["mae-small", "empty"], r"empty: holds no image that can be opened. Give a folder with images in it"),
        (["mae-small", "two"], r"two: holds 2 images. Give at least 4, better some thousands"),
        (["mae-small", "two", "model.kind=vit-small"], r"'vit-small' learns its positions, and a masked autoencoder"),
        (["mae-small", "two", "data.channels=1", "model.channels=3"], r"data.channels is 1, and the network reads 3"),
        (["mae-small", "two", "objective.mask_rate=1"], r"mask_rate is 1.0. Give a share above 0 and below 1"),
        (["mae-small", "two", "train.patience=2"], r"waits for a better validation loss. Set keep=best with it"),
        (["mae-small", "two", "data.workers=-1"], r"workers is -1. Give 0 \(batches are made when they are needed\)"),
        (["mae-small", "two", "data=3"], r"'data' is a value, not a section. Write data.key=value"),
        (["mae-small", "two", "model.kind=mae-smal"], r"unknown kind 'mae-smal'. Did you mean 'mae-small'"),
    ],
)
def test_a_mistake_is_one_line(given: list[Any], message: str, tmp_path: Path) -> None:
    recipe, name, *changes = given
    write_gratings(tmp_path / "two", 2)
    (tmp_path / "empty").mkdir()
    folder = None if name is None else tmp_path / name
    with pytest.raises(BertsmithError, match=message):
        pretrain_images.pretrain(pretrain_images.read_recipe(recipe, folder, tmp_path / "out", changes))
    assert not (tmp_path / "out" / "recipe.toml").exists()


def test_a_decoder_of_impossible_sizes_is_refused(images: Path, tmp_path: Path) -> None:
    changes = [*SMALL, "objective.decoder_heads=3", "train.steps=1"]
    recipe = pretrain_images.read_recipe("tiny/mae", images, tmp_path / "out", changes)
    with pytest.raises(BertsmithError, match=r"objective: the decoder: a width of 16 cannot be shared by 3 heads"):
        pretrain_images.pretrain(recipe)


@pytest.mark.slow("trains")
def test_python_pretrains_on_images_within_a_time(images: Path, tmp_path: Path) -> None:
    run = bertsmith.pretrain("tiny/mae", images, tmp_path / "out", budget="1s", overrides=SMALL)
    assert run.scores["loss"] == run.scores["pixels_loss"] > 0
    assert (tmp_path / "out" / "report.html").exists()
    recipe = pretrain_images.read_recipe("tiny/mae", images, tmp_path / "out", [*SMALL, "train.budget=1s"])
    assert bertsmith.pretrain(recipe).scores == run.scores  # it is done already
    with pytest.raises(BertsmithError, match=r"an ImagePretraining takes no options. Change it"):
        bertsmith.pretrain(recipe, out=tmp_path / "other")


def test_the_verdict_compares_with_the_mean_of_each_patch() -> None:
    assert pixel_verdict(0.7, 1.0) == (
        "The model has learnt: its validation loss is 30% below that of predicting the mean of each patch."
    )
    for loss in (0.99, 1.2, float("nan")):
        assert pixel_verdict(loss, 1.0).startswith("The model has not learnt yet: it predicts no better than the mean")


def test_the_baseline_is_the_loss_of_the_mean_of_each_patch(images: Path, tmp_path: Path) -> None:
    changes = [*SMALL, "train.steps=1", "objective.normalise_pixels=false"]
    recipe = pretrain_images.read_recipe("tiny/mae", images, tmp_path / "out", changes)
    found = image_pretraining.read(recipe)
    objective = image_pretraining.objective(recipe, found)
    batches = image_pretraining.validation_batches(recipe, objective, found)
    loss = image_pretraining.baseline(objective, batches)
    with torch.no_grad():
        prepared = [objective.prepare(batch, torch.device("cpu")) for batch in batches]
    pixels = torch.cat([one.patches.pixels[one.masking.masked] for one in prepared])
    assert loss == pytest.approx(float(pixels.var(1, correction=0).mean()), rel=1e-5)
    assert [batch.draws for batch in batches] == [None] * len(batches)


def test_a_recipe_for_images_is_none_for_text(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match=r"is a recipe for images. Use: bertsmith pretrain mae-small IMAGES --out"):
        pretrain.read_recipe("mae-small", [])


def test_another_folder_of_images_is_refused_for_a_run_that_goes_on(run: Path, tmp_path: Path) -> None:
    write_gratings(tmp_path / "other", 20)
    recipe = pretrain_images.read_recipe("tiny/mae", tmp_path / "other", run, [*SMALL, "train.steps=9"])
    with pytest.raises(BertsmithError, match=r"was begun with other data. Choose another folder"):
        pretrain_images.pretrain(recipe)
    assert json.loads((run / "model" / "config.json").read_text())["model_type"] == "vit_mae"
