"""A dev set that is held out shares no text with training, and is the same as ever where no text is repeated."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bertsmith.data.labelled import examples as labelled
from bertsmith.data.labelled.examples import Example, Question, Sentence, collect
from bertsmith.data.labelled.reader import LabelledData
from bertsmith.random_bits import permute
from bertsmith.runs.dev_split import split_dev


def split(examples: Sequence[Any], classes: bool = False) -> tuple[Sequence[Any], Sequence[Any], str]:
    train, dev = split_dev(LabelledData(examples=examples, description="", dropped={}, fingerprint=""), classes)
    assert len(train.examples) + len(dev.examples) == len(examples)
    return train.examples, dev.examples, dev.description


def questions(passages: int, each: int) -> list[Question]:
    numbers = [(passage, number) for passage in range(passages) for number in range(each)]
    return [
        Question(location="", name=f"{passage}-{number}", question=f"who {number} ?", context=f"the {passage} river")
        for passage, number in numbers
    ]


def texts(numbers: Sequence[int], kind: str) -> list[Any]:
    if kind == "tag":
        return [Sentence(location=str(at), words=("the", str(number))) for at, number in enumerate(numbers)]
    return [
        Example(location=str(at), texts=(f"the {number}",), label="ab"[at % 2]) for at, number in enumerate(numbers)
    ]


def test_all_questions_of_a_passage_go_to_one_side() -> None:
    train, dev, description = split(questions(passages=40, each=5))
    assert len(dev) == 20
    assert {one.context for one in train}.isdisjoint(one.context for one in dev)
    assert description == "20 of the training examples, held out, with all questions of their passages"
    train, dev, _ = split(questions(passages=3, each=8))  # none fits into a tenth
    assert (len(train), len(dev)) == (16, 8)
    for few in (1, 2, 9):
        train, dev, _ = split(questions(passages=1, each=few))  # there is nothing else to hold out
        assert len(dev) == min(1, few - 1)


@pytest.mark.parametrize("kind", ["tag", "classify"])
def test_texts_that_stand_in_training_are_not_held_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = texts([number % 60 if number < 120 else number for number in range(200)], kind)
    train, dev, description = split(found, classes=kind == "classify")
    key = "words" if kind == "tag" else "texts"
    assert 0 < len(dev) < 20
    assert {getattr(one, key) for one in train}.isdisjoint(getattr(one, key) for one in dev)
    assert f"{20 - len(dev)} more had texts that stand in training, and were left there" in description
    monkeypatch.setattr(labelled, "MAX_EXAMPLES_IN_MEMORY", 10)
    spooled = split(collect(found), classes=kind == "classify")
    assert (list(spooled[0]), list(spooled[1])) == (train, dev)
    assert len(split(texts([7] * 50, kind))[1]) == 5  # else none would be left


@pytest.mark.parametrize("kind", ["tag", "classify", "answer"])
def test_where_no_text_is_repeated_a_tenth_is_drawn(kind: str) -> None:
    found = questions(passages=300, each=1) if kind == "answer" else texts(range(300), kind)
    _, dev, description = split(found)
    assert dev == [found[number] for number in np.sort(permute(np.arange(30), 300, 0))]
    assert description == "30 of the training examples, held out"
