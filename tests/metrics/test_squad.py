"""Answers are scored as by SQuAD's own scripts, whose logic stands here once more in other words."""

import collections
import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.metrics.squad import (
    apply_threshold,
    best_threshold,
    exact_match,
    normalise_answer,
    squad_scores,
    token_f1,
)

quick = settings(deadline=None, max_examples=50)

TEXTS = st.lists(st.sampled_from(["The", "a", "an", "cat", "Cat", "sat.", "on", "an-the", "...", ""]), max_size=4).map(
    " ".join
)
NAMES = [f"question {number}" for number in range(6)]
WORDY = TEXTS.filter(lambda text: bool(official_tokens(text)))


def official_normal(text: str) -> str:
    lowered = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", lowered).split())


def official_tokens(text: str) -> list[str]:
    return official_normal(text).split() if text else []


def official_f1(gold: str, guess: str, *, second: bool) -> float:
    ours, theirs = official_tokens(gold), official_tokens(guess)
    if second and (len(ours) == 0 or len(theirs) == 0):
        return int(ours == theirs)
    same = sum((collections.Counter(ours) & collections.Counter(theirs)).values())
    if same == 0:
        return 0
    precision, recall = 1.0 * same / len(theirs), 1.0 * same / len(ours)
    return 2 * precision * recall / (precision + recall)


def official_first(gold: dict, guessed: dict) -> dict[str, float]:
    """evaluate-v1.1: a question without a prediction scores nothing."""
    whole = marks = 0.0
    for name, answers in gold.items():
        if name not in guessed:
            continue
        whole += max(official_normal(guessed[name]) == official_normal(answer) for answer in answers)
        marks += max(official_f1(answer, guessed[name], second=False) for answer in answers)
    return {"exact": whole / len(gold), "f1": marks / len(gold)}


def official_raw(gold: dict, guessed: dict) -> tuple[dict[str, float], dict[str, float]]:
    """evaluate-v2.0, get_raw_scores."""
    exacts, marks = {}, {}
    for name, answers in gold.items():
        kept = [answer for answer in answers if official_normal(answer)]
        if not kept:
            kept = [""]
        exacts[name] = max(int(official_normal(answer) == official_normal(guessed[name])) for answer in kept)
        marks[name] = max(official_f1(answer, guessed[name], second=True) for answer in kept)
    return exacts, marks


def official_sweep(gold: dict, guessed: dict, no_answer: dict) -> tuple[float, float]:
    """evaluate-v2.0, find_best_thresh, over F1."""
    _, marks = official_raw(gold, guessed)
    now = best = sum(not answers for answers in gold.values())
    threshold = 0.0
    for name in sorted(no_answer, key=lambda name: no_answer[name]):
        if name not in marks:
            continue
        now += marks[name] if gold[name] else (-1 if guessed[name] else 0)
        if now > best:
            best, threshold = now, no_answer[name]
    return threshold, best / len(marks)


def cases(answers: st.SearchStrategy, least: int, guesses: st.SearchStrategy = TEXTS) -> st.SearchStrategy:
    """Answers to some questions, and guesses, of which many are right."""

    def guess(gold: dict) -> st.SearchStrategy:
        known = {name: st.sampled_from(texts) | guesses if texts else guesses for name, texts in gold.items()}
        return st.tuples(st.just(gold), st.fixed_dictionaries(known))

    texts = st.lists(answers, min_size=least, max_size=3).map(tuple)
    return st.dictionaries(st.sampled_from(NAMES), texts, min_size=1).flatmap(guess)


@quick
@given(cases(TEXTS, 1))
def test_answers_are_scored_by_the_rules_of_1_1(both):
    assert squad_scores(*both) == pytest.approx(official_first(*both))


@quick
@given(cases(TEXTS, 1), st.sets(st.sampled_from(NAMES)))
def test_a_question_without_a_prediction_is_wrong(both, lost):
    gold, guessed = both
    guessed = {name: guess for name, guess in guessed.items() if name not in lost}
    assert squad_scores(gold, guessed) == pytest.approx(official_first(gold, guessed))


@quick
@given(cases(TEXTS, 0))
def test_answers_are_scored_by_the_rules_of_2_0(both):
    gold, guessed = both
    gold, guessed = gold | {"hopeless": ()}, guessed | {"hopeless": guessed[min(guessed)]}
    exacts, marks = official_raw(gold, guessed)
    expected = {}
    for prefix, names in (
        ("", list(gold)),
        ("has_answer_", [name for name in gold if gold[name]]),
        ("no_answer_", [name for name in gold if not gold[name]]),
    ):
        if names:
            expected[f"{prefix}exact"] = sum(exacts[name] for name in names) / len(names)
            expected[f"{prefix}f1"] = sum(marks[name] for name in names) / len(names)
    assert squad_scores(gold, guessed) == pytest.approx(expected)


@quick
@given(cases(WORDY, 0, WORDY), st.permutations(range(1, 7)))
def test_the_best_threshold_is_that_of_the_official_sweep(both, order):
    no_answer = {name: number / 7 for name, number in zip(NAMES, order, strict=True)}
    found, expected = best_threshold(*both, no_answer), official_sweep(*both, no_answer)
    assert found[1] == pytest.approx(expected[1])
    tied = squad_scores(both[0], apply_threshold(both[1], no_answer, expected[0]))["f1"]
    assert found[0] == expected[0] or tied == pytest.approx(found[1])  # sums differ in their last digit


@quick
@given(cases(TEXTS, 0), st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0]), min_size=6, max_size=6))
def test_the_best_threshold_gives_its_f1_and_no_other_is_better(both, numbers):
    gold, guessed = both
    no_answer = dict(zip(NAMES, numbers, strict=True))
    threshold, promised = best_threshold(gold, guessed, no_answer)
    assert squad_scores(gold, apply_threshold(guessed, no_answer, threshold))["f1"] == pytest.approx(promised)
    for other in (-3.0, -1.0, -0.25, 0.1, 0.5, 2.0):
        assert squad_scores(gold, apply_threshold(guessed, no_answer, other))["f1"] <= promised + 1e-9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat.", "cat"),
        ("  a  cat,\tan\n ox ", "cat ox"),
        ("theatre and anthem", "theatre and anthem"),
        ("U.S.A.", "usa"),
        ("the-end", "theend"),  # punctuation goes first
        ("l’été – 1,000 €", "l’été – 1000 €"),  # only ASCII punctuation is punctuation
        ("up–the–hill", "up– –hill"),
        ("The", ""),
        ("", ""),
    ],
)
def test_normalisation_removes_case_punctuation_articles_and_spaces(text, expected):
    assert normalise_answer(text) == expected


def test_two_answers_are_compared_word_by_word():
    assert exact_match("the Cat", "cat!") == 1
    assert exact_match("cat", "cats") == 0
    assert token_f1("the big cat", "a cat sat") == pytest.approx(2 * 1 / 2 * 1 / 2 / 1)
    assert token_f1("cat cat cat", "cat cat") == pytest.approx(4 / 5)  # each occurrence counts once
    assert token_f1("dog", "cat") == 0
    assert (token_f1("", ""), token_f1("", "cat"), token_f1("cat", "")) == (1, 0, 0)


def test_the_best_of_several_answers_counts():
    found = squad_scores(
        {"who": ("Ada Lovelace", "Lovelace"), "when": ("1843",)}, {"who": "lovelace", "when": "in 1843"}
    )
    assert found == pytest.approx({"exact": 1 / 2, "f1": (1 + 2 / 3) / 2})


def test_having_no_answer_is_an_answer():
    gold: dict[str, tuple[str, ...]] = {"who": ("Ada",), "why": (), "how": ()}
    assert squad_scores(gold, {"who": "Ada", "why": "", "how": "well"}) == pytest.approx(
        {
            "exact": 2 / 3,
            "f1": 2 / 3,
            "has_answer_exact": 1,
            "has_answer_f1": 1,
            "no_answer_exact": 1 / 2,
            "no_answer_f1": 1 / 2,
        }
    )


def test_only_where_some_have_no_answer_are_articles_an_answer_to_them():
    assert squad_scores({"which": ("the",)}, {"which": "The"}) == {"exact": 1, "f1": 0}  # as in 1.1
    assert squad_scores({"which": ("the",), "why": ()}, {"which": "The", "why": "a"})["f1"] == 1  # as in 2.0


def test_the_best_threshold_leaves_the_doubtful_unanswered():
    gold = {"sure": ("yes",), "likely": ("yes",), "doubtful": (), "hopeless": ()}
    guessed = dict.fromkeys(gold, "yes")
    no_answer = {"sure": -4.0, "likely": -1.5, "doubtful": 2.0, "hopeless": 5.0}
    assert best_threshold(gold, guessed, no_answer) == (-1.5, 1.0)
    assert apply_threshold(guessed, no_answer, -1.5) == {"sure": "yes", "likely": "yes", "doubtful": "", "hopeless": ""}
    assert squad_scores(gold, guessed)["f1"] == 0.5


def test_where_no_prediction_is_right_the_best_threshold_answers_nothing():
    gold: dict[str, tuple[str, ...]] = {"who": (), "when": ("1843",)}
    threshold, f1 = best_threshold(gold, {"who": "Ada", "when": "never"}, {"who": -3.0, "when": -2.0})
    assert threshold < -3
    assert f1 == 0.5
    assert best_threshold(gold, {"who": "Ada", "when": "never"}, {"who": 0.3, "when": 0.4}) == (0.0, 0.5)


def test_scores_of_no_questions_are_zero():
    assert squad_scores({}, {}) == {"exact": 0.0, "f1": 0.0}
    assert best_threshold({}, {}, {}) == (0.0, 0.0)


def test_every_prediction_needs_a_no_answer_score():
    with pytest.raises(ValueError, match="question who has a prediction, but no score for having no answer"):
        best_threshold({"who": ()}, {"who": "Ada"}, {})
