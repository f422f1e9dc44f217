"""Folders, tables and settings of images as people have them: which part is read, in which size, and who wins."""

import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tasks.small_images import SETTINGS, pixels, save_folder, task

import bertsmith
from bertsmith.commands import evaluate_images, images, race_images
from bertsmith.commands.evaluate import evaluate_file
from bertsmith.commands.finetune import run as finetune
from bertsmith.commands.race import Rules, race
from bertsmith.data.images import reader
from bertsmith.data.images.decoding import DecodingConfig, decode
from bertsmith.data.images.png import encode
from bertsmith.errors import FolderError, RecipeError, RunError, TextError
from bertsmith.models.hf import image_classifiers
from bertsmith.runs import image_data, image_finetuning, image_pretraining, image_recipe
from bertsmith.runs.race_metrics import MetricsConfig

QUICK = [*SETTINGS, "train.steps=2", "train.evaluations=1", "train.checkpoints=1", "train.compile=never"]
QUICK += ["train.precision=float32", "data.batch_size=8", "data.workers=0"]


def recipe(model: str | Path, data: Path, *overrides: str, dev: Path | None = None, seeds: int | None = None) -> Any:
    out = data.parent / "out"
    return image_recipe.build_recipe(Path(model), data, out, dev=dev, seeds=seeds, overrides=overrides)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train, val and test around the classes."""
    folder = tmp_path_factory.mktemp("parts") / "images"
    for name, count in (("train", 12), ("val", 6), ("test", 9)):
        save_folder(folder / name, count)
    return folder


@pytest.fixture(scope="module")
def trained(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> bertsmith.Run:
    return bertsmith.finetune("vit-tiny", parts, tmp_path_factory.mktemp("vit") / "run", overrides=QUICK)


@pytest.fixture(scope="module")
def convnet(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> bertsmith.Run:
    changes = [*QUICK[len(SETTINGS) :], "network.width=16"]
    return bertsmith.finetune("convnet-small", parts, tmp_path_factory.mktemp("convnet") / "run", overrides=changes)


def test_the_test_part_is_kept_for_the_end_where_there_is_a_dev_part(parts: Path, trained: bertsmith.Run) -> None:
    assert trained.result["protocol"]["measured_on"] == str(parts / "val")
    assert trained.result["protocol"]["examples"] == {"train": 12, "dev": 6}
    result = evaluate_images.evaluate_images(trained.folder, parts)
    assert result["protocol"]["data"][0] == "9 images of 3 classes"  # of test


def test_what_is_set_wins_over_what_is_found(parts: Path, tmp_path: Path) -> None:
    assert recipe("vit-cifar10", parts, f"data.dev={tmp_path}").data.dev == tmp_path
    own = tmp_path / "own.toml"
    own.write_text(config_with_seeds(parts), encoding="utf-8")
    assert recipe(own, parts).seeds == 3
    assert recipe(own, parts, seeds=2).seeds == 2
    assert recipe(own, parts, "seeds=4").seeds == 4
    assert recipe("vit-tiny", parts).seeds == 1


def config_with_seeds(parts: Path) -> str:
    return bertsmith.config.dump(recipe("vit-cifar10", parts, "seeds=3"))


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    save_folder(tmp_path / "all", 3)
    vehicles = tmp_path / "vehicles"
    for name, level in (("bus", "dark"), ("train", "bright")):
        vehicles.mkdir(exist_ok=True)
        (tmp_path / "all" / level).rename(vehicles / name)
    assert reader.read(vehicles).classes == ("bus", "train")
    assert recipe("vit-tiny", vehicles).data.dev is None
    flat = tmp_path / "flat"
    (tmp_path / "all").rename(flat)
    (flat / "middling").rename(flat / "train")
    assert len(reader.read(flat, labelled=False)) == 1  # images without classes in a part


def test_a_folder_says_the_size_that_its_network_has_read(parts: Path, tmp_path: Path) -> None:
    run = bertsmith.finetune("vit-tiny", parts, tmp_path / "run", overrides=[*QUICK, "data.size=16"])
    assert image_classifiers.read(run.folder).config.image_size == 16
    crop = bertsmith.finetune("vit-tiny", parts, tmp_path / "crop", overrides=[*QUICK, "augmentation.size=[4,4]"])
    assert image_classifiers.read(crop.folder).config.image_size == 4
    mae = image_pretraining.read_recipe("mae-cifar10", parts, tmp_path / "mae", ["data.size=64"])
    assert (mae.data.size, mae.model.settings.image_size) == (64, 64)


def test_sizes_follow_what_is_read(parts: Path, convnet: bertsmith.Run, tmp_path: Path) -> None:
    large = recipe("vit-tiny", parts, "data.size=224")
    assert large.network.settings.patch_size == 16
    photos = save_folder(tmp_path / "photos", 6, height=240, width=200)
    small = recipe("vit-tiny", photos, "data.size=32")
    assert (small.network.settings.patch_size, small.network.settings.image_size) == (4, 32)
    assert recipe(convnet.folder, photos).data.size == 8  # what it was trained on, and not what photographs suit


def test_several_blocks_are_kept_and_too_many_are_refused_before_they_are_built(
    convnet: bertsmith.Run, tmp_path: Path
) -> None:
    home = convnet.folder / "model"
    keys = json.loads((home / "config.json").read_text())
    assert keys["blocks"] == 1
    for name in ("model.safetensors", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((home / name).read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(keys | {"blocks": 16_000}))
    with pytest.raises(FolderError, match="has 16000 blocks, and the folder"):
        image_classifiers.read(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({key: value for key, value in keys.items() if key != "blocks"}))
    assert image_classifiers.read(tmp_path).config == image_classifiers.read(home).config


def test_an_evaluation_without_an_image_is_an_error(parts: Path, trained: bertsmith.Run, tmp_path: Path) -> None:
    rows = [f"{path.relative_to(parts)},{path.parent.name}" for path in sorted((parts / "test").rglob("*.png"))]
    table = tmp_path / "photos.csv"
    table.write_text("\n".join(["picture,kind", *rows]) + "\n")
    columns = ["data.path=picture", "data.label='kind'"]
    fact = r"names .*, which does not exist, and no file that does. Paths begin at .*: set data.root=FOLDER"
    with pytest.raises(TextError, match=fact):
        evaluate_images.evaluate_images(trained.folder, table, overrides=columns)
    result = evaluate_images.evaluate_images(trained.folder, table, overrides=[*columns, f"data.root={parts}"])
    assert result["summary"] == evaluate_images.evaluate_images(trained.folder, parts)["summary"]


def test_a_missing_library_is_no_bad_image(
    parts: Path, trained: bertsmith.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise RunError("images", "Pillow is missing")

    monkeypatch.setattr("bertsmith.data.images.decoding.import_pillow", missing)
    with pytest.raises(RunError, match="Pillow is missing"):
        evaluate_images.evaluate_images(trained.folder, parts)


def test_an_evaluation_reads_the_dev_part_where_there_is_no_test_part(trained: bertsmith.Run, tmp_path: Path) -> None:
    for name, count in (("train", 6), ("val", 3)):
        save_folder(tmp_path / name, count)
    result = evaluate_images.evaluate_images(trained.folder, tmp_path)
    assert result["protocol"]["data"][0] == "3 images of 3 classes"


def test_a_link_to_nothing_has_a_row_with_its_error(trained: bertsmith.Run, tmp_path: Path) -> None:
    home = save_folder(tmp_path / "images", 3)
    (home / "dark" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    images.predict(trained.folder, [str(home)], out=tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert sum("error" in row for row in rows) == 1
    assert len(rows) == 4


def test_an_image_smaller_than_a_patch_is_counted_and_named(trained: bertsmith.Run, tmp_path: Path) -> None:
    mixed = save_folder(tmp_path / "mixed", 12)
    (mixed / "dark" / "strip.png").write_bytes(encode(pixels(1, 3, 20)[0].numpy()))
    changes = [*QUICK[len(SETTINGS) :], "data.fit=keep", f"data.dev={mixed}"]
    run = bertsmith.finetune(trained, mixed, tmp_path / "run", overrides=changes)
    assert any(
        "1 images smaller than a patch" in line and "strip.png" in line for line in run.result["protocol"]["data"]
    )


def test_a_crop_is_a_height_and_a_width(parts: Path) -> None:
    for size, fact in (
        ("[24]", "expected 2 values, got"),
        ("[8,8,8]", "expected 2 values"),
        ("[0,8]", "of at least 1"),
    ):
        with pytest.raises(RecipeError, match=fact):
            recipe("vit-tiny", parts, f"augmentation.size={size}")


def test_a_size_that_patches_do_not_divide_is_refused(trained: bertsmith.Run, parts: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"^data.size: "):
        finetune(trained.folder, parts, tmp_path / "run", dev=None, task=None, seeds=None, overrides=["data.size=2"])


def test_a_run_knows_its_teacher_by_the_weights(convnet: bertsmith.Run, parts: Path, tmp_path: Path) -> None:
    other = [*QUICK[len(SETTINGS) :], "network.width=16", "train.seed=5"]
    another = bertsmith.finetune("convnet-small", parts, tmp_path / "another", overrides=other)
    (tmp_path / "teacher").symlink_to(convnet.folder / "model")
    given = recipe("deit-tiny", parts, *SETTINGS, f"teacher={tmp_path / 'teacher'}")
    data = image_data.read(given)
    before = image_finetuning.feed(given, task(), data).fingerprint
    (tmp_path / "teacher").unlink()
    (tmp_path / "teacher").symlink_to(another.folder / "model")
    assert image_finetuning.feed(given, task(), data).fingerprint != before


def test_a_table_of_paths_alone_is_enough_without_labels(tmp_path: Path) -> None:
    home = save_folder(tmp_path / "photos", 6)
    table = tmp_path / "list.csv"
    table.write_text("\n".join(["file", *(str(one.relative_to(home)) for one in sorted(home.rglob("*.png")))]))
    given = [f"data.root={home}"]
    made = image_pretraining.read_recipe("mae-small", table, tmp_path / "out", given)
    found = image_pretraining.read(made)
    assert len(found.train) + len(found.valid) == 6
    with pytest.raises(TextError, match=r"has no column of labels beside that of paths. Name it: data.label=COLUMN"):
        recipe("vit-tiny", table, *given)


def test_a_table_of_texts_may_have_a_column_of_images(tmp_path: Path) -> None:
    memes = tmp_path / "memes.jsonl"
    rows = [{"img": f"img/{number}.png", "text": f"text {number}", "label": number % 2} for number in range(4)]
    memes.write_text("".join(json.dumps(row) + "\n" for row in rows))
    image_recipe.refuse_images(Path("bert-base"), memes)
    memes.write_text("".join(json.dumps({key: row[key] for key in ("img", "label")}) + "\n" for row in rows))
    with pytest.raises(TextError, match="holds images, and 'bert-base' reads text"):
        image_recipe.refuse_images(Path("bert-base"), memes)


def test_commands_of_text_name_the_images_that_they_are_given(parts: Path, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"images: holds images, and 'tiny/bert' reads text"):
        race(["tiny/bert"], tmp_path, rules=Rules(budget="1s", points=1), metrics=MetricsConfig(), data=parts)
    with pytest.raises(TextError, match=r"images: holds images, and 'some-bert' reads text"):
        evaluate_file(Path("some-bert"), parts)


def test_flops_count_micro_batches_crops_and_the_teacher(parts: Path, convnet: bertsmith.Run, tmp_path: Path) -> None:
    entries = ["vit-tiny", "vit-tiny train.gradient_accumulation=4 augmentation.size=[4,4]"]
    entries += [f"deit-tiny teacher={convnet.folder}", "deit-tiny"]
    entrants = race_images.read_entrants(entries, tmp_path, parts, Rules(budget="1s", points=2), 1)
    plain, cropped, taught, alone = (one.recipe for one in entrants.values())
    assert race_images.images_per_update(cropped) == 4 * race_images.images_per_update(plain)
    assert race_images.image_flops(cropped) < race_images.image_flops(plain)
    assert race_images.image_flops(taught) > race_images.image_flops(alone)


def test_decoding_in_threads_leaves_warnings_as_they_are() -> None:
    data = encode(pixels(1, 64, 64)[0].numpy())
    before = list(warnings.filters)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: decode(data, DecodingConfig()), range(200)))
    assert [one for one in warnings.filters if one not in before] in ([], [warnings.filters[0]])
    assert ("ignore", None, Warning, None, 0) not in warnings.filters
