"""Neighbours of words in context: words used alike are near, by any number of tokens."""

import torch

from bertsmith.inference.word_neighbours import nearest_words, typical_words
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.text.tokenizer import TokenizerConfig, train

SENTENCES = [
    f"the {subject} {verb} with the {thing}"
    for subject in ("captain", "sailor", "doctor", "patient")
    for verb in ("stood", "walked")
    for thing in ("rope", "flag")
]


def test_words_of_a_text_are_typical_if_the_reference_has_them_less() -> None:
    sentences = ["with anchor with anchor", "with sails with anchor", "with sails anchor sails sails"]
    reference = ["with others with others"] * 20
    assert typical_words(sentences, reference, 2) == ["anchor", "sails"]
    assert "with" not in typical_words(sentences, reference, 2)
    assert typical_words(["rare word"], reference, 3) == []  # four occurrences at least


def test_words_with_similar_vectors_are_neighbours() -> None:
    tokenizer = train(SENTENCES, TokenizerConfig(vocabulary=200, min_frequency=1))
    shape = TransformerConfig(
        vocabulary=tokenizer.vocabulary, width=32, layers=1, heads=2, feed_forward=32, max_length=16
    )
    trunk = Transformer(shape).eval()
    initialise(trunk, 0)
    torch.nn.init.normal_(trunk.embedding.weight)
    with torch.no_grad():  # captain is made like sailor, and doctor like patient
        for one, other in (("captain", "sailor"), ("doctor", "patient")):
            ids = [tokenizer.encode([word])[0] for word in (one, other)]
            assert all(len(found) == 1 for found in ids)
            trunk.embedding.weight[ids[0]] = trunk.embedding.weight[ids[1]] + 0.01
    found = nearest_words(trunk, tokenizer, SENTENCES, ["captain", "doctor", "unseen"], count=2)
    assert found.keys() == {"captain", "doctor"}
    assert found["captain"][0] == "sailor"
    assert found["doctor"][0] == "patient"
    assert all(word not in near for word, near in found.items())
    assert nearest_words(trunk, tokenizer, ["one"], ["one"]) == {}


def test_vectors_are_means_over_the_tokens_of_a_word() -> None:
    whole = train(SENTENCES, TokenizerConfig(vocabulary=200, min_frequency=1))
    letters = train(["the quick brown fox jumps over the lazy dog"], TokenizerConfig(vocabulary=100, min_frequency=1))
    shape = TransformerConfig(vocabulary=200, width=32, layers=1, heads=2, feed_forward=32, max_length=64)
    trunk = Transformer(shape).eval()
    initialise(trunk, 0)
    for tokenizer in (whole, letters):
        assert len(nearest_words(trunk, tokenizer, SENTENCES, ["captain"], count=3)["captain"]) == 3
