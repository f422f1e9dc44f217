"""The examples of fine-tuning: rows that cannot be read are skipped and counted, or refused."""

from pathlib import Path

import pytest
from models.small import saved

from bertsmith.errors import BertsmithError
from bertsmith.runs import task_data, task_recipe


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """Twenty rows, the last of which has a cell too many."""
    rows = [f"the cat sees {row},{'good' if row % 2 else 'bad'}" for row in range(19)]
    path = tmp_path / "train.csv"
    path.write_text("\n".join(["text,label", *rows, "the dog,sees,good"]) + "\n")
    return path


@pytest.mark.parametrize("on_bad_row", ["skip", "fail"])
def test_a_bad_row_is_skipped_and_counted_or_refused(on_bad_row: str, torn: Path, tmp_path: Path) -> None:
    saved(tmp_path / "model")
    recipe = task_recipe.build_recipe(
        tmp_path / "model",
        torn,
        tmp_path / "out",
        dev=None,
        task=None,
        seeds=1,
        overrides=[f"data.on_bad_row={on_bad_row}"],
    )
    if on_bad_row == "skip":
        data = task_data.read(recipe)
        assert len(data.train.examples) + len(data.dev.examples) == 19
        assert "left out: 1 row " in "\n".join(task_data.summary_lines(data))
    else:
        with pytest.raises(BertsmithError, match=r"train\.csv:21: "):
            task_data.read(recipe)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (["a cat,x", "a dog,y", "a bird,z"], "has 3 examples, too few to hold one out for evaluation"),
        (["a cat,x"], "has 1 example, too few to hold one out for evaluation"),
    ],
)
def test_too_few_rows_to_hold_one_out_are_counted(rows: list[str], line: str, tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    base = saved(tmp_path / "base")
    recipe = task_recipe.build_recipe(
        base, path, tmp_path / "out", dev=None, task="classify", seeds=1, overrides=["train.steps=1"]
    )
    with pytest.raises(BertsmithError) as caught:
        task_data.read(recipe)
    assert str(caught.value) == f"{path}: {line}. Give at least two of a class, or a dev file: --dev FILE."


def test_all_shards_of_a_folder_are_read_and_the_chosen_files_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split, count in (("train", 3), ("validation", 2), ("test", 2)):
        for shard in range(count):
            rows = [f"the {split} cat {shard} sees {row},{'good' if row % 2 else 'bad'}" for row in range(10)]
            path = tmp_path / f"{split}-{shard:05d}-of-{count:05d}.csv"
            path.write_text("\n".join(["text,label", *rows]) + "\n")
    (tmp_path / "train-old.csv").write_text("text,label\n")
    model = saved(tmp_path / "model")
    options = {"dev": None, "task": None, "seeds": 1, "overrides": ["train.steps=1"]}
    data = task_data.read(task_recipe.build_recipe(model, tmp_path, tmp_path / "out", **options))
    assert (len(data.train.examples), len(data.dev.examples)) == (30, 20)
    train, dev = "train-[0-9]*-of-00003.csv (3 files)", "validation-[0-9]*-of-00002.csv (2 files)"
    assert f"Of {tmp_path}: training set {train}, dev set {dev}\n" in capsys.readouterr().out
    assert task_data.held_out_file(tmp_path) == tmp_path / "test-[0-9]*-of-00002.csv"


def test_a_dev_set_that_is_given_is_not_looked_for(tmp_path: Path) -> None:
    for name in ("train.csv", "dev-a.csv", "dev-b.csv"):
        (tmp_path / name).write_text("text,label\n")
    chosen = tmp_path / "dev-b.csv"
    assert task_data.find_files(tmp_path, chosen, None) == (tmp_path / "train.csv", chosen)
    with pytest.raises(BertsmithError, match=r"holds several 'dev' files: dev-a\.csv, dev-b\.csv\. Name the one"):
        task_data.find_files(tmp_path, None, None)
