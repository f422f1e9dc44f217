"""Two readings side by side: aligned tokens, distances by layer, heads that differ, predictions and scores."""

import json

import numpy as np
import pytest
import torch
from insight.inspection.small import SIZES, stored, token, tokenizer
from tasks.small import stirred

from bertsmith.inference.likelihood import score
from bertsmith.insight.inspection.comparison import align, compare, total_variation
from bertsmith.insight.inspection.reading import Reading, read
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM


def masked_lm(seed: int = 0, **changes: object) -> MaskedLM:
    config = TransformerConfig(**SIZES | {"vocabulary": tokenizer().vocabulary} | changes)
    made: MaskedLM = stirred(MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")), seed)
    return made


def reading(text: str, seed: int = 0, **changes: object) -> Reading:
    return read(masked_lm(seed, **changes), tokenizer(), text)


def test_a_text_does_not_differ_from_itself() -> None:
    one = reading("the old dog likes the river")
    found = compare(one, one)
    assert found.pairs == [(place, place) for place in range(8)]
    assert (found.only_a, found.only_b, found.predictions) == ([], [], [])
    assert found.distance is not None
    assert found.heads is not None
    assert found.distance.max() < 1e-6
    assert found.heads.max() < 1e-6


def test_one_word_that_is_replaced_parts_two_texts() -> None:
    objective, words = masked_lm(), tokenizer()
    texts = ["the old dog likes the river", "the old cat likes the river"]
    one, other = (read(objective, words, text) for text in texts)
    found = compare(one, other)
    assert (found.only_a, found.only_b) == ([3], [3])
    assert found.pairs == [(place, place) for place in range(8) if place != 3]
    assert found.distance is not None
    assert found.distance[0].max() < 1e-6  # before any layer no other token knows of it
    assert found.distance[1:].min() > 0
    for layer, (a, b) in enumerate(zip(one.trace.hidden, other.trace.hidden, strict=True)):
        cosine = torch.cosine_similarity(torch.from_numpy(a), torch.from_numpy(b)).numpy()
        np.testing.assert_allclose(found.distance[layer], (1 - cosine)[[0, 1, 2, 4, 5, 6, 7]], atol=1e-5)
    assert found.scores == pytest.approx([one.log_likelihood for one in score(objective, words, texts)], rel=1e-4)


def test_the_json_has_what_a_page_needs() -> None:
    one, other = reading("the old dog likes the river"), reading("the cat likes the old green river")
    found = compare(one, other)
    figures = json.loads(json.dumps(found.figures(3, 5)))
    assert (figures["a"], figures["b"], figures["what"]) == (3, 5, "texts")
    assert figures["layers"] == ["embeddings", "1", "2", "3"]
    distance = stored(figures["distance"], 4, len(figures["pairs"])) / 255
    assert found.distance is not None
    assert np.abs(distance - found.distance.clip(0, 1)).max() < 1 / 255
    np.testing.assert_allclose(figures["distances"], found.distance, rtol=1e-3, atol=1e-9)
    assert np.shape(figures["heads"]) == (3, 4)
    for label, first, second in figures["predictions"]:
        assert label.endswith(")")
        assert len(first) == len(second) == 3
        assert first[0][0] != second[0][0]


def test_longer_texts_are_aligned_by_equal_tokens_in_order() -> None:
    one, other = ([token(number) for number in row] for row in ([1, 2, 3, 4, 9], [1, 3, 7, 4, 9, 9]))
    assert align(one, other) == [(0, 0), (2, 1), (3, 3), (4, 4)]
    assert align(one, [token(50)]) == []


def test_total_variation_is_zero_for_equal_rows_and_one_for_disjoint_ones() -> None:
    pairs = [(0, 0), (1, 1)]
    eye = np.eye(2, dtype=np.float32)[None]
    assert total_variation(eye, eye, pairs) == pytest.approx([0.0])
    assert total_variation(eye, eye[:, ::-1], pairs) == pytest.approx([1.0])
    assert total_variation(eye, np.full((1, 2, 2), 0.5, np.float32), pairs) == pytest.approx([0.5])
    assert total_variation(eye, eye, []) == pytest.approx([0.0])


def test_attention_to_a_word_and_to_the_word_in_its_place_is_the_same() -> None:
    rows = np.zeros((1, 3, 3), np.float32)
    rows[:, :, 1] = 1
    assert total_variation(rows, rows, [(0, 0), (2, 2)]) == pytest.approx([0.0])


def test_one_text_in_two_checkpoints_is_compared_layer_by_layer() -> None:
    text = "the old dog likes the river"
    found = compare(reading(text), reading(text, seed=1), "models")
    assert found.distance is not None
    assert found.distance.max() > 0.1
    assert found.heads is not None
    assert found.predictions
    assert found.scores is not None


def test_networks_of_other_sizes_have_no_distance_and_no_heads() -> None:
    text = "the old dog likes the river"
    found = compare(reading(text), reading(text, width=24, heads=3), "models")
    assert found.distance is None
    assert found.heads is None
    assert found.figures(0, 1)["distance"] is None
    wider = compare(reading(text), reading(text, width=24), "models")
    assert wider.distance is None
    assert wider.heads is not None
    assert compare(reading(text), reading(text, layers=2), "models").distance is None


def test_models_with_other_vocabularies_meet_in_the_words_that_they_show() -> None:
    text, pieces = "dog likes the river", tokenizer("words")
    config = TransformerConfig(**SIZES, vocabulary=pieces.vocabulary)
    made = stirred(MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")))
    other, one = read(made, pieces, text), reading(text)
    found = compare(one, other, "models")
    met = {one.tokens[i].shown for i, _ in found.pairs}
    assert met == {"dog", "likes", "the", "river"}
    assert found.distance is None  # the vectors have nothing to do with each other


def test_causal_models_are_compared_by_what_comes_next() -> None:
    pieces = tokenizer("bpe")
    config = TransformerConfig(**SIZES, vocabulary=pieces.vocabulary, causal=True)
    objective = stirred(CausalLM(Transformer(config), CausalLM.Config()))
    texts = ["the old dog likes", "the green dog likes"]
    one, other = (read(objective, pieces, text) for text in texts)
    found = compare(one, other)
    assert found.scores == pytest.approx([one.log_likelihood for one in score(objective, pieces, texts)], rel=1e-4)
    assert found.distance is not None
    assert found.pairs[0] == (0, 0)
    assert found.distance[:, :2].max() < 1e-6  # no layer of a causal network knows what comes later
    assert found.distance[1:, -1].min() > 0
