"""More pieces for a vocabulary: old ones keep their numbers, new ones save tokens."""

from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.text.extend import extend
from bertsmith.text.measure import measure
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

PLAIN = ["The patient has a fever and a cough.", "A doctor saw the child in the house."] * 20
DOMAIN = ["Thrombocytopenia after heparin, and no nephritis.", "Heparin and thrombocytopenia again.", "Arthritis."] * 20


@pytest.fixture(scope="module")
def old() -> Tokenizer:
    return train([*PLAIN, " ".join("abcdefghijklmnopqrstuvwxyz,.")], TokenizerConfig(vocabulary=140, least=1))


def test_old_pieces_keep_their_numbers_and_roles(old: Tokenizer, tmp_path: Path) -> None:
    new = extend(old, DOMAIN, 5)
    assert new.vocabulary == old.vocabulary + 5
    assert all(new.piece(number) == old.piece(number) for number in range(old.vocabulary))
    assert new.roles == old.roles
    new.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == new.fingerprint
    assert again.encode(DOMAIN) == new.encode(DOMAIN)


def test_the_first_new_pieces_are_those_that_save_the_most(old: Tokenizer) -> None:
    one, many = extend(old, DOMAIN, 1), extend(old, DOMAIN, 40)
    assert one.piece(old.vocabulary) == "thrombocytopenia"
    tokens = [measure(tokenizer, DOMAIN).tokens for tokenizer in (old, one, many)]
    assert tokens[0] - tokens[1] == 40 * (len(old.spelt("thrombocytopenia")) - 1)
    assert tokens[2] < tokens[1] < tokens[0]
    assert measure(many, DOMAIN).tokens_per_word < 1.5 < measure(old, DOMAIN).tokens_per_word
    assert measure(many, DOMAIN).unknown == 0


def test_text_without_new_words_is_cut_as_before(old: Tokenizer) -> None:
    assert extend(old, DOMAIN, 40).encode(PLAIN) == old.encode(PLAIN)


def test_what_the_vocabulary_has_is_not_added(old: Tokenizer) -> None:
    assert extend(old, PLAIN, 1000).numbered.keys() - old.numbered.keys() == set()


def test_what_cannot_be_extended_is_refused_in_one_line(old: Tokenizer) -> None:
    with pytest.raises(BertsmithError, match=r"^--more: 0 is no number of pieces to add\. Give at least 1\.$"):
        extend(old, DOMAIN, 0)
    bytewise = train(PLAIN, TokenizerConfig(kind="bpe", vocabulary=300))
    with pytest.raises(
        BertsmithError, match=r"is not WordPiece as BERT has it\. Only such vocabularies can be extended\.$"
    ):
        extend(bytewise, DOMAIN, 5)
