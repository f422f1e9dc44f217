"""Bits per byte of masked words: the same words by any vocabulary, and the figure that the probabilities give."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertsmith.data.rows import Row, pack_rows
from bertsmith.inference import masked_words
from bertsmith.inference.likelihood import score
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.extend import extend
from bertsmith.text.special_tokens import Kind
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

TEXTS = [
    "the doghouse and the cathouse stood by the river in the north of the old town",
    "a birdhouse hung in every tree of the garden and nobody knew who had made it",
] * 4


def tokenizer(kind: Kind = "wordpiece") -> Tokenizer:
    return train(
        ["the dog and a cat in the house", *TEXTS], TokenizerConfig(kind=kind, vocabulary=300, min_frequency=1)
    )


def shape(vocabulary: int, **changes: bool) -> TransformerConfig:
    return TransformerConfig(
        vocabulary=vocabulary, width=16, layers=1, heads=2, feed_forward=32, max_length=64, **changes
    )


def words(masked: masked_words.MaskedText, tokenizer: Tokenizer) -> str:
    return tokenizer.decode(masked.targets.tolist()).replace(" ", "")


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_the_same_words_are_masked_whole_by_another_vocabulary(kind: Kind) -> None:
    letters = ["the quick brown fox jumps over the lazy dog", "0123456789"]
    size = 290 if kind == "bpe" else 100
    small = train(letters, TokenizerConfig(kind=kind, vocabulary=size, min_frequency=1))
    texts = [f"{text} {number} dog" for number in range(12) for text in TEXTS[:2]]
    large = extend(small, texts * 9, 60)
    assert large.vocabulary > small.vocabulary
    before, after = (masked_words.mask_words(one, texts) for one in (small, large))
    assert [words(one, small) for one in before] == [words(one, large) for one in after]
    assert [one.bytes for one in before] == [one.bytes for one in after]
    assert sum(len(one.targets) for one in after) < sum(len(one.targets) for one in before)
    for one in after:
        assert (one.ids[one.positions] == large.mask_id).all()
        assert (one.ids == large.mask_id).sum() == len(one.positions)


def test_all_bytes_of_a_token_of_several_characters_are_counted() -> None:
    text = "マウントされているかどうかを調べてください"
    pieces = train([text] * 9, TokenizerConfig(vocabulary=200, lowercase=False))
    assert max(len(pieces.piece(number).strip("#")) for number in pieces.encode([text])[0]) > 1
    for masked in masked_words.mask_words(pieces, [text * number for number in range(2, 9)], mask_rate=0.4):
        spelled = "".join(pieces.piece(number).removeprefix("##") for number in masked.targets.tolist())
        assert masked.bytes == len(spelled.encode())


def test_about_the_asked_share_of_words_is_masked_and_another_seed_masks_others() -> None:
    pieces, texts = tokenizer(), [" ".join(["dog", "house"] * 30) + f" {number}" for number in range(30)]
    first, other = masked_words.mask_words(pieces, texts), masked_words.mask_words(pieces, texts, seed=1)
    share = sum(len(one.positions) for one in first) / sum(len(one.ids) - 2 for one in first)
    assert share == pytest.approx(0.15, abs=0.03)
    assert any(not np.array_equal(one.positions, two.positions) for one, two in zip(first, other, strict=True))
    many = masked_words.mask_words(pieces, texts, mask_rate=0.4)
    assert sum(len(one.positions) for one in many) > 2 * sum(len(one.positions) for one in first)


def test_in_scripts_without_spaces_a_character_is_a_word() -> None:
    assert [found[0] for found in masked_words.WORD.finditer("猫看狗 the cat.")] == ["猫", "看", "狗", "the", "cat."]


def test_bits_are_those_of_the_masked_tokens() -> None:
    pieces = tokenizer()
    objective = MaskedLM(Transformer(shape(pieces.vocabulary)), MaskedLM.Config(pairs="none")).eval()
    initialise(objective, 0, std=0.3)
    found = masked_words.bits_and_bytes(objective, pieces, TEXTS)
    assert sum(size for _, size in found) > 0
    for text, (bits, size) in zip(masked_words.mask_words(pieces, TEXTS), found, strict=True):
        with torch.inference_mode():
            hidden = objective.trunk(pack_rows([Row(text.ids, np.zeros_like(text.ids))]))
            logits = objective.logits(hidden[text.positions])
        expected = F.cross_entropy(logits, torch.from_numpy(text.targets), reduction="sum") / math.log(2)
        assert bits == pytest.approx(float(expected), rel=1e-4)
        assert size == text.bytes
    assert masked_words.bits_per_byte([(6.0, 2), (2.0, 2)]) == 2.0


def test_a_causal_model_scores_whole_texts() -> None:
    pieces = tokenizer("bpe")
    objective = CausalLM(Transformer(shape(pieces.vocabulary, causal=True)), CausalLM.Config()).eval()
    initialise(objective, 0)
    [(bits, size), *_] = masked_words.bits_and_bytes(objective, pieces, TEXTS)
    assert bits == pytest.approx(-score(objective, pieces, TEXTS)[0].log_likelihood / math.log(2))
    assert size == len(TEXTS[0])


def test_passages_are_spread_do_not_overlap_and_fit() -> None:
    pieces = tokenizer()
    sentences = [f"the dog {number} and the house" for number in range(40)]
    passages = masked_words.cut_passages(sentences, pieces, 30, 4)
    assert len(passages) == 4
    assert all(0 < len(ids) <= 30 for ids in pieces.encode(passages))
    numbers = [[int(word) for word in passage.split() if word.isdecimal()] for passage in passages]
    assert [found[0] for found in numbers] == [0, 10, 20, 30]
    assert all(found == list(range(found[0], found[-1] + 1)) for found in numbers)
    [long] = masked_words.cut_passages(["the dog " * 50], pieces, 30, 4)
    assert len(pieces.encode([long])[0]) == 30
    assert masked_words.cut_passages([], pieces, 30, 4) == []
