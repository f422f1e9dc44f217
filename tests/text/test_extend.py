"""Vocabulary extension: old tokens keep their ids, new ones shorten the text."""

from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, models
from transformers import AutoTokenizer

from bertsmith.errors import BertsmithError
from bertsmith.text.extend import extend, with_pieces
from bertsmith.text.fertility import measure_fertility
from bertsmith.text.special_tokens import Kind
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train
from bertsmith.text.train import train_library_tokenizer

PLAIN = ["The patient has a fever and a cough.", "A doctor saw the child in the house."] * 20
DOMAIN = ["Thrombocytopenia after heparin, and no nephritis.", "Heparin and thrombocytopenia again.", "Arthritis."] * 20
STRANGE = ["Żółć ☃ naïve, 東京 🙂\tand\n\nheparin<mask>[MASK]", "  thrombocytopenias!?  ", ""]
ALPHABET = " ".join("abcdefghijklmnopqrstuvwxyz,.")
SIZES: dict[Kind, int] = {"wordpiece": 140, "bpe": 300, "unigram": 140, "t5": 238}
WHOLE: dict[Kind, str] = {
    "wordpiece": "thrombocytopenia",
    "bpe": "Ġthrombocytopenia",
    "unigram": "▁thrombocytopenia",
    "t5": "▁thrombocytopenia",
}


def made(kind: Kind) -> Tokenizer:
    return train(
        [*PLAIN, ALPHABET], TokenizerConfig(kind=kind, vocabulary=SIZES[kind], lowercase=True, min_frequency=1)
    )


@pytest.fixture(scope="module", params=SIZES)
def old(request: pytest.FixtureRequest) -> Tokenizer:
    return made(request.param)


def expanded(new: Tokenizer, old: Tokenizer, texts: list[str]) -> list[list[int]]:
    """Texts encoded with the new vocabulary, each token split into tokens of the old one."""
    return [[part for number in row for part in old.split_piece(new.piece(number))] for row in new.encode(texts)]


def test_old_tokens_keep_their_ids_and_roles(old: Tokenizer, tmp_path: Path) -> None:
    new = extend(old, DOMAIN, 5)
    assert new.vocabulary == old.vocabulary + 5
    assert all(new.piece(number) == old.piece(number) for number in range(old.vocabulary))
    assert new.roles == old.roles
    assert new.kind == old.kind
    new.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == new.fingerprint
    assert again.encode(DOMAIN) == new.encode(DOMAIN)


def test_transformers_opens_it_and_gives_the_same_ids(old: Tokenizer, tmp_path: Path) -> None:
    new = extend(old, DOMAIN, 40)
    new.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert len(theirs) == new.vocabulary
    texts = [*PLAIN, *DOMAIN, *STRANGE]
    assert [theirs(text)["input_ids"] for text in texts] == [new.encode_pair(text)[0] for text in texts]


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "t5"])
def test_the_first_new_tokens_are_those_that_save_the_most(kind: Kind) -> None:
    old = made(kind)
    one, many = extend(old, DOMAIN, 1), extend(old, DOMAIN, 40)
    assert one.piece(old.vocabulary) == WHOLE[kind]
    tokens = [measure_fertility(tokenizer, DOMAIN).tokens for tokenizer in (old, one, many)]
    assert tokens[0] - tokens[1] == 40 * (len(old.split_piece(WHOLE[kind])) - 1)
    assert tokens[2] < tokens[1]


def test_new_merges_of_bpe_follow_the_old_ones_the_most_frequent_first() -> None:
    old = made("bpe")
    new = extend(old, DOMAIN, 40)
    counts = [measure_fertility(extend(old, DOMAIN, more), DOMAIN).tokens for more in range(1, 6)]
    saved = [
        before - after for before, after in zip([measure_fertility(old, DOMAIN).tokens, *counts], counts, strict=False)
    ]
    assert saved == sorted(saved, reverse=True)
    assert min(saved) > 0
    assert WHOLE["bpe"] in new.piece_ids
    assert len(new.encode([" thrombocytopenia"])[0]) == 1


def test_words_of_the_text_need_fewer_tokens(old: Tokenizer) -> None:
    new = extend(old, DOMAIN, 60)
    assert measure_fertility(new, DOMAIN).tokens_per_word < 1.6 < 3 < measure_fertility(old, DOMAIN).tokens_per_word
    assert measure_fertility(new, DOMAIN).unknown == measure_fertility(old, DOMAIN).unknown


def test_text_without_new_words_is_encoded_as_before(old: Tokenizer) -> None:
    new = extend(old, DOMAIN, 40)
    untouched = [text for text in [*PLAIN, *DOMAIN, *STRANGE] if max(new.encode([text])[0], default=0) < old.vocabulary]
    assert PLAIN[1] in untouched
    assert not set(DOMAIN) & set(untouched)
    assert new.encode(untouched) == old.encode(untouched)


def test_nothing_of_a_text_is_lost(old: Tokenizer) -> None:
    new = extend(old, DOMAIN, 40)
    for text in (*PLAIN, *DOMAIN, *STRANGE):
        kept = new.decode(new.encode([text])[0], keep_special=True)
        assert kept == old.decode(old.encode([text])[0], keep_special=True)
        if old.kind == "bpe" and "<mask>" not in text:
            assert kept == text


@pytest.mark.parametrize("kind", ["bpe", "unigram", "t5"])
def test_a_text_is_split_as_before_and_then_merged(kind: Kind) -> None:
    old = made(kind)
    texts = [*PLAIN, *DOMAIN, "rethrombosed cytopenic nephropathies, a hepatic feverishness and unpatient arthropods"]
    for more in (1, 5, 20, 60):
        new = extend(old, DOMAIN, more)
        assert expanded(new, old, texts) == old.encode(texts)


def test_a_merge_that_would_make_an_old_token_is_left_out() -> None:
    """`abc` is made of `a` and `bc`; where a text has `ab` and `c`, a new merge would make `abc` from them, too."""
    inner = train_library_tokenizer(["x"], TokenizerConfig(kind="bpe", vocabulary=261))
    base = Tokenizer(inner)
    old = with_pieces(base, ["bc", "abc", "ab", "cd"], [("b", "c"), ("a", "bc"), ("a", "b"), ("c", "d")])
    texts = ["abcd", "abcd", "abcd"]
    assert [old.piece(number) for number in old.encode(texts)[0]] == ["abc", "d"]
    tricky = with_pieces(base, ["ab", "bc", "abc"], [("a", "b"), ("b", "c"), ("a", "bc")])  # `abc` is out of reach
    assert [tricky.piece(number) for number in tricky.encode(["abc"])[0]] == ["ab", "c"]
    new = extend(tricky, ["abc", "abcd", "abcd", "xy", "xy"], 100)
    assert new.encode(["abc"]) == tricky.encode(["abc"])
    assert {new.piece(number) for number in range(tricky.vocabulary, new.vocabulary)} == {"xy"}


def test_special_tokens_after_the_others_keep_their_ids(old: Tokenizer, tmp_path: Path) -> None:
    """As in ModernBERT, T5 and XLM-RoBERTa, whose model vocabulary ends before them."""
    inner = tokenizers.Tokenizer.from_str(old._inner.to_str())
    inner.add_special_tokens(["<first>", "<second>"])
    inner.add_tokens([AddedToken("plainword")])
    behind = Tokenizer(inner)
    assert behind.vocabulary == old.vocabulary + 3
    new = extend(behind, DOMAIN, 5)
    assert new.vocabulary == behind.vocabulary + 5
    assert all(new.piece(number) == behind.piece(number) for number in range(behind.vocabulary))
    assert (new.special_mask[: behind.vocabulary] == behind.special_mask).all()
    texts = ["the <first> patient<second> plainword has a plainwords", *PLAIN]
    assert new.encode(texts) == behind.encode(texts)
    new.save(tmp_path)
    assert Tokenizer.load(tmp_path).encode(texts + DOMAIN) == new.encode(texts + DOMAIN)


def test_no_token_of_unigram_merges_a_word_with_punctuation() -> None:
    old = made("unigram")
    new = extend(old, DOMAIN, 1000)
    joined = {new.piece(number) for number in range(old.vocabulary, new.vocabulary)}
    assert {"▁nephritis", "▁heparin"} <= joined
    assert not any(set(piece) & set(",.") for piece in joined)


def test_a_new_token_is_split_into_the_old_ones_it_replaces(old: Tokenizer) -> None:
    for number in range(old.vocabulary, (new := extend(old, DOMAIN, 40)).vocabulary):
        parts = old.split_piece(new.piece(number))
        assert len(parts) > 1
        mark = "##" if old.kind == "wordpiece" else ""
        first, *others = (old.piece(part) for part in parts)
        assert first + "".join(other.removeprefix(mark) for other in others) == new.piece(number)
    for role, number in old.roles.items():
        assert new.split_piece(old.piece(number)) == [new.roles[role]]


def test_bpe_splits_a_token_by_its_merges_and_not_by_the_longest_match() -> None:
    base = Tokenizer(train_library_tokenizer(["x"], TokenizerConfig(kind="bpe", vocabulary=261)))
    old = with_pieces(base, ["bc", "ab"], [("b", "c"), ("a", "b")])
    assert [old.piece(number) for number in old.split_piece("abc")] == ["a", "bc"]


def test_unigram_splits_a_token_into_the_likeliest_ones_without_unknown_ones() -> None:
    scores = [("<unk>", 0.0), ("a", -5.0), ("b", -5.0), ("c", -5.0), ("ab", -4.0), ("bc", -1.0)]
    old = Tokenizer(tokenizers.Tokenizer(models.Unigram(scores, unk_id=0)))
    assert [old.piece(number) for number in old.split_piece("abc")] == ["a", "bc"]
    assert old.split_piece("abz") == []


def test_tokens_of_the_vocabulary_are_not_added_again(old: Tokenizer) -> None:
    new = extend(old, DOMAIN, 1000)
    again = extend(new, DOMAIN, 1000)
    assert again.vocabulary == new.vocabulary < old.vocabulary + 1000


def test_asking_for_too_many_tokens_takes_no_memory(old: Tokenizer) -> None:
    assert extend(old, DOMAIN, 10**15).vocabulary < old.vocabulary + 1000
    assert extend(old, ["  ", ""], 5).vocabulary == old.vocabulary


def test_a_tokenizer_that_cannot_be_extended_is_refused_in_one_line(old: Tokenizer) -> None:
    with pytest.raises(BertsmithError, match=r"^--new-tokens: 0 is no number of tokens to add\. Give at least 1\.$"):
        extend(old, DOMAIN, 0)
    words = Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    with pytest.raises(BertsmithError) as caught:
        extend(words, DOMAIN, 5)
    assert str(caught.value) == (
        "tokenizer: is neither WordPiece nor byte-level BPE nor Unigram. Only such vocabularies can be extended."
    )
