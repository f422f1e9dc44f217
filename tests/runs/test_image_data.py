"""The images that are held out of training, where there are no others to evaluate on, and identical images."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tasks.small_images import CLASSES, labelled, pixels, save_folder

from bertsmith.data.images.labelled_images import LabelledImages
from bertsmith.data.images.reader import read
from bertsmith.errors import TextError
from bertsmith.runs import image_data
from bertsmith.runs.image_data import ImageData
from bertsmith.runs.image_dev_split import hold_out
from bertsmith.runs.image_recipe import build_recipe


def of_classes(labels: Any, digests: Any = None) -> LabelledImages:
    changes = {} if digests is None else {"digests": np.asarray(digests)}
    return replace(labelled(pixels(len(labels))), labels=np.asarray(labels), **changes)


def data_of(folder: Path) -> ImageData:
    return image_data.read(build_recipe(Path("vit-tiny"), folder, folder / "out", dev=None, seeds=None, overrides=[]))


@pytest.mark.parametrize("sizes", [(15, 14, 0), (40, 40, 40), (100, 10, 10), (2, 2, 30)])
def test_the_images_that_are_held_out_are_of_all_classes_in_proportion(sizes: tuple[int, ...]) -> None:
    """Images of a folder come class by class."""
    labels = np.repeat(np.arange(len(CLASSES)), sizes)
    whole = of_classes(labels)
    train, dev, _ = hold_out(whole)
    assert len(dev) == max(1, len(labels) // 10)
    assert sorted([*train.locations, *dev.locations]) == sorted(whole.locations)
    held_out = Counter(dev.labels.tolist())
    for label, size in enumerate(sizes):
        assert abs(held_out[label] - size * len(dev) / len(labels)) < 1
        assert held_out[label] < max(1, size), "a class is never held out as a whole"


def test_classes_of_one_image_are_held_out_at_random() -> None:
    train, dev, how = hold_out(of_classes([0, 1, 2]))
    assert (len(train), len(dev), how) == (2, 1, ", at random: each class has one image")


def test_too_few_images_to_hold_any_out_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"holds too few different images to hold any out for evaluation. Give at"):
        data_of(save_folder(tmp_path, 2))
    with pytest.raises(TextError, match=r"is the only image, 4 times. Give at least two classes"):
        hold_out(of_classes([0, 0, 1, 1], [7] * 4))


def test_identical_images_are_held_out_together() -> None:
    labels, digests = np.arange(120) % 3, np.arange(120) // 6 * 3 + np.arange(120) % 3  # pairs in the same class
    train, dev, _ = hold_out(of_classes(labels, digests))
    assert len(dev) == 12
    assert not {*train.digests.tolist()} & {*dev.digests.tolist()}
    plain, _, _ = hold_out(of_classes(labels))
    assert plain.fingerprint == hold_out(of_classes(labels, 7 * np.arange(120)[::-1]))[0].fingerprint


def test_copies_and_conflicting_labels_are_counted_and_named(tmp_path: Path) -> None:
    home = save_folder(tmp_path / "train", 12)
    save_folder(tmp_path / "test", 3, height=9)
    first = (home / "dark" / "1.png").read_bytes()
    assert [line for line in data_of(tmp_path).lines() if line.startswith(" ")] == []
    for place in ("train/dark/copy.png", "test/dark/copy.png", "train/bright/copy.png"):
        (tmp_path / place).write_bytes(first)
    assert [*data_of(tmp_path).lines()][2:] == [
        "  duplicates: 2 training images identical to another",
        "  duplicates: 1 dev image also in training, so that the score is too high",
        f"  conflicting labels: 1 image in several classes ({home / 'bright' / 'copy.png'})",
    ]


def test_copies_are_known_by_their_pixels_whatever_read_them(tmp_path: Path) -> None:
    home = save_folder(tmp_path, 6)
    (home / "dark" / "copy.png").write_bytes((home / "dark" / "1.png").read_bytes())
    digests = read(home).digests
    assert (len(digests), len(np.unique(digests))) == (7, 6)
    kept = read(home).take(np.array([2, 5])).digests
    np.testing.assert_array_equal(kept, digests[[2, 5]])


def test_most_classes_with_one_image_are_pointed_out(tmp_path: Path) -> None:
    found = save_folder(tmp_path / "images", 9)
    rows = [f"{path.relative_to(tmp_path)},name {number}" for number, path in enumerate(sorted(found.rglob("*.png")))]
    table = tmp_path / "all.csv"
    table.write_text("\n".join(["path,label", *rows]) + "\n")
    data = image_data.read(build_recipe(Path("vit-tiny"), table, tmp_path, dev=None, seeds=None, overrides=[]))
    assert [*data.lines()][-1] == "  9 of 9 classes have one image: are they classes?"


def test_dev_rows_of_a_table_are_those_of_its_column(tmp_path: Path) -> None:
    found = sorted(save_folder(tmp_path / "images", 9).rglob("*.png"))
    parts = ["train", "train", "val"] * 3
    rows = [f"{path.relative_to(tmp_path)},{path.parent.name},{part}" for path, part in zip(found, parts, strict=True)]
    table = tmp_path / "all.csv"
    table.write_text("\n".join(["path,label,split", *rows]) + "\n")
    for dev in (None, table):
        recipe = build_recipe(Path("vit-tiny"), table, tmp_path, dev=dev, seeds=None, overrides=[])
        data = image_data.read(recipe)
        assert (len(data.train), len(data.dev)) == (6, 3)
        assert data.dev_source == (str(table) if dev else f"the dev part of {table}")
