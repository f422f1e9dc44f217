"""`bertsmith finetune` on images: what it writes, how it goes on, and what it refuses."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks.small_images import SETTINGS, pixels, save_folder

import bertsmith
from bertsmith.data.images.png import data_uri, encode
from bertsmith.errors import BertsmithError
from bertsmith.models.hf import image_classifiers
from bertsmith.runs import image_recipe
from bertsmith.train import log
from bertsmith.train.step import Step

QUICK = [
    "train.evaluations=2",
    "train.checkpoints=0",
    "train.compile=never",
    "train.precision=float32",
    "data.batch_size=8",
    "optimizer.learning_rate=5e-3",
]
PLAIN = [f"augmentation.{name}" for name in ("padding=0", "flip=false", "operations=0", "erasing=0.0")]
SMALL = [*SETTINGS, *QUICK, *PLAIN, "train.epochs=12"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(tmp_path_factory.mktemp("images"), 48)


@pytest.fixture(scope="module")
def trained(images: Path, tmp_path_factory: pytest.TempPathFactory) -> bertsmith.Run:
    out = tmp_path_factory.mktemp("vit") / "run"
    return bertsmith.finetune("vit-tiny", images, out, dev=images, overrides=SMALL)


@pytest.fixture(scope="module")
def convnet(images: Path, tmp_path_factory: pytest.TempPathFactory) -> bertsmith.Run:
    overrides = [*QUICK, *PLAIN, "network.width=16", "train.epochs=4"]
    out = tmp_path_factory.mktemp("convnet") / "run"
    return bertsmith.finetune("convnet-small", images, out, dev=images, overrides=overrides)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return image_classifiers.read(run).state_dict


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(BertsmithError) as caught:
        bertsmith.finetune(*arguments, **options)
    return str(caught.value)


def test_a_vision_transformer_learns_and_leaves_model_scores_and_report(trained: bertsmith.Run) -> None:
    assert trained.scores["accuracy"] > 0.7
    assert trained.result["protocol"]["examples"] == {"train": 48, "dev": 48}
    page = trained.report.read_text(encoding="utf-8")
    assert "Confusion matrix" in page
    assert "Calibration" in page
    card = (trained.folder / "model" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: image-classification" in card
    found = image_classifiers.read(trained.folder)
    assert found.labels == ("bright", "dark", "middling")
    assert found.processor.resize == (8, 8)
    kept = json.loads((trained.folder / "model" / "config.json").read_text())["bertsmith"]["trained_on"]
    assert kept["kind"] == "images"
    assert kept["counts"] == {"bright": 16, "dark": 16, "middling": 16}


def test_mistakes_are_shown_as_images(images: Path, tmp_path: Path) -> None:
    run = bertsmith.finetune("vit-tiny", images, tmp_path / "run", steps=1, overrides=[*SETTINGS, *QUICK])
    mistake = run.result["details"]["mistakes"][0]
    number = int(Path(mistake["location"]).stem)
    assert mistake["image"] == data_uri(pixels(48)[number].numpy())
    assert mistake["image"] in run.report.read_text(encoding="utf-8")


def test_a_folder_goes_on_at_another_resolution(trained: bertsmith.Run, images: Path, tmp_path: Path) -> None:
    run = bertsmith.finetune(
        trained,
        images,
        tmp_path / "run",
        dev=images,
        steps=1,
        overrides=[*QUICK, "data.size=16", "data.resample=bilinear"],
    )
    assert run.result["untrained"]["accuracy"] > 0.7  # the classifier is kept, and positions are interpolated
    found = image_classifiers.read(run.folder)
    assert found.config.image_size == 16
    assert found.processor.resample == "bilinear"
    assert found.state_dict["trunk.embedding.positions"].shape == (1 + 16, 16)


def test_a_linear_probe_leaves_the_network_as_it_is(trained: bertsmith.Run, images: Path, tmp_path: Path) -> None:
    overrides = [*QUICK, "task.linear_probe=true"]
    run = bertsmith.finetune(trained, images, tmp_path / "run", steps=2, overrides=overrides)
    before, after = weights(trained.folder), weights(run.folder)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"classifier.dense.weight", "classifier.dense.bias"}
    assert "linear_probe" in refusal("vit-tiny", images, tmp_path / "other", overrides=["task.linear_probe=true"])


def test_images_of_several_sizes_keep_them(trained: bertsmith.Run, tmp_path: Path) -> None:
    mixed = save_folder(tmp_path / "mixed", 12)
    for number, size in enumerate([(12, 8), (8, 16)]):
        (mixed / "dark" / f"extra {number}.png").write_bytes(encode(pixels(2, *size)[1].numpy()))
    run = bertsmith.finetune(trained, mixed, tmp_path / "run", steps=2, overrides=[*QUICK, "data.fit=keep"])
    found = image_classifiers.read(run.folder)
    assert found.processor.resize is None
    assert found.config.image_size == 8


@pytest.mark.slow("trains")
@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("distillation", ["hard", "soft"])
def test_a_deit_learns_from_a_convolutional_teacher(
    convnet: bertsmith.Run, images: Path, tmp_path: Path, distillation: str
) -> None:
    assert convnet.scores["accuracy"] > 0.7
    overrides = [*SMALL, f"task.distillation={distillation}", "train.epochs=8"]
    run = bertsmith.finetune("deit-tiny", images, tmp_path / "run", teacher=convnet.folder, overrides=overrides)
    terms = [entry["terms"] for entry in log.read(run.folder / "seed-0" / log.NAME) if entry["kind"] == "step"]
    assert terms[-1]["teacher"] < terms[0]["teacher"]
    found = image_classifiers.read(run.folder)
    assert "distillation_classifier.dense.weight" in found.state_dict
    config = json.loads((run.folder / "model" / "config.json").read_text())
    assert config["architectures"] == ["DeiTForImageClassificationWithTeacher"]
    again = bertsmith.finetune(run, images, tmp_path / "again", steps=1, dev=images, overrides=QUICK)  # of its own
    assert "distillation_classifier.dense.weight" in weights(again.folder)


def test_a_convolutional_network_is_a_folder_of_our_own(convnet: bertsmith.Run, tmp_path: Path) -> None:
    found = image_classifiers.read(convnet.folder)
    assert (found.labels, found.config.channels) == (("bright", "dark", "middling"), 3)
    config = convnet.folder / "model" / "config.json"
    keys = json.loads(config.read_text())
    assert (keys["model_type"], keys["network"]) == ("bertsmith", "convnet")
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("model.safetensors", "preprocessor_config.json"):
        (broken / name).write_bytes((config.parent / name).read_bytes())
    for change, message in (
        ({"width": 32}, "'classifier.dense.weight' has shape"),
        ({"width": 17}, "Give at least one channel, and a width that is a multiple of 16"),
        ({"width": "wide"}, "Give whole numbers up to 16384"),
    ):
        (broken / "config.json").write_text(json.dumps(keys | change))
        with pytest.raises(BertsmithError, match=message):
            image_classifiers.read(broken)


@pytest.mark.exhaustive
def test_a_stopped_run_ends_as_if_it_had_not_been(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = [*SETTINGS, *QUICK, "train.checkpoints=12", "task.mixup=0.8", "augmentation.operations=1"]
    options: dict[str, Any] = {"steps": 12, "overrides": [*overrides, "train.average=0.5", "train.seed=3"]}
    whole = bertsmith.finetune("vit-tiny", images, tmp_path / "whole", **options)
    chance, before = random.Random(30), Step.__call__
    for _ in range(3):
        last = chance.randrange(1, 12)

        def stops(step: Step, batches: Any, number: int, factor: float, last: int = last) -> Any:
            if number >= last:
                raise OSError("the power is gone")
            return before(step, batches, number, factor)

        monkeypatch.setattr(Step, "__call__", stops)
        with pytest.raises(OSError, match="the power is gone"):
            bertsmith.finetune("vit-tiny", images, tmp_path / "stopped", **options)
    monkeypatch.setattr(Step, "__call__", before)
    again = bertsmith.finetune("vit-tiny", images, tmp_path / "stopped", **options)
    assert again.scores == whole.scores
    expected = weights(whole.folder)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(again.folder).items())
    assert "was begun with another recipe" in refusal(
        "vit-tiny", images, tmp_path / "stopped", steps=13, overrides=options["overrides"]
    )


def test_several_seeds_give_an_interval(images: Path, tmp_path: Path) -> None:
    run = bertsmith.finetune("vit-tiny", images, tmp_path / "run", steps=1, seeds=2, overrides=[*SETTINGS, *QUICK])
    assert len(run.result["runs"]) == 2
    assert run.result["summary"]["accuracy"]["low"] is not None


def test_other_images_in_the_same_folder_are_refused_and_moved_ones_are_not(
    trained: bertsmith.Run, images: Path, tmp_path: Path
) -> None:
    out, moved = shutil.copytree(trained.folder, tmp_path / "run"), shutil.copytree(images, tmp_path / "moved")
    again = bertsmith.finetune("vit-tiny", moved, out, dev=moved, overrides=SMALL)
    assert again.result["runs"] == trained.result["runs"]
    next((moved / "dark").iterdir()).unlink()
    said = refusal("vit-tiny", moved, out, dev=moved, overrides=SMALL)
    assert said == f"{out}: was begun with other data. Choose another folder, or give it the same data."


def test_bad_images_are_counted_and_named(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_folder(tmp_path / "images", 12)
    (folder / "dark" / "broken.png").write_bytes((folder / "dark" / "1.png").read_bytes()[:60])
    run = bertsmith.finetune("vit-tiny", folder, tmp_path / "run", steps=1, overrides=[*SETTINGS, *QUICK])
    line = next(line for line in run.result["protocol"]["data"] if "left out" in line)
    assert "1 images that cannot be decoded" in line
    assert "broken.png" in line
    fail = [*SETTINGS, *QUICK, "data.on_bad_image=fail"]
    message = refusal("vit-tiny", folder, tmp_path / "fails", steps=1, overrides=fail)
    assert "broken.png: cannot be decoded" in message
    assert not (tmp_path / "fails" / "recipe.toml").exists()


def test_a_test_part_and_a_table_are_read(images: Path, tmp_path: Path) -> None:
    save_folder(tmp_path / "parts" / "train", 12)
    save_folder(tmp_path / "parts" / "test", 6, seed=1)
    run = bertsmith.finetune("vit-tiny", tmp_path / "parts", tmp_path / "run", steps=1, overrides=[*SETTINGS, *QUICK])
    assert run.result["protocol"]["examples"] == {"train": 12, "dev": 6}
    rows = [f"{path.relative_to(images)},{path.parent.name}" for path in sorted(images.rglob("*.png"))]
    table = images / "table.csv"
    table.write_text("\n".join(["file,label", *rows]) + "\n")
    run = bertsmith.finetune("vit-tiny", table, tmp_path / "table", steps=1, overrides=[*SETTINGS, *QUICK])
    assert run.result["protocol"]["examples"] == {"train": 44, "dev": 4}
    assert "held out, stratified by class" in run.result["protocol"]["measured_on"]


def test_grey_images_are_read_as_grey_ones(tmp_path: Path) -> None:
    grey = save_folder(tmp_path / "grey", 12, channels=1)
    run = bertsmith.finetune("vit-tiny", grey, tmp_path / "run", steps=1, overrides=[*SETTINGS, *QUICK])
    found = image_classifiers.read(run.folder)
    assert (found.config.channels, len(found.processor.mean)) == (1, 1)
    recipe = (run.folder / "recipe.toml").read_text()
    assert "flip = false" in recipe


def test_what_does_not_fit_is_refused_in_a_line(
    trained: bertsmith.Run, convnet: bertsmith.Run, images: Path, tmp_path: Path
) -> None:
    reviews = tmp_path / "reviews.csv"
    reviews.write_text("text,label\ngood,1\nbad,0\n")
    out = tmp_path / "run"
    assert "reviews.csv: holds no images, which 'vit-tiny' reads. Give" in refusal("vit-tiny", reviews, out)
    assert "holds images, and 'transformer-small' reads text. Use" in refusal("transformer-small", images, out)
    assert "task: 'ner' is for text" in refusal("vit-tiny", images, out, task="ner")
    assert "does not exist" in refusal("vit-tiny", tmp_path / "nowhere", out)
    one = save_folder(tmp_path / "one", 2)
    (one / "bright").rename(tmp_path / "bright")
    assert "holds images of one class only, 'dark'" in refusal("vit-tiny", one, out, overrides=["data.dev=" + str(one)])
    wrong = [*SETTINGS, *QUICK, "network.channels=1"]
    assert "data.channels: is 3, and the network reads 1" in refusal("vit-tiny", images, out, steps=1, overrides=wrong)
    assert "Set data.fit=stretch, or mixup=0" in refusal(
        "vit-tiny", images, out, overrides=["data.fit=keep", "task.mixup=0.5"]
    )
    (tmp_path / "bright").rename(one / "cat")
    assert "knows 3 classes ('bright', 'dark', 'middling'), and the images are of 2 classes ('cat', 'dark')" in refusal(
        "vit-tiny", one, out, teacher=convnet.folder, overrides=[*SETTINGS, *QUICK, f"data.dev={one}"]
    )
    assert not (out / "recipe.toml").exists() or not (out / "seed-0" / "log.jsonl").exists()


def test_members_are_listed() -> None:
    assert "vit-small" in bertsmith.models("vit-*")
    assert "convnet-small" in bertsmith.models("convnet-*")


@pytest.mark.parametrize(("count", "size"), [(24, 8), (200, 16)])
def test_few_images_are_learnt_in_smaller_batches(count: int, size: int, tmp_path: Path) -> None:
    images = save_folder(tmp_path / "images", count)
    recipe = image_recipe.build_recipe(Path("vit-tiny"), images, tmp_path / "out", dev=None, seeds=1, overrides=[])
    assert recipe.data.batch_size == size
