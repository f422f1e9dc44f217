"""Character ids of words."""

import numpy as np
import pytest

from bertsmith.nn.rnn import char_cnn
from bertsmith.text import characters as spelling
from bertsmith.text.characters import (
    PADDING,
    boundary_characters,
    encode_characters,
    encode_with_characters,
    encode_words_with_characters,
    vocabulary_characters,
)
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

WORDS = ["the", "cat", "saw", "a", "dog", "and", "ran"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 3, TokenizerConfig(kind="words", vocabulary=50, min_frequency=1, lowercase=True))


def letters(word: str, most: int = 10) -> list[int]:
    return encode_characters([word], most)[0].tolist()


def test_character_ids_are_the_published_ones() -> None:
    """Byte b is b + 1; text begins and ends, word begins and ends, and padding follow from 257 on; 262 in all."""
    assert letters("ab") == [259, 98, 99, 260, 261, 261, 261, 261, 261, 261]
    assert boundary_characters(5).tolist() == [[259, 257, 260, 261, 261], [259, 258, 260, 261, 261]]
    assert spelling.CHARACTER_VOCABULARY == 262
    assert spelling.FIRST_BYTE == 1


def test_networks_have_the_same_character_ids() -> None:
    assert (char_cnn.CHARACTERS, char_cnn.PADDING) == (spelling.CHARACTER_VOCABULARY, spelling.PADDING)


def test_a_character_is_a_byte_of_utf8() -> None:
    assert letters("é") == [259, 0xC3 + 1, 0xA9 + 1, 260, *[261] * 6]


def test_a_long_word_is_truncated_between_its_markers() -> None:
    assert letters("abcdefghij", 6) == [259, 98, 99, 100, 101, 260]
    assert letters("abcd", 6) == [259, 98, 99, 100, 101, 260]
    assert letters("", 6) == [259, 260, *[PADDING] * 4]


def test_no_words_give_no_rows() -> None:
    assert encode_characters([], 6).shape == (0, 6)


def test_a_word_that_is_not_valid_utf8_has_characters_too() -> None:
    assert letters("\ud800") == letters("?")


def test_the_characters_of_a_vocabulary_are_those_of_its_words(tokenizer: Tokenizer) -> None:
    table = vocabulary_characters(tokenizer, 8)
    assert table.shape == (tokenizer.vocabulary, 8)
    for word in WORDS:
        assert table[tokenizer.piece_ids[word]].tolist() == letters(word, 8)
    assert table[tokenizer.start_id].tolist() == boundary_characters(8)[0].tolist()


def test_words_in_a_text_have_their_own_characters_after_normalisation(
    tokenizer: Tokenizer,
) -> None:
    [(ids, spelt), (none, empty)] = encode_with_characters(tokenizer, ["The zebra, a cat", ""], 8)
    assert ids == tokenizer.encode(["The zebra, a cat"])[0]
    assert ids[1] == tokenizer.unknown_id
    assert spelt.tolist() == [letters(word, 8) for word in ("the", "zebra", ",", "a", "cat")]
    assert none == []
    assert empty.shape == (0, 8)


def test_a_known_word_has_the_same_characters_in_the_vocabulary_and_in_a_text(tokenizer: Tokenizer) -> None:
    [(ids, spelt)] = encode_with_characters(tokenizer, [" ".join(WORDS)], 8)
    assert np.array_equal(spelt, vocabulary_characters(tokenizer, 8)[ids])


def test_a_sentence_of_words_is_encoded_as_its_text_is(tokenizer: Tokenizer) -> None:
    sentences = [["The", "U.S.", "cat"], ["zebra"], []]
    found = encode_words_with_characters(tokenizer, sentences, 8)
    for (ids, owners, spelt), sentence, (true, of) in zip(
        found, sentences, tokenizer.encode_words(sentences), strict=True
    ):
        assert ids == true
        assert owners == of
        assert np.array_equal(spelt, encode_with_characters(tokenizer, [" ".join(sentence)], 8)[0][1])
    assert found[0][1] == [0, 1, 1, 1, 1, 2]
