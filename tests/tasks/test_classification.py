"""A class, a number or several labels: targets, losses, predictions, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tasks.small import CASES, LENGTH, shape, tokenizer

from bertsmith.data.batch import Batch
from bertsmith.data.labelled.examples import Example, Label
from bertsmith.errors import RecipeError, TextError
from bertsmith.models.transformer import Transformer
from bertsmith.tasks.base import Bucket, predict
from bertsmith.tasks.classification import SequenceClassification


def classify(
    problem: Any = "single_label", labels: tuple[str, ...] = ("no", "yes"), **settings: Any
) -> SequenceClassification:
    return SequenceClassification(
        Transformer(shape()), SequenceClassification.Config(problem=problem, **settings), labels
    ).eval()


def example(label: Label | None, *texts: str) -> Example:
    return Example(location="reviews.tsv:7", texts=texts or ("the cat",), label=label)


def batch(task: SequenceClassification, *labels: Label | None) -> Batch:
    items = task.preprocess([example(label) for label in labels], tokenizer(), LENGTH)
    return task.collate(items, Bucket(batch_size=len(items), max_length=LENGTH))


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["b", "a", "b"], ("a", "b")),
        (["10", "9", "-1", "9"], ("-1", "9", "10")),
        (["10", "9", "x"], ("10", "9", "x")),
        (["--5", "3"], ("--5", "3")),
        ([("b", "a"), (), ("c",)], ("a", "b", "c")),
        (["no", None, "yes"], ("no", "yes")),
    ],
)
def test_classes_are_in_the_order_of_numbers_or_of_the_alphabet(
    labels: list[Label | None], classes: tuple[str, ...]
) -> None:
    assert SequenceClassification.collect_labels([example(label) for label in labels]) == classes


def test_the_file_that_is_read_is_that_of_the_answer() -> None:
    kinds = [
        SequenceClassification.file_kind(SequenceClassification.Config(problem=problem))
        for problem in ("single_label", "regression", "multi_label")
    ]
    assert kinds == ["classify", "number", "labels"]


def test_labels_become_ids() -> None:
    found = batch(classify(), "yes", "no", None)
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, -100]
    assert found.counts["class"] == 2
    found = batch(classify("regression", ()), 2.5, None, -100.0)
    assert found.labels is not None
    assert torch.equal(found.labels, torch.tensor([2.5, torch.nan, -100.0])) is False  # nan is not itself
    assert found.labels.nan_to_num(7).tolist() == [2.5, 7.0, -100.0]
    assert found.counts["class"] == 2
    found = batch(classify("multi_label", ("a", "b", "c")), ("c", "a"), (), None)
    assert found.labels is not None
    assert found.labels.tolist() == [[1, 0, 1], [0, 0, 0], [-1, -1, -1]]
    assert found.counts["class"] == 2


@pytest.mark.parametrize("answer", ["class", "number", "labels"])
def test_losses_are_those_of_the_formula(answer: str) -> None:
    task, examples = CASES[answer].task(), CASES[answer].examples
    assert isinstance(task, SequenceClassification)
    items = task.preprocess(examples, tokenizer(), LENGTH)
    found = task.collate(items, Bucket(batch_size=8, max_length=LENGTH))
    logits = task.logits(found.tokens).detach().double()
    total = 0.0
    for row, one in zip(logits, examples, strict=True):
        match answer:
            case "class":
                total -= float(row.log_softmax(0)[task.labels.index(one.label)])
            case "number":
                total += float((row[0] - one.label) ** 2)
            case "labels":
                yes = [label in one.label for label in task.labels]
                chosen = [F.logsigmoid(it if said else -it) for it, said in zip(row, yes, strict=True)]
                total -= float(sum(chosen)) / 3
    assert task(found)["class"].total.item() == pytest.approx(total, rel=1e-5)


def test_long_pairs_and_texts_are_truncated_and_counted() -> None:
    texts = [example("yes", "cat " * 9), example("yes", "cat " * 7, "dog " * 9), example("no", "cat", "dog")]
    items = classify().preprocess(texts, tokenizer(), 10)
    assert [item.truncated for item in items] == [1, 9, 0]
    assert [len(item.rows[0]) for item in items] == [10, 10, 5]
    cat, dog = (tokenizer().encode([word])[0][0] for word in ("cat", "dog"))
    assert items[1].rows[0].ids.tolist() == [
        tokenizer().start_id, cat, cat, cat, tokenizer().stop_id, dog, dog, dog, dog, tokenizer().stop_id,
    ]  # fmt: skip


def test_predictions_have_the_class_and_all_probabilities() -> None:
    said = classify("single_label", ("no", "so-so", "yes")).postprocess(
        example(None), [], [np.log([1.0, 5.0, 4.0]).astype("f4")]
    )
    assert said["label"] == "so-so"
    assert said["probabilities"] == pytest.approx({"no": 0.1, "so-so": 0.5, "yes": 0.4})
    said = classify("regression", ()).postprocess(example(None), [], [np.array([2.5], np.float32)])
    assert said == {"number": 2.5}
    logits = np.array([0.1, -0.1, 3.0], np.float32)
    said = classify("multi_label", ("a", "b", "c")).postprocess(example(None), [], [logits])
    assert said["labels"] == ["a", "c"]
    assert said["probabilities"]["b"] == pytest.approx(1 / (1 + np.exp(0.1)))
    assert classify("multi_label", ("a", "b", "c"), threshold=0.9).postprocess(example(None), [], [logits])[
        "labels"
    ] == ["c"]


def test_extreme_logits_give_no_warning() -> None:
    logits = np.array([-1e4, 1e4], np.float32)
    assert classify().postprocess(example(None), [], [logits])["probabilities"] == {"no": 0.0, "yes": 1.0}
    assert classify("multi_label").postprocess(example(None), [], [logits])["probabilities"] == {"no": 0.0, "yes": 1.0}


def test_the_headline_is_the_configured_metric() -> None:
    examples = [example(label) for label in ("no", "yes", "yes", "yes", "no")]
    said = [{"label": label} for label in ("no", "yes", "no", "yes", "yes")]
    for measure in ("accuracy", "f1", "accuracy_f1", "matthews", "macro_f1"):
        figures = classify(metric=measure).score(examples, said)
        assert next(iter(figures)) == measure
        assert figures["accuracy"] == pytest.approx(0.6)
        assert figures["f1"] == pytest.approx(2 / 3)
        assert figures["accuracy_f1"] == pytest.approx((0.6 + 2 / 3) / 2)
    three = classify(labels=("maybe", "no", "yes")).score(examples, said)
    assert list(three) == ["accuracy", "macro_f1"]


def test_numbers_are_scored_by_order_and_labels_by_their_sets() -> None:
    numbers = [example(1.0), example(2.0), example(3.0)]
    figures = classify("regression", ()).score(numbers, [{"number": value} for value in (0.1, 0.2, 50.0)])
    assert list(figures) == ["spearman", "pearson"]
    assert figures["spearman"] == pytest.approx(1.0)
    assert figures["pearson"] < 0.9
    sets = [example(("a", "b")), example(())]
    figures = classify("multi_label", ("a", "b")).score(sets, [{"labels": ["a"]}, {"labels": []}])
    assert figures == {"micro_f1": pytest.approx(2 / 3), "accuracy": 0.5}


def test_an_overfitted_class_is_predicted() -> None:
    task = CASES["class"].task()
    examples = CASES["class"].examples
    items = task.preprocess(examples, tokenizer(), LENGTH)
    found = task.collate(items, Bucket(batch_size=8, max_length=LENGTH))
    optimizer = torch.optim.AdamW(task.parameters(), lr=0.01)
    for _ in range(30):
        optimizer.zero_grad()
        task(found)["class"].total.backward()
        optimizer.step()
    said = predict(task, examples, items, device="cpu")
    assert [one["label"] for one in said] == [one.label for one in examples]
    assert task.score(examples, said)["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("problem", "label", "line"),
    [
        ("single_label", "yess", "reviews.tsv:7: the label 'yess' is not among those learnt. Did you mean 'yes'?"),
        ("single_label", "4", "reviews.tsv:7: the label '4' is not among those learnt. Known: no, yes."),
        (
            "multi_label",
            ("no", "nope"),
            "reviews.tsv:7: the label 'nope' is not among those learnt. Did you mean 'no'?",
        ),
    ],
)
def test_an_unknown_label_is_refused_with_its_location(problem: str, label: Label, line: str) -> None:
    with pytest.raises(TextError) as caught:
        classify(problem).preprocess([example(label)], tokenizer(), LENGTH)
    assert str(caught.value) == line


@pytest.mark.parametrize("problem", ["single_label", "multi_label"])
def test_one_class_is_refused(problem: str) -> None:
    with pytest.raises(RecipeError) as caught:
        classify(problem, ("yes",)).check_classes()
    assert str(caught.value) == "task: there is only one class, ('yes',). Give examples of at least two."


@pytest.mark.parametrize("measure", ["f1", "accuracy_f1", "matthews"])
def test_a_binary_metric_is_refused_for_three_classes_before_training(measure: str) -> None:
    with pytest.raises(RecipeError) as caught:
        classify(labels=("a", "b", "c"), metric=measure)
    assert str(caught.value) == f"task.metric: '{measure}' needs two classes. Use accuracy or macro_f1."


def test_balanced_weights_make_rare_classes_count_as_much_as_common_ones() -> None:
    """As scikit-learn's `balanced`, and as torch's `pos_weight` for several labels."""
    labels = ["a"] * 6 + ["b"] * 2 + [None]
    task = SequenceClassification(
        Transformer(shape()), SequenceClassification.Config(class_weights="balanced"), ("a", "b")
    )
    task.set_class_weights(labels)
    assert task.class_weights is not None
    assert task.class_weights.tolist() == pytest.approx([8 / (2 * 6), 8 / (2 * 2)])
    assert "weights" not in task.state_dict()
    several = SequenceClassification(
        Transformer(shape()), SequenceClassification.Config(problem="multi_label", class_weights="balanced"), ("a", "b")
    )
    several.set_class_weights([("a",), ("a", "b"), ("a",), ()])
    assert several.class_weights is not None
    assert several.class_weights.tolist() == pytest.approx([1 / 3, 3.0])
    examples = [Example(location="", texts=("cat",), label=label) for label in "aab"]
    batch = task.collate(task.preprocess(examples, tokenizer(), LENGTH), Bucket(batch_size=3, max_length=LENGTH))
    task.eval()
    with torch.no_grad():
        weighed = float(task(batch)["class"].total)
        task.class_weights = None
        found = task.preprocess(examples, tokenizer(), LENGTH)
        alone = [
            float(task(task.collate([one], Bucket(batch_size=1, max_length=LENGTH)))["class"].total) for one in found
        ]
    assert weighed == pytest.approx(2 / 3 * alone[0] + 2 / 3 * alone[1] + 2 * alone[2], rel=1e-5)


def test_numbers_have_no_class_weights() -> None:
    with pytest.raises(ValueError, match="numbers have no classes"):
        SequenceClassification.Config(problem="regression", class_weights="balanced")


def test_numbers_are_learnt_in_units_of_their_deviation_and_saved_in_their_own() -> None:
    """House prices: a head in their own units would take a step of the learning rate towards 300,000."""
    torch.manual_seed(0)
    task = classify("regression", ())
    prices = (250_000.0, 310_000.0, 340_000.0)
    examples = [example(price, text) for price, text in zip(prices, ("the cat", "a dog", "the king"), strict=True)]
    asked = task.collate(task.preprocess(examples, tokenizer(), LENGTH), Bucket(batch_size=3, max_length=LENGTH))
    task.standardise(float(np.mean(prices)), float(np.std(prices)))
    plain = task.logits(asked.tokens).detach()[:, 0]
    assert (plain - 300_000).abs().max() < 100_000  # near the mean before any step
    loss = task(asked)["class"].total.item()
    torch.testing.assert_close(loss, (((plain - torch.tensor(prices)) / task.deviation) ** 2).sum().item())
    optimizer = torch.optim.Adam(task.parameters(), 1e-3)
    for _ in range(30):
        optimizer.zero_grad()
        task(asked)["class"].total.backward()
        optimizer.step()
    assert task(asked)["class"].total.item() < 0.5 * loss
    learnt = task.logits(asked.tokens)
    task.fold_standardisation()
    assert (task.mean, task.deviation) == (0.0, 1.0)
    torch.testing.assert_close(task.logits(asked.tokens), learnt, rtol=1e-5, atol=0.1)
    task.fold_standardisation()
    torch.testing.assert_close(task.logits(asked.tokens), learnt, rtol=1e-5, atol=0.1)
