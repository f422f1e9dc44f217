"""BLEU is sacreBLEU's, to the last digit that is printed and beyond."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.metrics.bleu import SIGNATURE, bleu, tokenize_13a

SAID = [
    "the cat sat on the mat.",
    "It costs $1,000.50, doesn't it?",
    '"Well-known" facts: 3-4 &amp; more (see p. 5)',
    "a",
    "nothing in common here at all",
]
GOLD = [
    "the cat is sitting on the mat.",
    "It costs $1,000.50, does it not?",
    '"Well-known" facts: 3-4 & more (see p. 6)',
    "a b",
    "quite other words stand there now",
]
PIECES = ["a", "b", "the", "1,000.5", "3.", "x-y", "5-", "&quot;", "(z)", "it's", "%", "$5", "ä,b", "u.s.", "[x]", "…"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=9).map(" ".join)


@pytest.mark.parametrize(
    ("count", "score"),  # of sacreBLEU 2.6.0
    [(1, 42.38365628278778), (2, 46.66140023851341), (3, 68.98409454102384), (5, 58.39198918295103)],
)
def test_scores_are_those_that_sacrebleu_gives(count: int, score: float) -> None:
    assert bleu(SAID[:count], GOLD[:count]) == pytest.approx(score, abs=1e-9)


def test_short_translations_and_runs_that_never_match_count_as_in_sacrebleu() -> None:
    assert bleu(["the cat sat there"], ["a cat sat on the mat today"]) == pytest.approx(16.70067963244422, abs=1e-9)
    assert bleu(SAID[:2][::-1], GOLD[:2]) == 0


def test_words_are_cut_as_13a_cuts_them() -> None:
    assert " ".join(tokenize_13a("It costs $1,000.50, doesn't it?")) == "It costs $ 1,000.50 , doesn't it ?"
    assert " ".join(tokenize_13a("3-4 &amp; 'more' (p. 5).")) == "3 - 4 & 'more' ( p . 5 ) ."


@settings(deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_the_reference_itself_scores_100_and_no_translation_more(texts: list[str]) -> None:
    enough = any(len(tokenize_13a(text)) >= 4 for text in texts)
    assert bleu(texts, texts) == pytest.approx(100 if enough else 0)
    assert 0 <= bleu(texts[::-1], texts) <= 100 + 1e-9


@settings(deadline=None, max_examples=200)
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
def test_scores_are_sacrebleus_where_it_is_installed(pairs: list[tuple[str, str]]) -> None:
    sacrebleu: Any = pytest.importorskip("sacrebleu")
    said, gold = map(list, zip(*pairs, strict=True))
    measure = sacrebleu.metrics.BLEU()
    assert bleu(said, gold) == pytest.approx(measure.corpus_score(said, [gold]).score, abs=1e-9)
    assert str(measure.get_signature()).startswith(SIGNATURE)
