"""Findings about every kind of prediction: gathered in blocks, equal to the task's own scores, bounded in memory."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from tasks.small import CASES, LENGTH, tokenizer
from tasks.written import task as writer
from tasks.written import tokenizer as pieces

from bertsmith.data.labelled.examples import Answer, Example, Question, Sentence
from bertsmith.tasks.base import predict
from bertsmith.tasks.class_findings import ClassificationFindings, MultiLabelFindings, TaggingFindings
from bertsmith.tasks.findings import Prior, warnings
from bertsmith.tasks.measure import DevEvaluator, findings_of
from bertsmith.tasks.mistakes import Mistakes, Sample
from bertsmith.tasks.value_findings import RegressionFindings


@pytest.mark.parametrize("name", CASES)
def test_findings_in_blocks_score_as_the_task_does(name: str) -> None:
    case = CASES[name]
    task = case.task()
    found, said = findings_of(task), list[Any]()
    for start in (0, 3, 6):
        block = case.examples[start : start + 3]
        predictions = predict(task, block, task.preprocess(block, tokenizer(), LENGTH), device="cpu", detailed=True)
        found.add(block, predictions)
        said += predictions
    whole = found.to_dict()
    for figure, score in task.score(case.examples, said).items():
        assert whole["metrics"][figure] == pytest.approx(score), figure
    assert next(iter(whole["metrics"])) == next(iter(task.score(case.examples, said)))
    assert whole["examples"] == 8
    assert json.loads(json.dumps(whole)) == whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "labels", "label"),
    [
        ({"translation": True}, (), "the old cat"),
        ({"output": "number"}, (), 2.5),
        ({}, ("purr", "bark"), "purr"),
        ({}, (), "sentence"),
    ],
)
def test_findings_cover_generated_predictions(config: dict, labels: tuple[str, ...], label: Any) -> None:
    task = writer(labels, **config)
    others = {"the old cat": "green dog", 2.5: 4.0, "purr": "bark", "sentence": "the cat sees"}
    examples = [
        Example(location=f"made:{n}", texts=("the cat sees",), label=label if n % 2 else others[label])
        for n in range(4)
    ]
    said = predict(task, examples, task.preprocess(examples, pieces(), LENGTH), device="cpu", detailed=True)
    found = findings_of(task)
    found.add(examples, said)
    whole = found.to_dict()
    assert {name: whole["metrics"][name] for name in task.score(examples, said)} == task.score(examples, said)
    json.dumps(whole)


def test_findings_before_an_interruption_are_measured_again_without_dropout() -> None:
    case = CASES["class"]
    task = case.task(dropout=0.5)
    items = task.preprocess(case.examples, tokenizer(), LENGTH)
    measure = DevEvaluator(task, case.examples, items, torch.device("cpu"), 4096)
    figures = measure()
    found = measure.findings({**figures, "step": 3})
    task.train()
    again = DevEvaluator(task, case.examples, items, torch.device("cpu"), 4096)
    assert again.findings({**figures, "step": 3}) == found


def text(label: Any, number: int = 0) -> Example:
    return Example(location=f"made:{number}", texts=("a text",), label=label)


def said(label: str, chance: float = 0.9) -> dict[str, Any]:
    other = "b" if label == "a" else "a"
    return {"label": label, "probabilities": {label: chance, other: 1 - chance}}


def test_a_model_that_only_predicts_the_majority_class_is_warned_of() -> None:
    found = ClassificationFindings(("a", "b"), Prior(counts={"a": 80, "b": 20}))
    found.add([text("a"), text("b"), text("a")], [said("a")] * 3)
    lines = warnings(found.to_dict(), "accuracy", 2 / 3)
    assert lines[1:] == [
        "the model predicts 'a' for all 3 examples: it has learnt nothing that separates examples",
        "accuracy 0.6667 is not better than always predicting 'a', the commonest class of training (0.6667)",
    ]


def test_a_good_model_is_not_warned_of() -> None:
    found = ClassificationFindings(("a", "b"), None)
    found.add([text("a"), text("b")] * 25, [said("a"), said("b")] * 25)
    assert warnings(found.to_dict(), "accuracy", 1.0, 0.3) == []


def test_scores_of_few_examples_are_warned_of() -> None:
    found = ClassificationFindings(("a", "b"), None)
    found.add([text("a")], [said("a")])
    assert warnings(found.to_dict(), "accuracy", 1.0) == [
        "the scores are of 1 example, too few to tell how good it is: have 50 or more"
    ]


def test_a_model_whose_other_scores_are_below_the_baseline_is_warned_of() -> None:
    mixed: dict[str, Any] = {"metrics": {"f1": 0.5, "accuracy": 0.6, "mae": 3.0}, "examples": 99}
    mixed["baseline"] = {"name": "the mean", "metrics": {"f1": 0.4, "accuracy": 0.7, "mae": 2.0}}
    assert warnings(mixed, "f1", 0.5) == ["most scores are below those of the mean: accuracy 0.6000, MAE 3.0000"]
    mixed["metrics"]["mae"] = 1.0
    assert warnings(mixed, "f1", 0.5) == []


def test_a_score_below_the_one_before_training_is_warned_of() -> None:
    found = ClassificationFindings(("a", "b"), None)
    found.add([text("a"), text("b"), text("b"), text("a")], [said("a"), said("b"), said("b"), said("b")])
    few, line = warnings(found.to_dict(), "accuracy", 0.75, 0.8)
    assert "too few" in few
    assert line == "accuracy 0.7500 is not better than before training (0.8000)"


def test_an_f1_of_two_classes_is_named_with_its_class() -> None:
    found = ClassificationFindings(("no", "yes"), None)
    found.add([text("no"), text("yes")], [said("no"), said("yes")])
    case = CASES["class"]
    evaluator = DevEvaluator(case.task(), case.examples, [], torch.device("cpu"), 100)
    evaluator.best_and_latest = [(found.metrics(), found)]
    assert evaluator.metric_name("f1") == "F1 of 'yes'"
    assert evaluator.metric_name("matthews") == "Matthews correlation"


def test_labels_that_were_never_learnt_count_as_wrong_and_are_named() -> None:
    found = ClassificationFindings(("a", "b"), None)
    found.add([text("a"), text("c"), text("b")], [said("a"), said("a"), said("b")])
    whole = found.to_dict()
    assert whole["metrics"]["accuracy"] == pytest.approx(2 / 3)
    assert [(row["label"], row["recall"]) for row in whole["classes"]] == [("a", 1.0), ("b", 1.0), ("c", 0.0)]
    lines = warnings(whole, "accuracy", 2 / 3)
    assert lines[1:] == ["1 have labels that the model never learnt ('c'): counted as wrong"]


def test_a_tagger_that_predicts_only_o_is_warned_of() -> None:
    found = TaggingFindings(("B-PER", "O"), Prior(counts={"O": 9, "B-PER": 1}))
    sentence = Sentence(location="made", words=("see", "Ann"), tags=("O", "B-PER"))
    found.add([sentence], [{"tags": ["O", "O"], "probabilities": [0.9, 0.8]}])
    whole = found.to_dict()
    lines = warnings(whole, "f1", whole["metrics"]["f1"])
    assert lines[1].startswith("the model predicts 'O' for all 2 words, and so no entity")
    assert lines[2] == "F1 0.0000 is not better than always predicting 'O', the commonest tag of training (0.0000)"
    assert whole["baseline"]["metrics"]["accuracy"] == 0.5
    assert whole["entities"] == [{"label": "PER", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}]
    (mistake,) = whole["mistakes"]
    assert (mistake["word"], mistake["true"], mistake["probability"]) == ("Ann", "B-PER", 0.8)


def test_a_constant_number_is_warned_of() -> None:
    found = RegressionFindings(Prior(mean=2.0))
    found.add([text(float(n), n) for n in range(5)], [{"number": 2.1}] * 5)
    whole = found.to_dict()
    lines = warnings(whole, "spearman", whole["metrics"]["spearman"])
    assert lines[1].startswith("the model predicts about 2.1 for all 5 examples")
    assert any("RMSE" in line and "always predicting 2, the mean of training" in line for line in lines)


def test_the_same_labels_for_every_text_are_warned_of() -> None:
    found = MultiLabelFindings(("a", "b"), None)
    found.add([text(("a",)), text(("b",))], [{"labels": [], "probabilities": {"a": 0.2, "b": 0.1}}] * 2)
    whole = found.to_dict()
    assert whole["constant"] == "no label for all 2 examples"
    assert whole["mistakes"][0]["label"] == "b"


def test_answers_are_grouped_by_length() -> None:
    task = CASES["answer"].task()
    found = findings_of(task)
    asked = [("1", "x"), ("2", "x y"), ("3", "")]
    questions = [
        Question(location=n, name=n, question="?", context=t, answers=(Answer(text=t, start=0),) if t else ())
        for n, t in asked
    ]
    found.add(questions, [{"answer": "x", "score": 1.0, "null_score_difference": 0.0} for _ in asked])
    groups = found.to_dict()["groups"]
    assert [(one["name"], one["exact"]) for one in groups] == [
        ("1 word", 1.0),
        ("2 or 3 words", 0.0),
        ("no answer", 0.0),
    ]


def test_of_a_million_predictions_only_the_most_confident_mistakes_and_a_sample_are_kept() -> None:
    worst, some = Mistakes(3), Sample[int](10)
    for number in range(10_000):
        worst.add((number * 7919) % 10_000 / 10_000, str(number), ["x" * 1000], "a", "b", probability=0.5)
        some.add(number)
    found = worst.to_list()
    chosen = sorted(range(10_000), key=lambda n: -((n * 7919) % 10_000))[:3]
    assert [one["location"] for one in found] == [str(n) for n in chosen]
    assert worst.count == 10_000
    assert len(found[0]["texts"][0]) == 400
    assert 5 <= len(some.kept) <= 10
    assert len(set(np.diff(some.kept))) == 1


def test_the_prior_counts_the_labels_of_training() -> None:
    found = Prior.of([text("b"), text("a"), text("b")])
    assert (found.most_frequent, found.counts) == ("b", {"b": 2, "a": 1})
    assert Prior.of([text(1.0), text(3.0)]).mean == 2.0
    assert Prior.of([Sentence(location="x", words=("a",), tags=("O",))]).most_frequent == "O"
    assert Prior.of([]).most_frequent is None
