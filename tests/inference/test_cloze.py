"""Openings for a model to go on with, and sentences with a blank."""

from pathlib import Path

import pytest

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.prepare import prepare
from bertsmith.data.shards.shards import Shards
from bertsmith.inference.cloze import cloze_sentences, openings
from bertsmith.text.special_tokens import Kind
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

WORDS = list("abcdefghijkl")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    lines = [" ".join(WORDS[number % 3 :]) for number in range(40)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(lines) + "\n")
    return path


def made(text: Path, kind: Kind) -> tuple[Shards, Tokenizer]:
    corpus = Corpus([str(text)], layout="lines")
    tokenizer = train(corpus.lines(), TokenizerConfig(kind=kind, vocabulary=400, min_frequency=1))
    prepare(corpus, tokenizer, text.parent / kind, validation_share=0.0, workers=1)
    return Shards(text.parent / kind / "train"), tokenizer


def test_an_opening_is_the_first_half_of_a_sentence(text: Path) -> None:
    shards, tokenizer = made(text, "bpe")
    found = openings(shards, tokenizer, 3)
    assert found
    assert all(" ".join(WORDS).find(one.strip()) >= 0 and 0 < len(one) < len(" ".join(WORDS)) for one in found)


def test_with_sentinels_it_is_a_whole_sentence_with_something_taken_out(text: Path) -> None:
    found = openings(*made(text, "t5"), 3)
    assert found
    for one in found:
        before, after = one.split("<extra_id_0>")
        assert before.strip() in " ".join(WORDS)
        assert after.strip() in " ".join(WORDS)


def test_a_blank_in_a_chinese_text_is_a_character_and_not_always_a_latin_word(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(f"参数{one}是一个标志字，可以包含下列 Linux 标志。" for one in "甲乙丙丁戊己庚辛" * 4))
    found = cloze_sentences(*made(path, "wordpiece"), 8)
    assert len(found) == 8
    assert sum(len(cloze.truth) == 1 for cloze in found) >= 6
    plain = [cloze.text.replace(" [MASK]", "").replace("[MASK] ", "") for cloze in found]
    assert all(text.split(" linux ")[0].count(" ") <= 1 for text in plain)  # one where the blank is, no others
