"""Laws that every task keeps: neighbours, filler and missing labels change nothing, and order is kept."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tasks.small import CASES, LENGTH, tokenizer
from tokenizers import Tokenizer as Library
from torch import Tensor

from bertsmith.data.batch import LabelledBatch
from bertsmith.data.rows import Row, pack_rows
from bertsmith.tasks import TASKS, base
from bertsmith.tasks.base import Bucket, Item, Task, predict, truncate, with_special_tokens

pytestmark = pytest.mark.slow("builds every task for every member")

LABELLED = [name for name, case in CASES.items() if case.nameless]


def items_of(task: Task, examples: Sequence[Any]) -> list[Item]:
    return task.preprocess(examples, tokenizer(), LENGTH)


def learnt(task: Task, items: Sequence[Item], bucket: Bucket) -> tuple[float, dict[str, Tensor]]:
    """The loss of a batch, divided as a trainer divides it, and its gradients."""
    task.zero_grad()
    batch = task.collate(items, bucket)
    (name, term), *others = task(batch).items()
    assert not others
    assert term.correct is None
    loss = term.total / batch.counts[name]
    loss.backward()
    return float(loss.detach()), {
        name: parameter.grad.clone() for name, parameter in task.named_parameters() if parameter.grad is not None
    }


def assert_same(one: tuple[float, dict[str, Tensor]], other: tuple[float, dict[str, Tensor]], most: float) -> None:
    assert one[0] == pytest.approx(other[0], abs=most)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], rtol=0, atol=most, msg=name)


def assert_close(one: Any, other: Any, most: float) -> None:
    """Predictions that agree: words exactly, numbers nearly."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_close(one[key], other[key], most)
    elif isinstance(one, list):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_close(left, right, most)
    else:
        assert one == (pytest.approx(other, abs=most) if isinstance(one, float) else other)


@pytest.mark.parametrize("name", CASES)
def test_other_texts_do_not_change_the_outputs(name: str) -> None:
    task = CASES[name].task()
    rows = [row for item in items_of(task, CASES[name].examples) for row in item.rows]
    assert len({len(row) for row in rows}) > 3
    with torch.inference_mode():
        crowd = task.outputs(pack_rows(rows))
        for row, said in zip(rows, crowd, strict=True):
            (alone,) = task.outputs(pack_rows([row]))
            torch.testing.assert_close(alone, said, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_predictions_come_in_the_order_of_the_examples_whatever_their_lengths(name: str) -> None:
    task, examples = CASES[name].task(), CASES[name].examples
    together = predict(task, examples, items_of(task, examples), device="cpu")
    order = np.random.default_rng(0).permutation(len(examples))
    for budget in (1, 70):
        turned = [examples[number] for number in order]
        again = predict(task, turned, items_of(task, turned), device="cpu", budget=budget)
        for number, said in zip(order, again, strict=True):
            assert_close(said, together[number], 1e-5)
    for example, said in zip(examples, together, strict=True):
        assert_close(predict(task, [example], items_of(task, [example]), device="cpu"), [said], 1e-5)


@pytest.mark.parametrize("multiple", [16, 512])
@pytest.mark.parametrize("name", CASES)
def test_padding_and_missing_items_change_neither_loss_nor_gradients(name: str, multiple: int) -> None:
    task = CASES[name].task()
    items = items_of(task, CASES[name].examples)
    plain = learnt(task, items, Bucket(batch_size=len(items), max_length=LENGTH))
    assert plain[0] > 0.01
    assert max(float(gradient.abs().max()) for gradient in plain[1].values()) > 0.01
    for places in (len(items), len(items) + 3):
        bucket = Bucket(
            batch_size=places, max_length=LENGTH, pad_to_multiple_of=multiple, padding=tokenizer().padding_id
        )
        assert_same(learnt(task, items, bucket), plain, 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_batches_of_any_items_have_one_shape_except_for_a_few_numbers_of_tokens(name: str) -> None:
    task = CASES[name].task()
    items = items_of(task, CASES[name].examples)
    bucket = Bucket(batch_size=6, max_length=LENGTH, pad_to_multiple_of=64, padding=tokenizer().padding_id)
    batches = [task.collate(items[begin:end], bucket) for begin, end in ((0, 6), (1, 7), (0, 2))]
    shapes = {
        (tokens.bounds.shape, tokens.max_length, batch.labels.shape if isinstance(batch, LabelledBatch) else None)
        for batch in batches
        for tokens in [batch.tokens]
    }
    assert len(shapes) == 1
    for batch in batches:
        tokens = batch.tokens
        assert len(tokens.ids) % 64 == 0
        assert len(tokens.ids) - batch.counts["tokens"] < 64
        assert int(tokens.bounds[-1]) == len(tokens.ids)
        assert int(tokens.bounds.diff().max()) <= LENGTH
        assert int(tokens.positions.max()) < LENGTH


@pytest.mark.parametrize("multiple", [0, 64])
@pytest.mark.parametrize("name", LABELLED)
def test_examples_without_a_label_change_neither_loss_nor_gradients(name: str, multiple: int) -> None:
    task, case = CASES[name].task(), CASES[name]
    known, nameless = items_of(task, case.examples), items_of(task, case.nameless)
    plain = learnt(task, known, Bucket(batch_size=len(known), max_length=LENGTH))
    mixed = [item for both in zip(nameless, known, strict=True) for item in both]
    bucket = Bucket(
        batch_size=len(mixed) + 1, max_length=LENGTH, pad_to_multiple_of=multiple, padding=tokenizer().padding_id
    )
    assert_same(learnt(task, mixed, bucket), plain, 1e-6)


@pytest.mark.parametrize("multiple", [0, 64])
@pytest.mark.parametrize("name", LABELLED)
def test_without_labels_nothing_is_learnt(name: str, multiple: int) -> None:
    task = CASES[name].task()
    items = items_of(task, CASES[name].nameless)
    bucket = Bucket(
        batch_size=len(items) + 2, max_length=LENGTH, pad_to_multiple_of=multiple, padding=tokenizer().padding_id
    )
    loss, gradients = learnt(task, items, bucket)
    assert loss == 0.0
    assert gradients
    assert all(not gradient.any() for gradient in gradients.values())  # nan would be some


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_of_the_real_tokens(name: str) -> None:
    task = CASES[name].task()
    items = items_of(task, CASES[name].examples)
    lengths = [len(row) for item in items for row in item.rows]
    counts = task.collate(items, Bucket(batch_size=20, max_length=LENGTH, pad_to_multiple_of=64)).counts
    assert counts["tokens"] == sum(lengths)
    assert counts["squares"] == sum(length**2 for length in lengths)


@pytest.mark.parametrize("name", CASES)
def test_no_row_exceeds_max_length_and_all_have_special_tokens(name: str) -> None:
    task, tokens = CASES[name].task(), tokenizer()
    for length in (12, 17, LENGTH):
        changed = {} if name != "answer" else {"overlap": 1, "max_question_length": 3}
        task.config = type(task.config)(**{**vars(task.config), **changed})
        for item in task.preprocess(CASES[name].examples, tokens, length):
            for row in item.rows:
                ids, segments = row.ids.tolist(), row.segments.tolist()
                assert 2 <= len(row) <= length
                assert (ids[0], ids[-1]) == (tokens.start_id, tokens.stop_id)
                assert ids.count(tokens.stop_id) == 1 + max(segments)
                assert segments == sorted(segments)
                if max(segments):
                    assert segments.index(1) == ids.index(tokens.stop_id) + 1


def test_special_tokens_are_those_of_the_library() -> None:
    tokens = tokenizer()
    for first, second in (("the old cat", None), ("the old cat", "sees 1984"), ("", "dog"), ("dog", "")):
        ids, segments = tokens.encode_pair(first, second)
        pieces = tokens.encode([first, second or ""])
        row = with_special_tokens(tokens, pieces[0], None if second is None else pieces[1])
        assert (row.ids.tolist(), row.segments.tolist()) == (ids, segments)


LIBRARY = Library.from_str(tokenizer()._inner.to_str())


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 40), st.none() | st.integers(0, 40), st.integers(4, 40))
def test_texts_are_truncated_longest_first_as_by_the_library(first: int, second: int | None, length: int) -> None:
    texts = ["cat " * first] if second is None else ["cat " * first, "dog " * second]
    LIBRARY.enable_truncation(length, strategy="longest_first")
    theirs = LIBRARY.encode(*texts)
    encoded = tokenizer().encode(texts)
    room = length - len(texts) - 1
    one, other, cut = truncate(encoded[0], encoded[1] if len(texts) > 1 else None, room)
    row = with_special_tokens(tokenizer(), one, other)
    assert row.ids.tolist() == theirs.ids
    assert row.segments.tolist() == theirs.type_ids
    assert cut == first + (second or 0) - len(one) - len(other or ())


def test_the_items_of_one_example_give_one_prediction() -> None:
    """A window each, scattered over passes by their lengths, come back to their own example."""
    task, examples = CASES["tag"].task(), CASES["tag"].examples
    items = items_of(task, examples)
    assert len(items) > len(examples)
    heard = []

    class Listening(type(task)):  # type: ignore[misc]
        def postprocess(self, example: Any, items: Sequence[Item], outputs: Sequence[Any]) -> Any:
            heard.append([len(output) for output in outputs] == [len(item.rows[0]) for item in items])
            return [item.example for item in items]

    task.__class__ = Listening
    found = predict(task, examples, items, device="cpu", budget=40)
    assert all(heard)
    assert found == [[item.example for item in items if item.example == number] for number in range(len(examples))]


def test_the_share_that_is_done_rises_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    task, examples = CASES["class"].task(), CASES["class"].examples
    items = items_of(task, examples)
    for held in (base.MAX_HELD_ITEMS, 2):
        monkeypatch.setattr(base, "MAX_HELD_ITEMS", held)
        shares = list[float]()
        predict(task, examples, items, device="cpu", budget=1, progress=shares.append)
        assert len(shares) == len(items)
        assert shares == pytest.approx([(number + 1) / len(items) for number in range(len(items))])


def test_no_examples_have_no_predictions() -> None:
    for case in CASES.values():
        task = case.task()
        assert predict(task, [], items_of(task, []), device="cpu") == []


def test_every_task_is_in_the_table_under_a_unique_name() -> None:
    assert {type(case.task()) for case in CASES.values()} <= set(TASKS.values())
    assert len(set(TASKS.values())) == len(TASKS)


def test_a_bucket_without_a_multiple_adds_no_padding() -> None:
    rows = [Row(np.arange(size, dtype=np.int32), np.zeros(size, np.int32)) for size in (3, 5)]
    tokens = Bucket(batch_size=9, max_length=8).collate(rows, 9)
    assert tokens.bounds.tolist() == [0, 3, 8]
    assert tokens.max_length == 5
