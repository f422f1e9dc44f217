"""The words of a text that is to be tagged, in every script."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.labelled.inputs import TrainedOn, make_example
from bertsmith.data.labelled.words import split_words, words_with_spans
from bertsmith.inference.inputs import as_examples
from bertsmith.serving.entities import words_of

WHOLE = [
    "हिन्दी में लिखा है ।",
    unicodedata.normalize("NFD", "Café à Zürich , déjà !"),
    "كِتَابٌ ، بيت",
    "ภาษาไทยที่ดี 1984",
    "می\u200cخواهم بروم",
    "ok 👨\u200d👩\u200d👧 ❤\ufe0f 👍🏽 !",
]


@pytest.mark.parametrize("text", WHOLE)
def test_marks_and_joiners_stay_with_their_word(text: str) -> None:
    words = tuple(text.split())
    assert tuple(split_words(text)) == words
    assert as_examples(TrainedOn(kind="tag"), text)[0][0].words == words
    assert make_example("here", {"text": text}, TrainedOn(kind="tag"), {}).words == words  # type: ignore[union-attr]
    assert words_of(text) == words_with_spans(text)
    assert [word for word, _, _ in words_of(text)] == list(words)


def test_marks_join_no_words_across_a_gap_or_punctuation() -> None:
    assert split_words("a \u0301b") == ["a", "\u0301", "b"]
    assert split_words("❤\ufe0fyes") == ["❤\ufe0f", "yes"]
    assert split_words("cafe\u0301-bar") == ["cafe\u0301", "-", "bar"]


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("ab_1 .,-é\u0301\u200dक्❤\ufe0f") | st.characters()))
def test_every_character_but_white_space_is_in_one_word(text: str) -> None:
    spans = words_with_spans(text)
    assert all(text[start:end] == word for word, start, end in spans)
    assert "".join(word for word, _, _ in spans) == "".join(re.findall(r"\S", text))
    assert [word for word, _, _ in spans] == split_words(text)
    if text.isascii():
        assert split_words(text) == re.findall(r"\w+|[^\w\s]", text)
