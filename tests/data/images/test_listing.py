"""Folders and tables of images as people have them: parts by any usual name, and one line for what cannot be read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tasks.small_images import CLASSES, save_folder

from bertsmith.data.images import survey
from bertsmith.data.images.bad_images import NO_PART
from bertsmith.data.images.listing import missing_images
from bertsmith.data.images.reader import read
from bertsmith.errors import BertsmithError
from bertsmith.runs.image_recipe import build_recipe
from bertsmith.runs.image_test_set import read_test_set

pytest.importorskip("PIL.Image", reason="Pillow is not installed here")


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(BertsmithError) as caught:
        read(path, **options)
    return str(caught.value).replace(str(path), "PATH").replace(str(path.parent), "HOME")


def table(home: Path, name: str, columns: str, cells: Any) -> Path:
    """A table of the images in a folder; `cells` gives those after the path."""
    found = sorted(home.rglob("*.png"))
    rows = [",".join([str(one.relative_to(home)), *cells(number, one)]) for number, one in enumerate(found)]
    (home / name).write_text("\n".join([columns, *rows]) + "\n")
    return home / name


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return save_folder(tmp_path / "home", 9)


@pytest.mark.parametrize(
    ("train", "other", "part"),
    [("Train", "Test", "test"), ("training", "testing", "test"), ("TRAIN", "eval", "dev"), ("train", "Val", "dev")],
)
def test_parts_have_any_usual_name_in_any_case(tmp_path: Path, train: str, other: str, part: str) -> None:
    save_folder(tmp_path / train, 6)
    save_folder(tmp_path / other, 3)
    assert (len(read(tmp_path)), len(read(tmp_path, part)), read(tmp_path).classes) == (6, 3, CLASSES)
    assert len(read_test_set(tmp_path, 3).images) == 3
    dev = build_recipe(Path("vit-tiny"), tmp_path, tmp_path / "out", dev=None, seeds=None, overrides=[]).data.dev
    assert dev == (tmp_path / other if part == "dev" else None)


def test_parts_inside_of_the_classes_are_refused(tmp_path: Path) -> None:
    for place in ("a/train", "a/test", "b/train", "b/test"):
        save_folder(tmp_path / place, 1)
    remedy = "Put the classes into the parts: PATH/train/a."
    assert refusal(tmp_path) == f"PATH: holds the parts inside of the classes (a/test and a/train). {remedy}"


def test_a_column_of_parts_divides_a_table(home: Path) -> None:
    parts = ["train", "Validation", "test", "training", "train", "train", "train", "train", ""]
    path = table(home, "all.csv", "path,label,split", lambda at, one: [one.parent.name, parts[at]])
    assert (len(read(path)), read(path).dropped) == (6, {NO_PART: 1})
    parts[8] = "dev"
    path = table(home, "all.csv", "path,kind,subset", lambda at, one: [one.parent.name, parts[at]])
    assert [len(read(path, part)) for part in ("train", "dev", "test")] == [6, 2, 1]
    assert [survey.has_part(path, part) for part in ("train", "dev", "test")] == [True] * 3
    assert len(read_test_set(path, 3).images) == 1
    assert survey.holds_images(path, alone=True)
    path = table(home, "test.csv", "path,label,split", lambda _, one: [one.parent.name, "test"])
    fact = "PATH: has no row of the part 'train' in its column 'split', only of test. Call the rows to read 'train'."
    assert refusal(path) == fact


def test_labels_with_fractions_are_refused(home: Path) -> None:
    path = table(home, "all.csv", "path,target", lambda at, _: [str(at / 2)])
    fact = "its labels are numbers with fractions (0.5 in column 'target'), and images have classes"
    assert refusal(path) == f"PATH: {fact}. Name a column of classes: data.label=COLUMN."
    path = table(home, "whole.csv", "path,target", lambda at, _: [f"{at % 3}.0"])
    assert len(read(path).classes) == 3


def test_paths_that_lead_to_no_file_are_refused_with_the_first_one(home: Path) -> None:
    path = table(home, "all.csv", "path,label", lambda _, one: [one.parent.name])
    moved = path.rename(home.parent / "all.csv")
    fact = "PATH: names HOME/home/bright/0.png, which does not exist, and no file that does"
    moved.write_text(moved.read_text().replace("bright/", "nowhere/").replace("dark/", "x/").replace("middling/", "x/"))
    fact = fact.replace("home/bright", "nowhere")
    assert refusal(moved) == f"{fact}. Paths begin at HOME: set data.root=FOLDER."
    moved.write_text("path,label\n../a.png,x\n")
    fact = f"PATH: names files outside of HOME only ({moved}:2)".replace(str(moved), "PATH")
    assert refusal(moved) == f"{fact}. Paths begin at HOME: set data.root=FOLDER."


def test_paths_may_be_those_of_windows(home: Path) -> None:
    path = table(home, "all.csv", "path,label", lambda _, one: [one.parent.name])
    path.write_text(path.read_text().replace("/", "\\"))
    assert (len(read(path)), read(path).classes) == (9, CLASSES)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_metadata_of_an_imagefolder_names_the_classes(tmp_path: Path, kind: str) -> None:
    flat = tmp_path / "all" / "train"
    rows = []
    for number, path in enumerate(sorted(save_folder(tmp_path / "some", 6).rglob("*.png"))):
        flat.mkdir(parents=True, exist_ok=True)
        rows.append({"file_name": path.rename(flat / f"{number}.png").name, "label": path.parent.name})
    assert str(missing_images(tmp_path / "all", "vit-tiny")) == (
        f"{flat}: holds images without classes (0.png, ...). "
        "Put those of each class into a folder, or give a table with paths and labels."
    )
    lines = [",".join(row.values()) for row in rows] if kind == "csv" else [json.dumps(row) for row in rows]
    (flat / f"metadata.{kind}").write_text("\n".join(["file_name,label"] * (kind == "csv") + lines) + "\n")
    assert survey.holds_images(tmp_path / "all")
    assert read(tmp_path / "all").classes == CLASSES


def test_captions_beside_folders_by_class_are_no_labels(home: Path) -> None:
    table(home, "metadata.csv", "file_name,text", lambda at, _: [f"text {at}"])
    assert read(home).classes == CLASSES


def test_images_in_parquet_are_named_in_the_refusal(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"image": [{"bytes": b"\x89PNG", "path": "a.png"}], "label": [1]}
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "train-00000-of-00001.parquet"
    parquet.write_table(pyarrow.table(rows), path)
    fact = "holds the bytes of images (column 'image'), which are not read. Write them as files, in a folder for each"
    assert fact in refusal(path)
    for place in (path, tmp_path):
        with pytest.raises(BertsmithError, match="holds the bytes of images"):
            build_recipe(Path("vit-tiny"), place, tmp_path / "out", dev=None, seeds=None, overrides=[])


def test_the_files_of_cifar_are_found_in_the_folder_of_their_archive(tmp_path: Path) -> None:
    inner = tmp_path / "cifar-10-batches-bin"
    inner.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (inner / f"{name}.bin").write_bytes(bytes([3]) + bytes(3072))
    assert [len(read(tmp_path, part)) for part in ("train", "test")] == [5, 1]
    pickled = tmp_path / "python" / "cifar-10-batches-py"
    pickled.mkdir(parents=True)
    (pickled / "data_batch_1").write_bytes(b"\x80\x04")
    assert "is pickled, and could run code" in refusal(tmp_path / "python")


def test_cifar_100_is_named_in_the_refusal(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(bytes(2 * 3074))
    fact = "is of CIFAR-100, which is not read. Get CIFAR-10, or write the images into a folder for each class."
    assert refusal(tmp_path / "train.bin") == f"PATH: {fact}"
    assert refusal(tmp_path) == f"PATH/train.bin: {fact}"


def test_the_names_of_mnist_may_have_a_dot(tmp_path: Path) -> None:
    head = bytes([0, 0, 8])
    (tmp_path / "train-images.idx3-ubyte").write_bytes(head + bytes([3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 5, 6]))
    (tmp_path / "train-labels.idx1-ubyte").write_bytes(head + bytes([1, 0, 0, 0, 2, 7, 8]))
    for path in (tmp_path, tmp_path / "train-images.idx3-ubyte"):
        np.testing.assert_array_equal(read(path).labels, [7, 8])
