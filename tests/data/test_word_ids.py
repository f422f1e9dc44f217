"""Text by words: counted, numbered by frequency, the rare ones gone, sentences kept apart."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.data.corpus.word_ids import encode_words, split_words
from bertsmith.errors import TextError


def test_words_are_runs_of_letters_with_apostrophes_inside() -> None:
    assert split_words("Don't say “state-of-the-art”, Ana’s 2nd word!") == [
        *("don't", "say", "state", "of", "the", "art"),
        *("ana’s", "2nd", "word"),
    ]
    assert split_words("Don't", lowercase=False) == ["Don't"]
    assert split_words(" ...'' - ") == []


@pytest.mark.parametrize(
    "text",
    [
        "हिन्दी में लिखा हुआ",
        "தமிழ் மொழி",
        "שָׁלוֹם עוֹלָם",
        "cafe\u0301 d’e\u0301te\u0301",
        "می\u200cخواهم بروم",
        "ශ්\u200dරී ලංකා",
        "สวัสดี ที่นี่",
        "straße Übung",
    ],
)
def test_marks_belong_to_the_letters_before_them(text: str) -> None:
    assert split_words(f"({text}) \u0301!\u200d") == text.lower().split()


@given(st.lists(st.lists(st.sampled_from("abcdefg"), max_size=12), min_size=1, max_size=20), st.integers(1, 4))
def test_the_numbers_give_back_the_text_without_its_rare_words(sentences: list[list[str]], least: int) -> None:
    counts = Counter(word for sentence in sentences for word in sentence)
    frequent = {word for word, count in counts.items() if count >= least}
    if len(frequent) < 2:
        with pytest.raises(TextError, match=f"of its {len(counts)} words occur {least} times"):
            encode_words(map(" ".join, sentences), min_count=least)
        return
    text = encode_words(map(" ".join, sentences), min_count=least)
    assert set(text.words) == frequent
    assert text.counts.tolist() == [counts[word] for word in text.words] == sorted(text.counts.tolist(), reverse=True)
    back = [
        [text.words[place] for place in text.ids[start:stop]]
        for start, stop in zip(text.bounds, text.bounds[1:], strict=False)
    ]
    kept = ([word for word in sentence if word in frequent] for sentence in sentences)
    assert back == [sentence for sentence in kept if sentence]
    assert text.total_words == counts.total()
    assert text.sentences == len(back)


def test_a_text_is_known_by_its_fingerprint() -> None:
    first, same, other = (encode_words(one, min_count=1) for one in (["a b", "a c"], ["A b.", "a, c"], ["a b a", "c"]))
    assert first.fingerprint == same.fingerprint != other.fingerprint
    assert first.counts.dtype == np.int64
