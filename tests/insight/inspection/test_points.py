"""The points of a map: words in scripts without spaces, in long texts, and as byte-level tokenizers know them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from parity.test_roberta import tokenizer as byte_level
from tasks.small import shape, stirred

from bertsmith.errors import TextError
from bertsmith.insight.inspection.points import Points, _occurrence_vector, draw_map, read_points
from bertsmith.insight.inspection.projection import Point, pca
from bertsmith.insight.inspection.subject import Subject
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train


def masked_lm(tokenizer: Tokenizer, max_length: int = 64) -> Subject:
    trunk = Transformer(shape(vocabulary=tokenizer.vocabulary, max_length=max_length))
    return Subject("small", "bert", "pretrained", stirred(MaskedLM(trunk, MaskedLM.Config(pairs="none"))), tokenizer)


@pytest.mark.parametrize(
    ("text", "word", "found"),
    [
        ("我的猫很大", "猫", ["猫"]),
        ("แมวกินปลา", "กิน", ["กิน"]),
        ("犬catと猫", "cat", ["cat"]),
        ("C++11 or C++", "c++", ["C++", "C++"]),
        ("cats concat cat_1 a cat", "cat", ["cat"]),
        ("кошкам кошка", "кошка", ["кошка"]),
        ("की क", "क", ["क"]),  # a combining mark belongs to its letter
        ("ba a a", "a a", ["a a"]),  # a part of a word does not hide the word after it
    ],
)
def test_a_word_has_bounds_in_scripts_with_spaces_alone(text: str, word: str, found: list[str], tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text(text, encoding="utf-8")
    points = read_points(lines, word)
    assert points.spans is not None
    assert [text[start:end] for start, end in points.spans] == found
    assert points.spans[-1][1] == len(text) or text.startswith(("我", "แ", "犬"))


@torch.inference_mode()
@pytest.mark.parametrize(
    ("before", "after", "read"),
    [
        ("日本語" * 200 + " ", " x", "日本語" * 2 + " cat x"),
        ("日本語" * 200 + " ", " " + "語本日" * 200, "日本語" * 2 + " cat 語本日語本日語"),
        ("", " " + "日本語" * 200, "cat 日本語日本語日本語日本語日"),
    ],
)
def test_a_word_in_dense_text_is_read_with_the_tokens_around_it(before: str, after: str, read: str) -> None:
    tokenizer = train(["日 本 語 cat x"] * 3, TokenizerConfig(vocabulary=100, min_frequency=1))
    one = masked_lm(tokenizer, max_length=16)
    vector = _occurrence_vector(one, f"{before}cat{after}", (len(before), len(before) + 3))
    alone = _occurrence_vector(one, read, (read.index("cat"), read.index("cat") + 3))
    assert vector.numpy() == pytest.approx(alone.numpy(), abs=1e-5)


def test_a_word_without_a_token_is_refused() -> None:
    one = masked_lm(train(["the cat"] * 3, TokenizerConfig(vocabulary=100, min_frequency=1)))
    with pytest.raises(TextError) as refused:
        _occurrence_vector(one, "the cat \u200b \u0001 sees", (10, 11))
    assert str(refused.value) == "word: '\u0001' has no token that the model reads. Name another word."


def test_bare_words_of_a_byte_level_tokenizer_have_the_tokens_that_they_have_inside_a_text() -> None:
    tokenizer = byte_level()
    words = ["cat", "dog", "river", "the"]
    assert tokenizer.encode(["cat"]) != tokenizer.encode([" cat"])
    one = masked_lm(tokenizer)
    drawn = draw_map(Points("words", [Point(word) for word in words], [], words), [one])
    table = one.objective.trunk.embedding.weight.detach().numpy()
    rows = np.stack([table[ids].mean(0) for ids in tokenizer.encode([f" {word}" for word in words])])
    assert drawn.coordinates[0]["PCA"] == pytest.approx(pca(rows)[0], abs=1e-5)
