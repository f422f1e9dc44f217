"""The task of a labelled file is guessed from its values, and the guess is said."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertsmith.data.labelled.columns import Columns
from bertsmith.data.labelled.examples import Kind
from bertsmith.data.labelled.guess import OF_COLUMNS, OF_QUESTIONS, Guess, guess
from bertsmith.data.labelled.reader import read
from bertsmith.data.labelled.values import has_decimal_commas
from bertsmith.errors import TextError

GENRES = ["film", "love", "war", "art"]


def table(path: Path, header: str, cell: Callable[[int], str], count: int = 40, texts: int = 1) -> Path:
    """Rows with one text or more, all different, and the cells after them."""
    rows = (",".join([*(f"text {side} of {row}" for side in range(texts)), cell(row)]) for row in range(count))
    path.write_text("\n".join([header, *(row.rstrip(",") if texts > 1 else row for row in rows)]) + "\n")
    return path


def several(row: int, mark: str) -> str:
    return mark.join(GENRES[at % 4] for at in range(row, row + 1 + row % 3))


@pytest.mark.parametrize(
    ("header", "cell", "count", "answer", "said"),
    [
        (
            "text,score",
            lambda row: f"{row / 7:.3f}",
            40,
            "regression",
            "regression, numbers from 0 to 5.571 in 'score'",
        ),
        ("text,price", lambda row: str(row * 37), 40, "regression", "regression, .* in 'price', the only column left"),
        ("text,year", lambda row: str(1900 + row % 90), 300, "regression", "regression, numbers from 1900 to 1989"),
        ("text,stars", lambda row: str(1 + row % 5), 40, "single_label", "classification, 5 classes in 'stars'"),
        ("text,label", lambda row: str(row % 60), 400, "single_label", "classification, 60 classes in 'label'"),
        ("text,label", lambda row: "ab"[row % 2], 40, "single_label", "classification, 2 classes in 'label'"),
        ("text,label", lambda row: ["1", "1.0", "0"][row % 3], 40, "single_label", "classification, 2 classes"),
        (
            "text,label",
            lambda row: ["a", "b", "NaN", "", "null"][row % 5],
            40,
            "single_label",
            "classification, 2 classes",
        ),
        (
            "text,genres",
            lambda row: f'"{several(row, ",")}"',
            40,
            "multi_label",
            "multi-label .* 4 labels separated by ','",
        ),
        ("text,genres", lambda row: several(row, ";"), 40, "multi_label", "multi-label .* 4 labels separated by ';'"),
        ("text,label", lambda row: several(row, "|"), 40, "multi_label", r"multi-label .* 4 labels separated by '\|'"),
        ("text,labels", lambda row: f'"{GENRES[: row % 3]}"', 40, "multi_label", "multi-label .* 2 labels in 'labels'"),
        (
            "text,class",
            lambda row: ['"Arts, crafts"', "News"][row % 2],
            40,
            "single_label",
            "classification, 2 classes",
        ),
    ],
)
def test_the_kind_of_label_is_told_by_its_values(
    tmp_path: Path, header: str, cell: Callable[[int], str], count: int, answer: str, said: str
) -> None:
    path = table(tmp_path / "a.csv", header, cell, count)
    found = guess(path)
    assert (found.task, found.problem, found.rows) == ("classify", answer, count)
    assert re.search(said, found.message), found.message
    assert "task.problem=" in found.message
    kinds: dict[str, Kind] = {"single_label": "classify", "regression": "number", "multi_label": "labels"}
    assert read(path, kinds[answer], Columns(separator=found.separator)).examples


@pytest.mark.parametrize("header", ["text,price", "text,label"])
def test_numbers_with_decimal_commas_are_numbers(tmp_path: Path, header: str) -> None:
    """Else 0,5 would be the labels 0 and 5."""
    cells = [f'"{row},{row % 4}5"' if row % 5 else str(row) for row in range(40)]
    cells[7] = "unknown"
    path = table(tmp_path / "a.csv", header, lambda row: cells[row])
    found = guess(path)
    label = header.rpartition(",")[2]
    assert (found.problem, found.separator) == ("regression", None)
    assert f"numbers from 0 to 39.35 in '{label}'" in found.message
    assert "decimal commas" in found.message
    labelled = read(path, "number")
    assert [one.label for one in labelled.examples][:3] == [0, 1.15, 2.25]
    assert labelled.description == f"texts from 'text', label from '{label}' with decimal commas"
    assert labelled.dropped == {"rows with a wrong label": 1}


def test_commas_between_thousands_and_between_labels_are_no_decimal_commas(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "text,labels", lambda row: ['"1,2"', "2", '"1,3"', '"1,2,3"'][row % 4])
    assert (guess(path).problem, guess(path).separator) == ("multi_label", ",")
    assert not has_decimal_commas(["1,234", "20,000"])
    assert has_decimal_commas(["1,234", "0,234"])
    assert not has_decimal_commas(["0,5", "film", "love"])
    assert not has_decimal_commas([])


def test_an_infinite_score_is_a_bad_row_and_makes_no_classes(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "text,score", lambda row: ["inf", "1e400"][row % 2] if row > 37 else f"{row / 7}")
    assert guess(path).problem == "regression"
    assert "numbers from 0 to 5.28571 in 'score'" in guess(path).message
    assert read(path, "number").dropped == {"rows with a wrong label": 2}


def test_lists_of_json_are_several_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"t {row}", "labels": GENRES[: row % 3]}) for row in range(20)))
    assert guess(path).problem == "multi_label"


def test_a_column_of_0_and_1_for_each_label_is_read(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "comment_text,toxic,threat", lambda row: f"{row % 2},{int(row % 3 == 0)}")
    found = guess(path)
    assert (found.problem, found.labels) == ("multi_label", ("toxic", "threat"))
    assert found.message == (
        "Task: multi-label classification, a column of 0 and 1 for each of 2 labels (toxic, threat); "
        "data.label='...' takes one column"
    )
    path.write_text(path.read_text() + "no label,,\nodd,2,1\n")
    labelled = read(path, "labels", Columns(labels=found.labels))
    assert [one.label for one in labelled.examples][:4] == [("threat",), ("toxic",), (), ("toxic", "threat")]
    assert labelled.description == "texts from 'comment_text', labels from 'toxic' and 'threat'"
    assert labelled.dropped == {"rows without a label": 1, "rows with a wrong label": 1}
    assert guess(path, Columns(label="toxic")).problem == "single_label"


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        ("question,answer", 2),
        ("anchor,positive", 2),
        ("query,passage", 2),
        ("anchor,positive,negative", 3),
        ("sentence1,sentence2", 2),
    ],
)
def test_texts_that_belong_together_without_a_label_are_for_embeddings(tmp_path: Path, header: str, texts: int) -> None:
    found = guess(table(tmp_path / "a.csv", header, lambda row: "", texts=texts))
    assert found.task == "embed"
    assert found.message.startswith("Task: sentence embeddings from '")
    assert found.message.endswith("since there is no label; data.label='...' and --task text-classification change it")


def test_answers_that_recur_are_classes_and_scores_of_pairs_are_numbers(tmp_path: Path) -> None:
    found = guess(table(tmp_path / "a.csv", "question,answer", lambda row: ["yes", "no"][row % 2]))
    assert (found.task, found.problem) == ("classify", "single_label")
    found = guess(table(tmp_path / "b.csv", "sentence1,sentence2,score", lambda row: f"{row / 9:.2f}", texts=2))
    assert (found.task, found.problem) == ("classify", "regression")


@pytest.mark.parametrize(
    ("header", "where"), [("text,label", "'label'"), ("text,note", "'note', the only column left")]
)
def test_a_class_for_each_row_is_refused(tmp_path: Path, header: str, where: str) -> None:
    path = table(tmp_path / "a.csv", header, lambda row: f"id-{row}")
    with pytest.raises(TextError) as caught:
        guess(path)
    fact = f"40 different values in 40 rows of {where}: nearly each row is its own class"
    remedy = "Name the label's column with data.label='...', or learn from pairs with --task sentence-similarity."
    assert str(caught.value) == f"{path}: {fact}. {remedy}"
    assert guess(path, task="embed").rows == 40  # what was said is not guessed


@pytest.mark.parametrize(
    ("name", "record", "task"),
    [
        ("a.jsonl", {"tokens": ["EU", "says"], "ner_tags": ["B-ORG", "O"]}, "tag"),
        ("a.jsonl", {"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": [0]}}, "answer"),
        ("a.jsonl", {"ctx": "a b", "ending0": "c", "ending1": "d", "label": 0}, "choose"),
        ("a.jsonl", {"question": "a b", "A": "c", "B": "d", "answer": "B"}, "choose"),
        ("a.jsonl", {"question": "a b", "choices": ["c", "d"], "answer": 1}, "choose"),
        (
            "a.jsonl",
            {"question": "a b", "choices": {"text": ["c", "d"], "label": ["A", "B"]}, "answerKey": "B"},
            "choose",
        ),
        ("a.jsonl", {"question": "a b", "A": "c", "B": "d", "answer": "yes"}, "classify"),
        ("a.jsonl", {"question": "who", "context": "Bob runs", "answer": "Bob"}, "answer"),
        ("a.jsonl", {"question": "is it", "passage": "no, it is not", "answer": "no"}, "classify"),
        ("a.jsonl", {"question": "is it", "context": "it is not", "answer": "never"}, "classify"),
        ("a.json", {"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": [0]}}, "answer"),
    ],
)
def test_other_tasks_are_told_by_their_columns(tmp_path: Path, name: str, record: Any, task: str) -> None:
    (tmp_path / name).write_text("\n".join([json.dumps(record)] * 9))
    found = guess(tmp_path / name)
    assert (found.task, found.rows) == (task, 9)


def test_all_shards_of_a_set_are_guessed_from(tmp_path: Path) -> None:
    """Sorted by class, a shard has one class; and the number of rows decides about epochs and batch size."""
    for shard in range(3):
        table(tmp_path / f"train-{shard}.csv", "text,label", lambda row, shard=shard: "abc"[shard])
        (tmp_path / f"train-{shard}.conll").write_text("a O\nb O\n\nc O\n")
        questions = {"data": [{"paragraphs": [{"qas": [{"question": "who"}] * 5}]}]}
        (tmp_path / f"train-{shard}.json").write_text(json.dumps(questions))
    found = guess(tmp_path / "train-*.csv")
    assert found.rows == 120
    assert found.message.startswith("Task: classification, 3 classes in 'label'")
    assert guess(tmp_path / "train-*.conll").rows == 6
    assert guess(tmp_path / "train-*.json").rows == 15


def test_json_without_questions_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"text": f"t {row}", "label": "ab"[row % 2]} for row in range(9)]))
    assert (guess(path).task, guess(path).rows) == ("classify", 9)
    path.write_text(json.dumps({"data": [{"paragraphs": [{"qas": [{"question": "who"}] * 5}]}]}))
    assert guess(path) == Guess(task="answer", rows=5, message=OF_QUESTIONS)
    (tmp_path / "a.conll").write_text("-DOCSTART- O\n\na O\nb O\n\n\n-DOCSTART- O\n\nc O\n\n")
    assert guess(tmp_path / "a.conll") == Guess(task="tag", rows=2, message=OF_COLUMNS)
    assert guess(tmp_path / "a.conll", task="tag") == Guess(task="tag", rows=2)
    (tmp_path / "empty.csv").write_text("")
    assert guess(tmp_path / "empty.csv") == Guess(task="classify")


def test_columns_that_cannot_be_guessed_are_refused_by_the_guess(tmp_path: Path) -> None:
    """Else fine-tuning would print its choices for few rows before it refuses the file."""
    path = table(tmp_path / "a.csv", "alpha,beta,gamma", lambda row: f"some words {row},other words {row}")
    with pytest.raises(TextError, match="which columns hold the texts and the label cannot be guessed from 0, 1, 2"):
        guess(path)
    with pytest.raises(TextError, match="has no column 'delta'"):
        guess(path, Columns(label="delta"))
