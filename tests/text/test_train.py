"""Training a tokenizer: reproducible, of the requested size, in bounded memory."""

import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text.syllables import lines

from bertsmith.errors import RecipeError, TextError
from bertsmith.text import train, training_texts
from bertsmith.text.special_tokens import SPECIAL_TOKENS, TRAILING_SPECIALS, Kind
from bertsmith.text.train import TokenizerConfig, train_library_tokenizer
from bertsmith.text.training_texts import TrainingTexts

pytestmark = pytest.mark.slow("trains vocabularies")

KINDS: list[Kind] = ["wordpiece", "bpe", "unigram", "t5"]
FRESH = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from text.syllables import lines
from bertsmith.text.train import TokenizerConfig, train_library_tokenizer
for kind in ("words", "wordpiece", "bpe", "unigram", "t5"):
    text = train_library_tokenizer(lines(800), TokenizerConfig(kind=kind, vocabulary=500)).to_str()
    print(kind, hashlib.sha256(text.encode()).hexdigest())
"""


def pieces_of(texts: list[str], kind: Kind = "wordpiece", vocabulary: int = 700, **changes: bool | int) -> list[str]:
    config = TokenizerConfig(kind=kind, vocabulary=vocabulary, **changes)  # type: ignore[arg-type]
    found = train_library_tokenizer(texts, config).get_vocab()
    assert sorted(found.values()) == list(range(len(found)))
    return sorted(found, key=found.__getitem__)


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_has_the_size_that_was_asked_for(kind: Kind) -> None:
    for size in (270, 400):
        found = pieces_of(lines(1_000), kind, size)
        assert len(found) == size
        assert tuple(found[: len(SPECIAL_TOKENS[kind])]) == SPECIAL_TOKENS[kind]
        assert tuple(found[size - len(TRAILING_SPECIALS[kind]) :]) == TRAILING_SPECIALS[kind]


def test_the_same_text_gives_the_same_vocabulary_in_every_process() -> None:
    folder = str(Path(__file__).parents[1])
    told = set()
    for seed, threads in (("1", "true"), ("2", "false"), ("3", "true")):
        surroundings = os.environ | {"PYTHONHASHSEED": seed, "TOKENIZERS_PARALLELISM": threads}
        done = subprocess.run(
            [sys.executable, "-c", FRESH, folder],
            capture_output=True,
            text=True,
            check=True,
            env=surroundings,
        )
        told.add(done.stdout)
    assert len(told) == 1
    assert told.pop().count("\n") == 5


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_text_of_one_batch_has_the_vocabulary_of_one_of_many(
    lowercase: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters that are not in the text have no id while a small text is learnt; merges with ties stay the same."""
    texts = [
        "Ångström naïve 漢字かな",
        "Öl öl ol Straße strasse",
        "и это этот ещё",
        "abab baba abba",
        "İstanbul ısı",
    ] * 9
    config = TokenizerConfig(vocabulary=120, min_frequency=1, lowercase=lowercase)
    one = train_library_tokenizer(texts, config).to_str()
    monkeypatch.setattr(training_texts, "BATCH_CHARACTERS", 30)
    assert len(list(TrainingTexts(texts, str).batches())) > 2
    assert train_library_tokenizer(texts, config).to_str() == one


def test_every_character_that_can_stand_inside_a_word_has_an_id_beforehand() -> None:
    may = training_texts.may_join()
    for lowercase in (True, False):
        tokenizer = train.bert_tokenizer({}, lowercase=lowercase)
        known = [code for code in range(0x3000) if unicodedata.category(chr(code)) not in {"Cn", "Cs"}]
        text = tokenizer.normalizer.normalize_str(" ".join(f"a{chr(code)}" for code in known))
        words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text) if word[0] == "a"]
        assert all(may[ord(character)] for word in words for character in word[1:])
        assert sum(len(word) > 1 for word in words) > 5_000


def test_a_chinese_character_takes_one_token_and_leaves_room_for_rare_ones() -> None:
    """It is always a word of its own, so it needs no token that continues a word."""
    characters = "".join(map(chr, range(0x4E00, 0x4E00 + 700)))
    made = train_library_tokenizer([f"{characters} linux kernel"] * 5, TokenizerConfig(vocabulary=1_500))
    assert not [piece for piece in made.get_vocab() if piece.startswith("##") and piece[2:] in characters]
    assert made.token_to_id("[UNK]") not in made.encode(characters).ids


def test_a_japanese_token_is_no_phrase_and_has_one_syllabary() -> None:
    text = "ファイルシステムがマウントされているかどうかを調べることができます"
    made = train_library_tokenizer([text] * 20, TokenizerConfig(vocabulary=600, lowercase=False))
    pieces = [piece.removeprefix("##") for piece in made.get_vocab() if piece not in SPECIAL_TOKENS["wordpiece"]]
    assert 2 < max(map(len, pieces)) <= training_texts.MAX_UNSPACED_TOKEN
    assert not [piece for piece in pieces if re.search(r"[ァ-ヺ][ぁ-ゖ]|[ぁ-ゖ][ァ-ヺ]", piece)]
    assert "".join(made.encode(text, add_special_tokens=False).tokens).replace("##", "") == text


@pytest.mark.parametrize(
    ("text", "useful"),
    [
        ("konfigurationsdateien", True),
        ("суперпользователя", True),
        ("ファイルシステム", True),
        ("らーめん", True),
        ("がリスト", False),
        ("インターネットプロトコル", False),
        ("ภาษาที่มีเสียงวรรณยุกต์", False),
        ("❤️", True),
        ("├──────┼", False),
    ],
)
def test_merges_that_make_no_words_are_dropped(text: str, useful: bool) -> None:
    assert training_texts.is_useful(text) == useful


def test_lowercasing_strips_accents_too_and_cased_keeps_both() -> None:
    text = ["Zürich Zürichs Zürichsee Étude Étudea Étudeb Étudec"] * 50
    for kind in ("wordpiece", "unigram"):
        plain = "".join(pieces_of(text, kind, 200)[5:]).replace("▁", "")
        assert plain == plain.lower()
        assert plain.isascii()
        assert "zurich" in plain
        kept = " ".join(pieces_of(text, kind, 200, lowercase=False)[5:])
        assert "Zürich" in kept
        assert "Étude" in kept
    assert "ĠÃītude" in pieces_of(text, "bpe", 300)


def test_t5_keeps_case_and_accents_by_default() -> None:
    text = ["Zürich Zürichs Zürichsee Étude Étudea Étudeb Étudec"] * 50
    kept, plain = pieces_of(text, "t5", 300), pieces_of(text, "t5", 300, lowercase=True)
    assert kept == pieces_of(text, "t5", 300, lowercase=False)
    assert any("Zürich" in piece for piece in kept)
    assert any("zurich" in piece for piece in plain)
    assert "".join(plain).replace("▁", "").isascii()
    for kind in ("wordpiece", "unigram"):
        assert pieces_of(text, kind, 200) == pieces_of(text, kind, 200, lowercase=True)


def test_a_letter_with_a_combining_accent_is_learnt_as_one_character() -> None:
    apart = unicodedata.normalize("NFD", "élan élana élane élano")
    assert "▁élan" in pieces_of([apart] * 50, "unigram", 100, lowercase=False)


def test_characters_too_rare_to_be_learnt_take_no_room() -> None:
    rare = "".join(map(chr, range(0x10D0, 0x10D8)))  # Georgian
    texts = [*lines(3_000), f"ka{rare}lo"]
    for kind in ("wordpiece", "unigram"):
        found = pieces_of(texts, kind, 400)
        assert len(found) == 400
        assert not set(rare) & set("".join(found))


def test_a_vocabulary_smaller_than_the_alphabet_holds_the_most_frequent_characters() -> None:
    texts = ["".join(map(chr, range(0x4E00, 0x4E00 + count))) for count in range(1, 400)]
    found = pieces_of(texts, "wordpiece", 100)
    assert found[5:30] == [chr(0x4E00 + place) for place in range(25)]
    assert len(found) <= 100


def test_every_letter_of_the_alphabet_can_begin_and_continue_a_word() -> None:
    found = set(pieces_of(lines(500), "wordpiece", 300))
    letters = [piece for piece in found if len(piece) == 1 and piece.isalpha()]
    assert len(letters) == 15
    assert all(f"##{letter}" in found for letter in letters)
    assert "." in found
    assert "##." not in found  # punctuation is always a separate word


def test_merges_have_the_minimum_frequency() -> None:
    texts = ["alpha alpha alpha beta beta gamma"]
    twice, thrice = set(pieces_of(texts, min_frequency=2)), set(pieces_of(texts, min_frequency=3))
    assert twice & {"alpha", "beta", "gamma"} == {"alpha", "beta"}
    assert thrice & {"alpha", "beta", "gamma"} == {"alpha"}


def test_overlong_words_are_cut_before_they_are_counted() -> None:
    feed = TrainingTexts(["x" * 1_000, "短" * 300, "short words only"], str)
    fed = [text for batch in feed.batches() for text in batch]
    assert max(len(word) for text in fed for word in text.split()) == training_texts.LONGEST_WORD
    assert "".join("".join(fed).split()) == "x" * 1_000 + "短" * 300 + "shortwordsonly"


def test_very_much_text_is_subsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_texts, "FULLY_READ_CHARACTERS", 1_000)
    feed = TrainingTexts((f"{number:010}" for number in range(1_000)), str)
    fed = [int(text) for batch in feed.batches() for text in batch]
    assert fed[:100] == list(range(100))  # all of the first thousand characters,
    assert fed[100:200] == list(range(100, 300, 2))  # half of the next,
    assert fed[200:300] == list(range(300, 700, 4))  # a quarter
    assert len(fed) < 350
    assert feed.characters == 10 * len(fed)


def test_a_giant_text_is_fed_in_parts() -> None:
    feed = TrainingTexts(["word " * 500_000], str)
    assert max(len(text) for batch in feed.batches() for text in batch) <= training_texts.BATCH_CHARACTERS


def test_characters_that_unicode_does_not_know_are_left_out() -> None:
    found = pieces_of(["ka\U000e0fffka lo\u0378mi"] * 30, vocabulary=100)
    assert not {"\U000e0fff", "\u0378"} & set("".join(found))
    assert {"ka", "lo", "mi"} <= set(found)


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_refused(kind: Kind) -> None:
    for texts in ([], ["", "  ", "\n"]):
        with pytest.raises(TextError, match=r"^tokenizer: there is no text to learn a vocabulary from\.$"):
            train_library_tokenizer(texts, TokenizerConfig(kind=kind))


def test_too_many_characters_for_a_unigram_vocabulary_are_refused() -> None:
    texts = [chr(code) for code in range(0x4E00, 0x4E00 + 3_000)]
    message = r"^tokenizer: the library gave up \(The vocabulary is not large enough to contain all chars\)\. "
    with pytest.raises(TextError, match=message):
        train_library_tokenizer(texts, TokenizerConfig(kind="unigram", vocabulary=100))


def test_half_characters_are_refused() -> None:
    for kind in KINDS:
        with pytest.raises(TextError, match=r"^tokenizer: the library gave up \('utf-\d+(-le)?' codec can't encode"):
            train_library_tokenizer(["half \ud800 of it"], TokenizerConfig(kind=kind))


def test_exceptions_of_the_texts_pass() -> None:
    def failing() -> Iterator[str]:
        yield "one"
        raise TextError("a.txt:7", "holds a NUL character")

    with pytest.raises(TextError, match=r"^a\.txt:7: holds a NUL character\.$"):
        train_library_tokenizer(failing(), TokenizerConfig())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "wordpeice"}, "tokenizer.kind: unknown kind 'wordpeice'. Did you mean 'wordpiece'?"),
        (
            {"vocabulary": 99},
            "tokenizer.vocabulary: 99 tokens are too few for wordpiece. Ask for at least 100.",
        ),
        (
            {"kind": "bpe", "vocabulary": 260},
            "tokenizer.vocabulary: 260 tokens are too few for bpe. Ask for at least 261.",
        ),
        (
            {"kind": "t5", "vocabulary": 199},
            "tokenizer.vocabulary: 199 tokens are too few for t5. Ask for at least 200.",
        ),
        (
            {"vocabulary": 10**11},
            "tokenizer.vocabulary: 100,000,000,000 tokens are too many. Ask for at most 10,000,000.",
        ),
        ({"min_frequency": 0}, "tokenizer.min_frequency: 0 is no count. Ask for 1 or more."),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    # In a separate process: here the types are checked first.
    script = f"from bertsmith.text.train import TokenizerConfig; TokenizerConfig(**{json.dumps(settings)})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.strip().endswith(f"RecipeError: {message}")


def test_the_smallest_vocabulary_is_checked() -> None:
    with pytest.raises(RecipeError):
        TokenizerConfig(kind="unigram", vocabulary=99)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1),
    st.sampled_from(KINDS),
)
def test_any_text_trains_a_tokenizer_or_is_refused(texts: list[str], kind: Kind) -> None:
    refused, size = "", 0
    try:
        tokenizer = train_library_tokenizer(texts, TokenizerConfig(kind=kind, vocabulary=300, min_frequency=1))
        tokenizer.encode_batch_fast(texts)
        size = tokenizer.get_vocab_size()
    except TextError as error:
        refused = str(error)
    assert size <= 300
    assert not refused or refused.startswith("tokenizer: ")


MEMORY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from text.syllables import lines
from bertsmith.text.train import TokenizerConfig, train_library_tokenizer
once = lines(10_000)
texts = (text for _ in range(int(sys.argv[2])) for text in once)
train_library_tokenizer(texts, TokenizerConfig(kind="bpe", vocabulary=1_000))
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.exhaustive
def test_memory_does_not_grow_with_the_text() -> None:
    def kilobytes(times: int) -> int:
        command = [sys.executable, "-c", MEMORY, str(Path(__file__).parents[1]), str(times)]
        return int(subprocess.check_output(command, env=os.environ | {"TOKENIZERS_PARALLELISM": "true"}))

    assert kilobytes(12) < kilobytes(2) + 4_000  # the text grows by five megabytes, ten when it is held
