"""Whole words: the most frequent have an id each, and all others share one."""

from pathlib import Path

import pytest
from text.syllables import lines

from bertsmith.errors import FolderError
from bertsmith.text.extend import extend
from bertsmith.text.tokenizer import END_OF_TEXT, Tokenizer, TokenizerConfig, train

TEXT = ["The cat sat, and the cat's mat is flat.", "the cat saw the zebra", "a zebra sat"]


def learnt(**settings: object) -> Tokenizer:
    return train(TEXT, TokenizerConfig(kind="words", **settings))  # type: ignore[arg-type]


def test_words_are_numbered_by_frequency() -> None:
    tokenizer = learnt(vocabulary=8, min_frequency=1)
    assert [tokenizer.piece(number) for number in range(8)] == [
        "<unk>",
        END_OF_TEXT,
        "the",
        "cat",
        "sat",
        "zebra",
        "'",
        ",",
    ]
    assert learnt(vocabulary=100, min_frequency=2).vocabulary == 6  # the words that occur two, three and four times
    assert train(lines(500), TokenizerConfig(kind="words", vocabulary=50)).vocabulary == 50


def test_a_rare_word_is_unknown_and_so_is_unk_in_a_text() -> None:
    tokenizer = learnt(vocabulary=6)
    ids = tokenizer.encode(["The <unk> cat, or a dog"])[0]
    assert [tokenizer.piece(number) for number in ids] == ["the", "<unk>", "cat", *["<unk>"] * 4]
    assert tokenizer.roles == {"padding": 1, "unknown": 0, "start": 1, "stop": 1}


def test_a_text_begins_with_the_end_token_of_the_one_before(tmp_path: Path) -> None:
    tokenizer = learnt()
    assert tokenizer.encode_pair("the cat")[0] == [1, *tokenizer.encode(["the cat"])[0]]
    tokenizer.save(tmp_path)
    opened = Tokenizer.load(tmp_path)
    assert opened.fingerprint == tokenizer.fingerprint
    assert opened.roles == tokenizer.roles
    assert opened.kind == "words"


def test_case_is_kept_where_it_is_asked_for() -> None:
    assert "The" not in learnt(min_frequency=1).piece_ids
    assert {"The", "the"} <= learnt(min_frequency=1, lowercase=False).piece_ids.keys()


def test_punctuation_marks_are_words_and_no_token_continues_a_word() -> None:
    tokenizer = learnt(min_frequency=1)
    assert len(tokenizer.encode(["the cat's mat."])[0]) == 6
    assert not tokenizer.continuation_mask.any()
    assert tokenizer.decode(tokenizer.encode(["the cat sat, flat."])[0]) == "the cat sat, flat."


def test_a_vocabulary_of_whole_words_is_not_extended() -> None:
    with pytest.raises(FolderError, match="is neither WordPiece nor byte-level BPE nor Unigram"):
        extend(learnt(), TEXT, 5)
