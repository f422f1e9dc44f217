"""Items of many examples are kept in a file, each as it was."""

from typing import Any

import numpy as np
import pytest
from tasks.small import CASES, LENGTH, tokenizer

from bertsmith.data.labelled import examples as kept_examples
from bertsmith.data.labelled.examples import collect
from bertsmith.data.rows import Row
from bertsmith.tasks import base, items
from bertsmith.tasks.base import Item, predict


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return type(one) is type(other) and (one == other or one != one)


def assert_same(one: Item, other: Item) -> None:
    for left, right in zip(one.rows, other.rows, strict=True):
        assert same((left.ids, left.segments, left.character_ids), (right.ids, right.segments, right.character_ids))
    assert (one.example, one.truncated) == (other.example, other.truncated)
    assert same(one.target, other.target)
    assert same(one.notes, other.notes)


@pytest.mark.parametrize("name", CASES)
def test_items_from_a_spool_are_those_of_a_list(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    task, examples = case.task(), [*case.examples, *case.nameless]
    whole = task.preprocess(examples, tokenizer(), LENGTH)
    monkeypatch.setattr(items, "CHUNK_EXAMPLES", 3)
    monkeypatch.setattr(kept_examples, "MAX_EXAMPLES_IN_MEMORY", 2)
    seen: list[int] = []
    many = items.make_items(task, collect(examples), tokenizer(), LENGTH, progress=seen.append)
    assert isinstance(many, items.ItemSpool)
    assert seen[-1] == len(examples)
    for listed in (many, items.make_items(task, examples, tokenizer(), LENGTH)):
        assert len(listed) == len(whole)
        for one, other in zip(listed, whole, strict=True):
            assert_same(one, other)
        assert items.count_truncated(listed) == sum(item.truncated > 0 for item in whole)


def test_letters_odd_segments_and_shared_notes_come_back() -> None:
    ids = np.arange(3, dtype=np.int32)
    notes = {"any": "object"}
    row = Row(ids, np.array([1, 0, 1], np.int32), np.arange(12, dtype=np.int16).reshape(3, 4))
    spool = items.ItemSpool()
    for number in range(3):
        spool.add(
            Item(rows=(row, Row(ids, ids * 0)), example=number, target=np.float32("nan"), notes=notes, truncated=2)
        )
    found = list(spool.seal())
    for number, item in enumerate(found):
        assert_same(
            item,
            Item(rows=(row, Row(ids, ids * 0)), example=number, target=np.float32("nan"), notes=notes, truncated=2),
        )
        assert item.notes is notes
    assert len(spool._objects) == 1


@pytest.mark.parametrize("name", ["class", "tag", "pairs"])
def test_predictions_in_parts_are_those_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    task = case.task()
    found = task.preprocess(case.examples, tokenizer(), LENGTH)
    whole = predict(task, case.examples, found, device="cpu")
    monkeypatch.setattr(base, "MAX_HELD_ITEMS", 3)
    parts = predict(task, case.examples, found, device="cpu")
    assert len(parts) == len(whole)
    for one, other in zip(parts, whole, strict=True):
        assert one.keys() == other.keys()
        for key in one.keys() & {"label", "tags", "words"}:
            assert one[key] == other[key]
        if name == "pairs":
            assert one["cosine"] == pytest.approx(other["cosine"], abs=1e-5)
