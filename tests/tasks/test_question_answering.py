"""Answers are found where they stand, through windows, and no better stretch is overlooked."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example as also
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from tasks.small import CASES, LENGTH, shape, tokenizer

from bertsmith.data.labelled.examples import Answer as Stretch
from bertsmith.data.labelled.examples import Question
from bertsmith.errors import RecipeError
from bertsmith.models.transformer import Transformer
from bertsmith.tasks.base import Bucket, Item, predict
from bertsmith.tasks.question_answering import QuestionAnswering

PASSAGES = {  # a passage, and answers in it that begin and end where tokens do
    "The cat\t sees   the\n\nold dog .": ["cat", "the\n\nold", "The cat\t sees", "dog .", "."],
    "  the dog, the (old) river's garden-cat?  ": ["dog", "(old)", "river's", "garden-cat?", ","],
    "Œuvre 1984: «the CAT» — dog…": ["Œuvre 1984", "the CAT", "dog", "1984"],
    "das Haus, ein Café à la carte; naïve Œuvres": ["Café", "ein Café à", "naïve"],
    "日本の cat と dog、 river。": ["日本", "cat", "dog、", "と dog"],
    "ein Cafe\u0301 am Haus": ["Cafe\u0301", "Cafe\u0301 am"],
    "a\u00a0cat\u2003in a\u200bgarden": ["cat", "in a", "a\u00a0cat"],
    "the ﬁsh 🐈 cat 🐕 dog": ["cat", "cat 🐕 dog", "🐈"],
}


def answer(**settings: Any) -> QuestionAnswering:
    config = {"max_question_length": 8, "overlap": 6, "max_answer_length": 30, "n_best": 20, **settings}
    return QuestionAnswering(Transformer(shape()), QuestionAnswering.Config(**config)).eval()


def question(passage: str, *answers: tuple[str, int], asked: str = "the old cat", known: bool = True) -> Question:
    found = tuple(Stretch(text=text, start=start) for text, start in answers)
    return Question(location="made:1", name="q", question=asked, context=passage, answers=found if known else None)


def items_of(task: QuestionAnswering, one: Question, length: int = LENGTH) -> list[Item]:
    return task.preprocess([one], tokenizer(), length)


# ---------------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize(("passage", "text"), [(passage, text) for passage in PASSAGES for text in PASSAGES[passage]])
def test_the_target_tokens_stand_for_the_answer(passage: str, text: str) -> None:
    one = question(passage, (text, passage.index(text)))
    (item,) = items_of(answer(), one, 64)
    shift, places = item.notes
    first, last = (place - shift for place in item.target)
    assert passage[places[first, 0] : places[last, 1]] == text.removesuffix("\u0301")  # dropped by the tokenizer


@pytest.mark.parametrize("passage", PASSAGES)
def test_the_span_of_the_target_tokens_is_the_answer(passage: str) -> None:
    task = answer()
    for text in PASSAGES[passage]:
        one = question(passage, (text, passage.index(text)))
        (item,) = items_of(task, one, 64)
        scores = np.zeros((len(item.rows[0]), 2), np.float32)
        scores[item.target, (0, 1)] = 5.0
        said = task.postprocess(one, [item], [scores])
        assert (said["answer"], said["start"], said["score"]) == (text, passage.index(text), 10.0)


def test_blanks_round_an_answer_do_not_matter() -> None:
    passage = "the cat  sees the dog"
    for text in (" cat", "cat ", "  sees ", "\u200bcat"):
        whole = passage.replace("cat", "\u200bcat") if "\u200b" in text else passage
        (item,) = items_of(answer(), question(whole, (text, whole.index(text))))
        shift, places = item.notes
        first, last = (place - shift for place in item.target)
        assert whole[places[first, 0] : places[last, 1]] == text.strip(" \u200b")


def test_half_a_token_is_widened_to_the_whole() -> None:
    passage = "the 1984 cat"
    (item,) = items_of(answer(), question(passage, ("98", 5)))
    shift, places = item.notes
    first, last = (place - shift for place in item.target)
    assert places[first, 0] <= 5
    assert places[last, 1] >= 7
    assert passage[places[first, 0] : places[last, 1]] in "1984"


def test_each_window_has_the_answer_or_cls() -> None:
    words = ["cat", "dog", "river", "old", "the"] * 20
    passage = " ".join(words)
    start = passage.index("old the cat dog river old the")
    one = question(passage, ("old the cat", start))
    task = answer()
    items = items_of(task, one)
    assert len(items) > 4
    holding = 0
    for item in items:
        shift, places = item.notes
        whole = places[0, 0] <= start and places[-1, 1] >= start + len("old the cat")
        holding += whole
        if whole:
            first, last = (place - shift for place in item.target)
            assert passage[places[first, 0] : places[last, 1]] == "old the cat"
            assert places[first, 0] == start
        else:
            assert item.target == (0, 0)
    assert 1 <= holding < len(items)


def test_windows_cover_the_context_and_share_the_overlap() -> None:
    passage = "cat dog " * 50
    for asked in ("", "the old cat", "the old cat sees the green river in the garden"):
        items = items_of(answer(), question(passage, asked=asked))
        spans = [item.notes[1] for item in items]
        assert spans[0][0, 0] == 0
        assert spans[-1][-1, 1] == len(passage.rstrip())
        for before, after in pairwise(spans):
            shared = sum(place in before.tolist() for place in after.tolist())
            assert shared == 6
        assert all(len(item.rows[0]) <= LENGTH for item in items)
        assert all(len(item.rows[0]) == LENGTH for item in items[:-1])


def test_without_an_answer_the_target_is_cls_and_without_a_label_nothing() -> None:
    (item,) = items_of(answer(), question("the cat"))
    assert item.target == (0, 0)
    (item,) = items_of(answer(), question("the cat", known=False))
    assert item.target == (-100, -100)


def test_an_empty_passage_has_a_window_and_no_answer() -> None:
    task, one = answer(), question("")
    items = items_of(task, one)
    assert len(items) == 1
    (said,) = predict(task, [one], items, device="cpu")
    assert (said["answer"], said["start"], said["null_score_difference"]) == ("", -1, 0.0)


def test_a_long_question_is_cut() -> None:
    one = question("the cat sees the dog", asked="the old cat " * 10)
    (item,) = items_of(answer(), one)
    assert item.notes[0] == 8 + 2


# ------------------------------------------------------------------------------------------------ best stretch


def brute(scores: NDArray[np.float32], longest: int) -> tuple[float, int, int]:
    """Every stretch, tried one after the other."""
    found = [
        (float(scores[first, 0] + scores[last, 1]), first, last)
        for first in range(len(scores))
        for last in range(first, min(first + longest, len(scores)))
    ]
    return max(found)


def said_of(task: QuestionAnswering, one: Question, scores: NDArray[np.float32], items: list[Item]) -> Any:
    """The passage's scores, laid into the windows."""
    begins = np.unique(np.concatenate([item.notes[1][:, 0] for item in items]))
    outputs = []
    for item in items:
        shift, places = item.notes
        row = np.full((len(item.rows[0]), 2), 99.0, np.float32)  # no token of the question is ever an answer
        row[0] = -50.0
        row[shift : shift + len(places)] = scores[np.searchsorted(begins, places[:, 0])]
        outputs.append(row)
    return task.postprocess(one, items, outputs)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 60), st.integers(1, 6))
def test_the_best_span_is_that_of_an_exhaustive_search(data: st.DataObject, words: int, longest: int) -> None:
    dice = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    scores = dice.normal(size=(words, 2)).astype(np.float32)
    passage = " ".join(f"{'cat' if number % 2 else 'dog'}" for number in range(words))
    one, task = question(passage), answer(max_answer_length=longest, n_best=100)
    said = said_of(task, one, scores, items_of(task, one))
    score, first, last = brute(scores, longest)
    assert said["start"] == 4 * first
    assert said["answer"] == " ".join(passage.split()[first : last + 1])
    assert said["score"] == pytest.approx(score, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(arrays.arrays(np.float32, (25, 2), elements=st.floats(-9, 9, width=16)), st.integers(1, 5), st.integers(1, 5))
@also(np.array([[number, -number] for number in range(25)], np.float32), 3, 2)  # ends all lie before beginnings
def test_a_span_is_never_reversed_nor_too_long_and_always_found(
    scores: NDArray[np.float32], longest: int, best: int
) -> None:
    passage = " ".join(["cat"] * 25)
    one, task = question(passage), answer(max_answer_length=longest, n_best=best)
    said = said_of(task, one, scores, items_of(task, one, 64))
    assert 1 <= len(said["answer"].split()) <= longest
    first = said["start"] // 4
    last = first + len(said["answer"].split()) - 1
    assert said["score"] == pytest.approx(float(scores[first, 0] + scores[last, 1]), abs=1e-5)
    assert said["score"] <= brute(scores, longest)[0] + 1e-5


def test_an_answer_comes_from_its_best_window() -> None:
    passage = " ".join(f"{word}" for word in ["cat", "dog", "river", "old"] * 15)
    one, task = question(passage), answer()
    items = items_of(task, one)
    for place in (0, 17, 30, 59):
        scores = np.zeros((60, 2), np.float32)
        scores[place] = 3.0
        said = said_of(task, one, scores, items)
        assert said["answer"] == passage.split()[place]
        assert said["start"] == len(" ".join(passage.split()[:place])) + (place > 0)


def test_other_answers_share_no_word_and_have_probabilities_among_the_n_best() -> None:
    passage = "cat dog river old garden tree"
    one, task = question(passage), answer(null_threshold=0.0)
    [item] = items_of(task, one)
    scores = np.full((len(item.rows[0]), 2), -9.0, np.float32)
    for place, score in ((1, 4.0), (3, 3.0), (4, 2.5)):  # dog; old; garden
        scores[item.notes[0] + place] = score
    scores[0] = 1.0
    said = task.postprocess_detailed(one, [item], [scores])
    assert {key: said[key] for key in said if key != "spans"} == task.postprocess(one, [item], [scores])
    assert [span["answer"] for span in said["spans"][:3]] == ["dog", "old", "garden"]  # not: old garden
    assert all(passage[span["start"] : span["end"]] == span["answer"] for span in said["spans"])
    inside = scores[item.notes[0] :][:6]
    every = [inside[i, 0] + inside[j, 1] for i in range(6) for j in range(i, 6)]  # 21 spans, of which the worst is out
    rivals = np.exp([*sorted(every)[-20:], 2.0])
    found = [span["probability"] for span in said["spans"][:3]]
    assert found == pytest.approx(np.exp([8.0, 6.0, 5.0]) / rivals.sum(), rel=1e-4)


# -------------------------------------------------------------------------------------------------- no answer


@pytest.mark.parametrize(("threshold", "given"), [(None, True), (1.9, False), (2.1, True), (-100.0, False)])
def test_a_question_has_no_answer_if_cls_is_better_by_the_null_threshold(threshold: float | None, given: bool) -> None:
    one, task = question("the cat sees"), answer(null_threshold=threshold)
    (item,) = items_of(task, one)
    scores = np.full((len(item.rows[0]), 2), -9.0, np.float32)
    scores[item.notes[0] + 1] = 1.0
    scores[0] = 2.0  # 4 for none, 2 for `cat`
    said = task.postprocess(one, [item], [scores])
    assert (said["answer"], said["start"]) == (("cat", 4) if given else ("", -1))
    assert (said["null_score_difference"], said["score"]) == (2.0, 2.0)
    assert said.get("best_span") == (None if threshold is None else "cat")


def test_the_null_score_is_the_lowest_over_windows() -> None:
    one, task = question("cat " * 60), answer()
    items = items_of(task, one)
    outputs = [np.zeros((len(item.rows[0]), 2), np.float32) for item in items]
    for number, output in enumerate(outputs):
        output[0] = 5.0 - number
    said = task.postprocess(one, items, outputs)
    assert said["null_score_difference"] == pytest.approx(2 * (5.0 - len(items) + 1))


def test_scores_are_squads_with_the_best_threshold_if_some_have_no_answer() -> None:
    task = answer()
    first, second = question("the cat", ("cat", 4)), question("the dog")
    second = Question(**{**vars(second), "name": "r"})
    said: list[dict[str, Any]] = [
        {"answer": "cat", "null_score_difference": -2.0},
        {"answer": "", "best_span": "dog", "null_score_difference": 1.0},
    ]
    assert task.score([first], said[:1]) == {"f1": 1.0, "exact": 1.0}
    figures = task.score([first, second], said)
    assert next(iter(figures)) == "f1"
    assert figures["f1"] == 1.0
    assert (figures["best_f1"], figures["best_threshold"]) == (1.0, -2.0)


# ------------------------------------------------------------------------------------------------------- loss


def test_the_loss_is_the_mean_of_both_ends_over_all_tokens_of_the_row() -> None:
    task, examples = CASES["answer"].task(), CASES["answer"].examples
    items = task.preprocess(examples, tokenizer(), LENGTH)
    assert {item.target == (0, 0) for item in items} == {True, False}
    batch = task.collate(items, Bucket(batch_size=len(items), max_length=LENGTH))
    with torch.no_grad():
        outputs = task.outputs(batch.tokens)
    total = 0.0
    for item, scores in zip(items, outputs, strict=True):
        chances = scores.double().log_softmax(0)
        total -= float(chances[item.target[0], 0] + chances[item.target[1], 1]) / 2
    assert task(batch)["span"].total.item() == pytest.approx(total, rel=1e-5)
    assert batch.counts["span"] == len(items)


def test_windows_that_cannot_move_on_are_refused() -> None:
    with pytest.raises(RecipeError) as caught:
        items_of(answer(overlap=26), question("the cat"))
    assert str(caught.value) == (
        "task.overlap: windows of 26 tokens cannot share 26. Lower it, or raise data.max_length."
    )
