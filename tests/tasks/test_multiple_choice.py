"""Endings are compared with each other, each read with the beginning."""

import numpy as np
import pytest
import torch
from tasks.small import CASES, LENGTH, shape, stirred, tokenizer

from bertsmith.data.labelled.examples import Example
from bertsmith.errors import TextError
from bertsmith.models.transformer import Transformer
from bertsmith.tasks.base import Bucket, predict
from bertsmith.tasks.multiple_choice import MultipleChoice


def choose(labels: tuple[str, ...] = ("0", "1")) -> MultipleChoice:
    made: MultipleChoice = stirred(MultipleChoice(Transformer(shape()), MultipleChoice.Config(), labels))
    return made


def example(label: str | None, *texts: str) -> Example:
    return Example(location="swag.csv:9", texts=texts, label=label)


def test_each_ending_is_paired_with_the_context() -> None:
    (item,) = choose().preprocess([example("1", "the cat", "sees", "likes the dog")], tokenizer(), LENGTH)
    for row, ending in zip(item.rows, ("sees", "likes the dog"), strict=True):
        assert (row.ids.tolist(), row.segments.tolist()) == tokenizer().encode_pair("the cat", ending)
    assert item.target == 1


def test_the_longest_truncation_of_any_ending_is_counted() -> None:
    (item,) = choose().preprocess([example("0", "cat " * 5, "dog", "dog " * 9)], tokenizer(), 10)
    assert [len(row) for row in item.rows] == [9, 10]
    assert item.truncated == 7


def test_the_loss_is_a_softmax_over_the_endings_of_each_context() -> None:
    task, examples = CASES["choose"].task(), CASES["choose"].examples
    items = task.preprocess(examples, tokenizer(), LENGTH)
    batch = task.collate(items, Bucket(batch_size=8, max_length=LENGTH))
    with torch.no_grad():
        outputs = iter(task.outputs(batch.tokens))
    total = 0.0
    for one in examples:
        logits = torch.stack([next(outputs) for _ in range(3)]).double()
        total -= float(logits.log_softmax(0)[int(one.label)])
    assert task(batch)["choice"].total.item() == pytest.approx(total, rel=1e-5)
    assert batch.counts["choice"] == 8


def test_the_ending_with_the_highest_score_is_chosen() -> None:
    outputs = [np.array(np.log(value), np.float32) for value in (1.0, 7.0, 2.0)]
    said = choose(("0", "1", "2")).postprocess(example(None, "b", "x", "y", "z"), [], outputs)
    assert (said["label"], said["ending"]) == ("1", "y")
    assert said["probabilities"] == pytest.approx({"0": 0.1, "1": 0.7, "2": 0.2})


def test_endings_in_another_order_get_the_same_probabilities() -> None:
    task = choose(("0", "1", "2"))
    texts = ("the cat", "sees the dog", "likes", "in the old garden")
    turned = (texts[0], texts[3], texts[1], texts[2])
    said, again = (
        predict(
            task, [example(None, *some)], task.preprocess([example(None, *some)], tokenizer(), LENGTH), device="cpu"
        )[0]
        for some in (texts, turned)
    )
    assert said["ending"] == again["ending"]
    turned = [again["probabilities"][number] for number in "120"]
    assert turned == pytest.approx(list(said["probabilities"].values()), abs=1e-5)


def test_without_labels_any_number_of_endings_is_compared() -> None:
    task = choose(())
    examples = [example(None, "the cat", *["sees", "likes", "old dog", "river"][:count]) for count in (2, 4, 3)]
    said = predict(task, examples, task.preprocess(examples, tokenizer(), LENGTH), device="cpu")
    assert [list(one["probabilities"]) for one in said] == [["0", "1"], ["0", "1", "2", "3"], ["0", "1", "2"]]
    for one, whole in zip(said, examples, strict=True):
        assert one["ending"] == whole.texts[1 + int(one["label"])]
        assert sum(one["probabilities"].values()) == pytest.approx(1.0)


def test_accuracy_is_the_score() -> None:
    examples = [example(label, "b", "x", "y") for label in "0110"]
    assert MultipleChoice.collect_labels(examples) == ("0", "1")
    assert choose().score(examples, [{"label": label} for label in "0100"]) == {"accuracy": 0.75}


def test_a_wrong_number_of_endings_is_refused_with_its_location() -> None:
    with pytest.raises(TextError) as caught:
        choose().preprocess([example("0", "b", "x", "y", "z")], tokenizer(), LENGTH)
    assert str(caught.value) == "swag.csv:9: has 3 endings where others have 2. Give every row as many."


def test_a_label_that_is_no_ending_is_refused_with_its_location() -> None:
    with pytest.raises(TextError) as caught:
        choose().preprocess([example("2", "b", "x", "y")], tokenizer(), LENGTH)
    assert str(caught.value) == "swag.csv:9: there is no ending 2. Number them 0 to 1."
