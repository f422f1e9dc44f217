"""Many examples are kept in a file: the same sequence as a list, in a memory that hardly grows."""

from pathlib import Path

import numpy as np
import pytest

from bertsmith.data.labelled import examples, reader
from bertsmith.data.labelled.examples import Answer, Example, Question, Sentence, collect, take
from bertsmith.data.spool import Spool

SOME = [
    Example(location="a:1", texts=("ein Öl", "\u2028 \ud83d"), label="x"),
    Example(location="a:2", texts=("",), label=0.1 + 0.2),
    Example(location="a:3", texts=("b",), label=("x", "y")),
    Example(location="a:4", texts=("c",), label=()),
    Example(location="a:5", texts=("d",)),
    Sentence(location="b:1", words=("EU", "says"), tags=("B-ORG", "O")),
    Sentence(location="b:2", words=("EU",)),
    Question(location="c:1", name="q", question="Who?", context="me", answers=(Answer(text="me", start=0),)),
    Question(location="c:2", name="r", question="Who?", context="you", answers=()),
    Question(location="c:3", name="s", question="Who?", context="we"),
]


@pytest.fixture
def spooled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "MAX_EXAMPLES_IN_MEMORY", 0)


def test_a_few_examples_are_a_list_and_many_are_a_spool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(collect(SOME), list)
    monkeypatch.setattr(examples, "MAX_EXAMPLES_IN_MEMORY", 3)
    assert isinstance(collect(SOME[:4]), Spool)
    assert isinstance(collect(SOME[:3]), list)
    monkeypatch.setattr(examples, "MAX_CHARACTERS_IN_MEMORY", 5)
    assert isinstance(collect(SOME[:1]), Spool)


def test_a_spool_is_the_same_sequence_as_the_list(spooled: None) -> None:
    found = collect(SOME)
    assert isinstance(found, Spool)
    assert len(found) == len(SOME)
    assert list(found) == SOME
    assert [found[number] for number in range(-len(SOME), len(SOME))] == SOME * 2
    for some in (slice(2, 5), slice(None, None, 3), slice(-3, None), slice(5, 2)):
        assert found[some] == SOME[some]
    with pytest.raises(IndexError):
        found[len(SOME)]
    assert isinstance(found[1].label, float)


def test_some_records_can_be_taken_in_any_order(spooled: None) -> None:
    numbers = np.array([7, 2, 2, 0])
    found = take(collect(SOME), numbers)
    assert list(found) == [SOME[number] for number in numbers] == take(SOME, numbers)
    assert found[-1] == SOME[0]
    assert list(take(found, np.array([1]))) == [SOME[2]]


def test_records_that_are_far_apart_come_in_order_too() -> None:
    spool = Spool(bytes.decode)
    for number in range(30_000):
        spool.append(str(number).encode() * 40)
    assert list(spool) == [str(number) * 40 for number in range(30_000)]
    far = np.arange(0, 30_000, 29)
    assert list(spool.take(far)) == [str(number) * 40 for number in far]


def test_nothing_is_left_of_a_spool(spooled: None, tmp_path: Path) -> None:
    found = collect(SOME, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert list(found) == SOME


def test_a_labelled_file_with_many_rows_is_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"text {row},{'xy'[row % 2]}\n" for row in range(50)) + "z,\n")
    whole = reader.read(path, "classify")
    monkeypatch.setattr(examples, "MAX_EXAMPLES_IN_MEMORY", 7)
    monkeypatch.setattr(reader, "EXAMPLES_PER_REPORT", 10)
    seen: list[int] = []
    many = reader.read(path, "classify", folder=tmp_path, progress=seen.append)
    assert isinstance(many.examples, Spool)
    assert list(many.examples) == whole.examples
    assert (many.description, many.dropped, many.fingerprint) == (whole.description, whole.dropped, whole.fingerprint)
    assert seen == [10, 20, 30, 40, 50]
