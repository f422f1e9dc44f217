"""Questions come back as they were written, each answer where it stands; bad ones are counted or refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.labelled.bad_rows import BadRows, Policy
from bertsmith.data.labelled.examples import Answer, Question
from bertsmith.data.labelled.sources import find_source
from bertsmith.data.labelled.squad import read
from bertsmith.errors import TextError

PASSAGE = "It is me. No, it is you, and you, and you."


def parsed(path: Path, data: str | bytes, policy: Policy = "skip") -> tuple[list[Question], str, dict[str, int]]:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    dropped = BadRows(policy)
    found, said = read(find_source(path), dropped)
    return found, said, dict(dropped.counts)


def content(*questions: Any, passage: Any = PASSAGE, version: str = "1.1") -> str:
    return json.dumps({"version": version, "data": [{"paragraphs": [{"context": passage, "qas": list(questions)}]}]})


def asked(*answers: tuple[Any, Any], **more: Any) -> dict[str, Any]:
    return {"id": "a", "question": "Who?", "answers": [{"text": t, "answer_start": s} for t, s in answers]} | more


def test_a_question_has_its_answers_and_their_places(tmp_path: Path) -> None:
    found, said, counts = parsed(tmp_path / "a.json", content(asked(("me", 6), ("you", 20))))
    assert found[0].answers == (Answer(text="me", start=6), Answer(text="you", start=20))
    assert (found[0].name, found[0].question, found[0].context) == ("a", "Who?", PASSAGE)
    assert found[0].location == f"{tmp_path / 'a.json'}: article 1, paragraph 1, question 1"
    assert (said, counts) == ("questions of SQuAD 1.1: 1 in all, without an answer: 0", {})


def test_an_impossible_question_has_no_answers(tmp_path: Path) -> None:
    plausible = [{"text": "me", "answer_start": 6}]
    data = content(asked(is_impossible=True, plausible_answers=plausible), asked(), version="v2.0")
    found, said, _ = parsed(tmp_path / "a.json", data)
    assert [question.answers for question in found] == [(), ()]
    assert said == "questions of SQuAD 2.0: 2 in all, without an answer: 2"


@pytest.mark.parametrize(("start", "right"), [(0, 20), (19, 20), (21, 20), (25, 29), (39, 38), (10**30, 38), (-5, 20)])
def test_an_answer_at_a_wrong_start_is_relocated_to_the_nearest_occurrence(
    tmp_path: Path, start: int, right: int
) -> None:
    found, said, counts = parsed(tmp_path / "a.json", content(asked(("you", start))))
    assert found[0].answers == (Answer(text="you", start=right),)
    assert (said[-45:], counts) == (", answers found elsewhere in their passage: 1", {})


def test_answers_of_a_table_may_be_texts_without_a_start(tmp_path: Path) -> None:
    header = "Question,context,answer"
    data = "\n".join([header, f'Who?,"{PASSAGE}",you', f'Who?,"{PASSAGE}",she', f'Who?,"{PASSAGE}",'])
    found, said, counts = parsed(tmp_path / "a.csv", data)
    assert [question.answers for question in found] == [(Answer(text="you", start=20),)]
    assert said == (
        "questions from 'Question', passages from 'context', answers from 'answer': 1 in all, without an answer: 0, "
        "answers without a start, found by their text: 1"
    )
    assert counts["questions none of whose answers is in the passage"] == 1
    assert counts["questions without a list of answers"] == 1
    data = "\n".join([f"{header}_text,answer_start", *(f'Who?,"{PASSAGE}",you,{start}' for start in (29, 30, ""))])
    found, said, _ = parsed(tmp_path / "a.csv", data)
    assert [question.answers for question in found] == [(Answer(text="you", start=at),) for at in (29, 29, 20)]
    assert said.endswith("answers found elsewhere in their passage: 1, answers without a start, found by their text: 1")


def test_an_answer_that_is_not_in_the_passage_is_counted(tmp_path: Path) -> None:
    found, _, counts = parsed(tmp_path / "a.json", content(asked(("him", 0), ("me", 6)), asked(("him", 0))))
    assert [question.answers for question in found] == [(Answer(text="me", start=6),)]
    assert counts == {
        "answers that are not in the passage": 2,
        "questions none of whose answers is in the passage": 1,
    }
    with pytest.raises(TextError, match=r"question 1: the answer 'him' does not stand in the passage\. Mend the file"):
        parsed(tmp_path / "a.json", content(asked(("him", 0))), "fail")


@pytest.mark.parametrize(
    ("record", "reason", "fact"),
    [
        (7, "broken questions", "has no text in 'question'"),
        (asked(("me", 6), question=None), "broken questions", "has no text in 'question'"),
        (asked(("me", 6), question=" "), "broken questions", "has no text in 'question'"),
        (asked(answers=7), "broken questions", "has answers that are no list"),
        (asked(answers=["me"]), "broken questions", "has an answer without text"),
        (asked((" ", 6)), "broken questions", "has an answer without text"),
        (asked(("me", "6")), "broken questions", "has an answer without a whole number in 'answer_start'"),
        (asked(("me", True)), "broken questions", "has an answer without a whole number in 'answer_start'"),
        (asked(answers={"text": ["me"], "answer_start": []}), "broken questions", "has answers without as many"),
        (asked(answers=None), "questions without a list of answers", "has no answers, and is not marked as impossible"),
        (asked(is_impossible=False), "questions without a list of answers", "has no answers, and is not marked"),
        (asked(("me", 6), question="nul \0"), "rows with NUL characters", "holds a NUL character"),
        (asked(("half \ud83d", 6)), "rows with half characters", "holds half a character"),
    ],
)
def test_a_bad_question_is_counted_or_refused(tmp_path: Path, record: Any, reason: str, fact: str) -> None:
    data = content(asked(("me", 6)), record, asked(("it", 14), id=None))
    found, _, counts = parsed(tmp_path / "a.json", data)
    assert ([question.name for question in found], counts) == (["a", "3"], {reason: 1})
    with pytest.raises(TextError, match=rf"a\.json: article 1, paragraph 1, question 2: {fact}.*\. Mend the file"):
        parsed(tmp_path / "a.json", data, "fail")


def test_bad_articles_and_paragraphs_are_counted(tmp_path: Path) -> None:
    good = {"context": PASSAGE, "qas": [asked(("me", 6))]}
    paragraphs = [7, {"context": PASSAGE}, {"context": 7, "qas": []}, {"context": "nul \0", "qas": []}, good]
    data = json.dumps({"data": [7, {"title": "x"}, {"paragraphs": paragraphs}]})
    found, said, counts = parsed(tmp_path / "a.json", data)
    assert len(found) == 1
    assert said.startswith("questions of SQuAD of unknown version: ")
    assert counts == {"articles without paragraphs": 2, "paragraphs without text": 3, "rows with NUL characters": 1}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", r"a\.json: is empty\."),
        (content(asked())[:-5], r"a\.json:1: is not JSON: "),
        ('{"version": "1.1"}', r"a\.json: has no list named 'data'\. SQuAD's JSON holds its articles there\.$"),
        ("7", r"a\.json: has no list named 'data'"),
        ('{"data": ' + "[" * 100_000, r"a\.json: is no JSON that can be read: too deep"),
        ("[]", r"a\.json: holds no JSON object"),
        ('[{"question": "Who?"}]', r"a\.json: has no column 'context', but question\. Questions need the columns"),
    ],
)
def test_json_that_is_not_squad_is_refused(tmp_path: Path, data: str, message: str) -> None:
    with pytest.raises(TextError, match=message):
        parsed(tmp_path / "a.json", data)


def test_bytes_that_are_not_utf8_cost_their_question(tmp_path: Path) -> None:
    data = content(asked(("me", 6), question="bad @"), asked(("me", 6))).encode().replace(b"@", b"\xff")
    found, _, counts = parsed(tmp_path / "a.json", b"\xef\xbb\xbf" + data)
    assert (len(found), counts) == (1, {"rows with half characters": 1})


def test_tables_hold_questions_too(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "question": "Who?", "context": PASSAGE, "answers": {"text": ["me"], "answer_start": [6]}},
        {"id": 2, "question": "Who?", "context": PASSAGE, "answers": {"text": [], "answer_start": []}},
        {"id": 3, "question": "Who?", "context": PASSAGE, "answers": [{"text": "me", "answer_start": 6}]},
    ]
    lines = "\n".join(map(json.dumps, rows))
    expected = [("1", (Answer(text="me", start=6),)), ("2", ()), ("3", (Answer(text="me", start=6),))]
    for name, data in (("a.jsonl", lines), ("a.json", lines), ("b.json", json.dumps(rows))):
        found, said, counts = parsed(tmp_path / name, data)
        assert [(question.name, question.answers) for question in found] == expected
        assert found[1].location == f"{tmp_path / name}:{' record ' * (name == 'b.json')}2"
        assert said.startswith("questions from 'question', passages from 'context', answers from 'answers': 3 in all")
        assert counts == {}
    arrow = pytest.importorskip("pyarrow")
    store = pytest.importorskip("pyarrow.parquet")
    store.write_table(arrow.Table.from_pylist(rows[:2]), tmp_path / "a.parquet")
    found, _, counts = parsed(tmp_path / "a.parquet", (tmp_path / "a.parquet").read_bytes())
    assert ([(question.name, question.answers) for question in found], counts) == (expected[:2], {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(["text", "answer_start"]), inside),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    spoilt=st.lists(st.dictionaries(st.sampled_from(["question", "answers", "context", "is_impossible"]), JSON)),
    number=st.integers(1, 3),
)
def test_good_questions_survive_bad_ones(
    tmp_path_factory: pytest.TempPathFactory, spoilt: list[dict[str, Any]], number: int
) -> None:
    """A spoilt record lacks a field or holds anything at all in it; every one is counted, or happens to be right."""
    folder = tmp_path_factory.getbasetemp()
    good = [asked(("me", 6), id=f"good {one}") for one in range(number)]
    bad = [{"id": "bad", **record} for record in spoilt]
    rows = [{"context": PASSAGE, **record} for record in (*good, *bad)]
    files = {"many.json": content(*bad, *good), "many.jsonl": "\n".join(map(json.dumps, rows))}
    for name, data in files.items():
        found, _, counts = parsed(folder / name, data)
        kept = [question for question in found if question.name.startswith("good")]
        assert [question.name for question in kept] == [record["id"] for record in good]
        assert all(question.answers == (Answer(text="me", start=6),) for question in kept)
        lost = sum(count for reason, count in counts.items() if not reason.startswith("answers"))
        assert len(found) + lost == len(rows)
        for question in found:
            for answer in question.answers or ():
                assert question.context[answer.start :].startswith(answer.text)


@settings(max_examples=80, deadline=None)
@given(
    noise=st.binary(max_size=12),
    at=st.integers(0, 230),
    gone=st.integers(0, 200),
    name=st.sampled_from(["any.json", "any.jsonl"]),
    policy=st.sampled_from(["skip", "fail"]),
)
def test_any_bytes_are_questions_or_one_clear_line(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int, gone: int, name: str, policy: Policy
) -> None:
    data = (content(asked(("me", 6))) if name == "any.json" else json.dumps(asked(("me", 6), context="me"))).encode()
    said = name
    try:
        parsed(tmp_path_factory.getbasetemp() / name, data[:at] + noise + data[at + gone :], policy)
    except TextError as error:
        said = str(error)
    assert name in said
    assert "\n" not in said


@pytest.mark.exhaustive(suite=1)
@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "questions", "answers", "without"),
    [
        ("train-subset-v1.1", 11_877, 11_877, 0),
        ("dev-v1.1", 10_570, 34_726, 0),
        ("dev-v2.0", 11_873, 20_302, 5_945),
    ],
)
def test_squad_has_the_published_counts(shared: Path, name: str, questions: int, answers: int, without: int) -> None:
    found, _ = read(find_source(shared / "data" / "squad" / f"{name}.json.xz"), BadRows("fail"))
    assert len(found) == len({question.name for question in found}) == questions
    assert sum(len(question.answers or ()) for question in found) == answers
    assert sum(question.answers == () for question in found) == without
