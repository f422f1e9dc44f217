"""GLUE's files are known as they are, and hold what was published."""

import json
from collections import Counter
from pathlib import Path

import pytest

from bertsmith.data.labelled.glue import GLUE, recognise, split_files
from bertsmith.data.labelled.reader import read

MNLI = (*"01234567", "sentence1", "sentence2", "label1", "gold_label")


def write(path: Path, *rows: tuple[str, ...]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map("\t".join, rows)), encoding="utf-8")
    return path


def test_the_tasks_are_in_their_usual_order() -> None:
    assert list(GLUE) == ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI"]


def test_classes_are_numbered_as_in_transformers() -> None:
    assert GLUE["RTE"].classes == GLUE["QNLI"].classes == ("entailment", "not_entailment")
    assert GLUE["MNLI"].classes == ("entailment", "neutral", "contradiction")
    assert {GLUE[name].classes for name in ("SST-2", "CoLA", "MRPC", "QQP", "WNLI")} == {("0", "1")}
    assert (GLUE["STS-B"].kind, GLUE["STS-B"].classes) == ("number", ())


def test_each_task_is_scored_as_in_the_paper() -> None:
    scored = {name: (task.metrics, task.headline) for name, task in GLUE.items()}
    assert scored["CoLA"] == (("matthews",), "matthews")
    assert scored["MRPC"] == scored["QQP"] == (("accuracy", "f1"), "mean")
    assert scored["STS-B"] == (("spearman", "pearson"), "spearman")
    for name in ("SST-2", "MNLI", "QNLI", "RTE", "WNLI"):
        assert scored[name] == (("accuracy",), "accuracy")


@pytest.mark.parametrize("folder", ["SST-2", "sst2", "SST2", "sst_2"])
def test_a_task_is_known_by_its_folder_in_any_spelling(tmp_path: Path, folder: str) -> None:
    path = write(tmp_path / folder / "train.tsv", ("sentence", "label"), ("fine", "1"))
    assert recognise(path) is recognise(path.parent) is GLUE["SST-2"]


def test_a_folder_alone_does_not_make_a_task(tmp_path: Path) -> None:
    assert recognise(write(tmp_path / "sst2" / "train.tsv", ("text", "mood"), ("fine", "1"))) is None
    assert recognise(write(tmp_path / "CoLA" / "train.tsv", ("a", "b", "c", "d"), ("e", "f", "g", "h"))) is None
    assert recognise(write(tmp_path / "mine" / "train.tsv", ("sentence", "label"), ("fine", "1"))) is None
    assert recognise(tmp_path / "RTE") is recognise(tmp_path / "RTE" / "train.tsv") is None
    assert recognise(write(tmp_path / "RTE" / "train.tsv")) is None  # empty


def test_the_official_files_of_mnli_and_qqp_are_read(tmp_path: Path) -> None:
    def row(premise: str, hypothesis: str, label: str) -> tuple[str, ...]:
        return (*"01234567", premise, hypothesis, "-", label)

    write(tmp_path / "MNLI" / "train.tsv", MNLI, row("a b", "c", "neutral"), row("d", "e", "contradiction"))
    write(tmp_path / "MNLI" / "dev_mismatched.tsv", MNLI, row("x", "y", "neutral"))
    matched = write(tmp_path / "MNLI" / "dev_matched.tsv", MNLI, row("a", "b", "-"), row("f", "g", "entailment"))
    assert split_files(tmp_path / "MNLI", GLUE["MNLI"]) == {"train": tmp_path / "MNLI" / "train.tsv", "dev": matched}
    found = read(tmp_path / "MNLI" / "train.tsv", "classify")
    assert [(one.texts, one.label) for one in found.examples] == [
        (("a b", "c"), "neutral"),
        (("d", "e"), "contradiction"),
    ]
    assert found.description == "MNLI of GLUE: texts from 'sentence1' and 'sentence2', label from 'gold_label'"
    found = read(matched, "classify")
    assert ([one.label for one in found.examples], found.dropped) == (["entailment"], {"rows without a label": 1})
    header = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
    path = write(tmp_path / "QQP" / "dev.tsv", header, ("1", "2", "3", "Is it?", "Is it so?", "1"), ("4", "5"))
    found = read(path, "classify")
    assert [(one.texts, one.label) for one in found.examples] == [(("Is it?", "Is it so?"), "1")]
    assert found.dropped == {"rows with too few cells": 1}


def test_numbers_in_json_lines_become_the_names_of_classes(tmp_path: Path) -> None:
    path = tmp_path / "rte" / "valid.jsonl"
    path.parent.mkdir()
    labels = [0, 1, "entailment", 2, "perhaps"]
    rows = [{"sentence1": "a", "sentence2": "b", "label": label} for label in labels]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read(path, "classify")
    assert [one.label for one in found.examples] == ["entailment", "not_entailment", "entailment"]
    assert found.dropped == {"rows with an unknown label": 2}
    assert split_files(path.parent, GLUE["RTE"]) == {"dev": path}


PUBLISHED = {  # train and dev: rows, and how many of each class
    "CoLA": ({"1": 6_023, "0": 2_528}, {"1": 721, "0": 322}),
    "SST-2": ({"1": 37_569, "0": 29_780}, {"1": 444, "0": 428}),
    "MRPC": ({"1": 2_474, "0": 1_194}, {"1": 279, "0": 129}),
    "QQP": ({"0": 6_338, "1": 3_662}, {"0": 12_690, "1": 7_525}),
    "MNLI": (
        {"entailment": 3_275, "neutral": 3_330, "contradiction": 3_395},
        {"entailment": 1_752, "neutral": 1_527, "contradiction": 1_629},
    ),
    "QNLI": (None, {"not_entailment": 2_761, "entailment": 2_702}),
    "RTE": ({"entailment": 1_249, "not_entailment": 1_241}, {"entailment": 146, "not_entailment": 131}),
    "WNLI": ({"0": 323, "1": 312}, {"0": 40, "1": 31}),
}


@pytest.mark.exhaustive(suite=3)
@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_file_has_the_published_counts(shared: Path, name: str) -> None:
    folder = shared / "data" / "glue" / name
    found = split_files(folder, GLUE[name])
    assert recognise(folder) is GLUE[name]
    for part, expected in zip(("train", "dev"), PUBLISHED[name], strict=True):
        assert (part in found) is (expected is not None)
        if expected is not None:
            labelled = read(found[part], "classify")
            assert labelled.dropped == {}
            assert labelled.description.startswith(f"{name} of GLUE: ")
            assert Counter(one.label for one in labelled.examples) == expected
            assert {len(one.texts) for one in labelled.examples} == {len(GLUE[name].texts)}


@pytest.mark.shared
def test_the_scores_of_sts_b_are_numbers(shared: Path) -> None:
    found = split_files(shared / "data" / "glue" / "STS-B", GLUE["STS-B"])
    train, dev = (read(found[part], "number") for part in ("train", "dev"))
    assert (len(train.examples), len(dev.examples)) == (5_749, 1_500)
    assert train.dropped == dev.dropped == {}
    scores = [one.label for one in train.examples]
    assert (min(scores), max(scores), round(sum(scores) / len(scores), 2)) == (0, 5, 2.7)
