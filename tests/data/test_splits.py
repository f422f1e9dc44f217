"""The files of a split are found in a folder by their names; the shards of a set are one."""

from pathlib import Path

import pytest

from bertsmith.data.labelled.reader import read
from bertsmith.data.labelled.splits import describe, find_split
from bertsmith.errors import TextError

DEV = ("dev", "valid", "validation", "val")


def folder(tmp_path: Path, *names: str) -> Path:
    """A folder with rows under these names, each of two classes."""
    for name in names:
        (tmp_path / name).write_text(f"text,label\na good {name},x\na bad {name},y\n")
    return tmp_path


@pytest.mark.parametrize(
    "names",
    [
        ["train-00000-of-00003.csv", "train-00001-of-00003.csv", "train-00002-of-00003.csv"],
        ["train-00000-of-00002-a09b74b3ef9c3b56.csv", "train-00001-of-00002-0123456789abcdef.csv"],
        ["train.0.csv", "train.1.csv"],
        ["train_1.csv", "train_2.csv", "train_3.csv"],
        [f"train-{number}.csv" for number in range(12)],
        ["my-train-00000-of-00002.csv", "my-train-00001-of-00002.csv"],
    ],
)
def test_the_shards_of_a_set_are_read_together(tmp_path: Path, names: list[str]) -> None:
    odd = tmp_path / "a [b]"  # whose name is a pattern itself
    odd.mkdir()
    found = find_split(folder(odd, *names, "test.csv", "train.txt.bak"), ("train",))
    assert found is not None
    assert len(read(found, "classify").examples) == 2 * len(names)
    assert describe(found) == f"{found.name} ({len(names)} files)"


@pytest.mark.parametrize(
    ("names", "words", "found"),
    [
        (["train-old.csv", "train.csv"], ["train"], "train.csv"),
        (["train-1.csv", "train.csv"], ["train"], "train.csv"),
        (["dev-notes.csv", "validation.csv"], DEV, "validation.csv"),
        (["dev_notes.txt", "train.csv"], DEV, None),
        (["dev.txt", "train.txt"], DEV, "dev.txt"),
        (["dev.py", "dev.log", "dev.csv.bak"], DEV, None),
        (["eng.testa", "eng.train"], ["train"], "eng.train"),
        (["en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu"], ["train"], "en_ewt-ud-train.conllu"),
        (["train-v1.1.json", "dev-v1.1.json"], DEV, "dev-v1.1.json"),
        (["Train.CSV"], ["train"], "Train.CSV"),
        (["train.csv.gz", "trainer.csv"], ["train"], "train.csv.gz"),
        (["train-100.csv"], ["train"], "train-100.csv"),
        (["train"], ["train"], "train"),
    ],
)
def test_a_file_is_found_by_its_name(tmp_path: Path, names: list[str], words: list[str], found: str | None) -> None:
    path = find_split(folder(tmp_path, *names), words)
    assert (path and path.name) == found
    assert path is None or describe(path) == found


@pytest.mark.parametrize(
    ("names", "fact"),
    [
        (["train-a.csv", "train-b.csv"], "holds several 'train' files: train-a.csv, train-b.csv"),
        (["train.csv", "train.jsonl"], "holds several 'train' files: train.csv, train.jsonl"),
        (["train-100.csv", "train-1000.csv"], "holds several 'train' files: train-100.csv, train-1000.csv"),
        (["train-v1.1.json", "train-v1.2.json"], "holds several 'train' files: train-v1.1.json, train-v1.2.json"),
        (["train-0-of-3.csv", "train-2-of-3.csv"], "holds 2 of 3 shards: train-0-of-3.csv, train-2-of-3.csv"),
        (
            ["train-0-of-2.csv", "train-0-of-3.csv"],
            "holds several 'train' files: train-0-of-2.csv, train-0-of-3.csv",
        ),
        (
            ["train.0.csv", "train.0.old.csv", "train.1.csv"],
            "holds other files among the shards: train.0.csv, train.0.old.csv, train.1.csv",
        ),
    ],
)
def test_files_among_which_the_name_does_not_decide_are_refused(tmp_path: Path, names: list[str], fact: str) -> None:
    with pytest.raises(TextError) as caught:
        find_split(folder(tmp_path, *names), ["train"])
    assert str(caught.value).startswith(f"{tmp_path}: {fact}. ")
