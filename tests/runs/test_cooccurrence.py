"""Token embeddings that start from co-occurrence counts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import PLACES, VERBS, prepared, recipe
from torch import nn

from bertsmith import config
from bertsmith.commands import pretrain
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.prepare import prepare
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import RecipeError
from bertsmith.recipe import Recipe
from bertsmith.runs import build, cooccurrence
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("text"))


@pytest.fixture
def text(data: Path) -> Shards:
    return Shards(data / "train")


def tokens_of(text: Shards) -> list[int]:
    return [int(token) for token in text.gather(np.array([0]), np.array([text.tokens]))]


def test_counts_are_those_of_a_plain_loop(text: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "CONTEXTS", 7)
    counts = cooccurrence.cooccurrence_counts(text, text.vocabulary)
    contexts = np.argsort(-text.frequencies(), kind="stable")[:7].tolist()
    expected, ids = np.zeros((text.vocabulary, 7)), tokens_of(text)
    for place, token in enumerate(ids):
        for other in range(max(0, place - cooccurrence.WINDOW), min(len(ids), place + cooccurrence.WINDOW + 1)):
            if other != place and ids[other] in contexts:
                expected[token, contexts.index(ids[other])] += 1 / abs(other - place)
    assert np.allclose(counts.numpy(), expected, rtol=1e-4)


def test_a_long_text_is_read_in_parts_from_all_over_it(text: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "PART", 50)
    monkeypatch.setattr(cooccurrence, "MAX_TOKENS", text.tokens // 4)
    parts = list(cooccurrence._parts(text))
    ids = tokens_of(text)
    assert sum(len(part) for part in parts) == pytest.approx(text.tokens / 4, abs=100)
    begins = [next(start for start in range(len(ids)) if ids[start : start + 50] == part.tolist()) for part in parts]
    assert begins[0] == 0
    assert begins == sorted(begins)
    assert begins[-1] > 0.9 * text.tokens - 200


def test_pmi_is_the_logarithm_of_a_ratio_of_probabilities() -> None:
    counts = torch.tensor([[4.0, 0.0, 1.0], [1.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    pmi = cooccurrence.positive_pmi(counts)
    contexts = np.array([5.0, 2.0, 3.0]) ** 0.75
    expected = np.log(0.8 / (contexts[0] / contexts.sum()))
    assert pmi[0, 0].item() == pytest.approx(expected, rel=1e-5)
    assert pmi[0, 1] == 0  # never seen together
    assert (pmi[2] == 0).all()  # never seen at all
    assert (pmi >= 0).all()


def test_the_factor_has_the_inner_products_of_an_exact_decomposition() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(60, 12, generator=generator) @ torch.randn(12, 40, generator=generator)
    vectors = cooccurrence.factorise(matrix, 8, seed=1)
    left, values, _ = torch.linalg.svd(matrix)
    exact = left[:, :8] * values[:8].sqrt()
    assert torch.allclose(vectors @ vectors.T, exact @ exact.T, atol=1e-4 * float(values[0]))
    assert vectors.shape == (60, 8)
    assert cooccurrence.factorise(matrix, 100, seed=1).shape == (60, 100)  # wider than the matrix has columns


def test_every_token_of_the_text_gets_a_vector_of_one_length_and_the_others_keep_theirs(text: Shards) -> None:
    embedding = nn.Embedding(text.vocabulary, 16)
    nn.init.normal_(embedding.weight, 0.0, 0.02)
    before = embedding.weight.detach().clone()
    cooccurrence.initialise_embeddings(embedding, text, seed=0)
    lengths, seen = (
        embedding.weight.detach().norm(dim=1),
        cooccurrence.cooccurrence_counts(text, text.vocabulary).sum(1) > 0,
    )
    assert torch.equal(embedding.weight[~seen], before[~seen])
    assert 0 < int((~seen).sum()) < text.vocabulary
    expected = cooccurrence.SCALE * before.std() * 4
    assert torch.allclose(lengths[seen], expected.expand(int(seen.sum())), rtol=1e-3)


def test_tokens_with_the_same_neighbours_are_alike(tmp_path: Path) -> None:
    """Verbs and places stand in different surroundings: a class is more alike in itself than to the other."""
    folder = prepared(tmp_path, "words")
    tokenizer, text = Tokenizer.load(folder / "tokenizer"), Shards(folder / "train")
    embedding = nn.Embedding(text.vocabulary, 8)
    cooccurrence.initialise_embeddings(embedding, text, seed=0)
    vectors = nn.functional.normalize(embedding.weight.detach(), dim=1)
    verbs, places = (vectors[[tokenizer.piece_ids[word] for word in words]] for words in (VERBS, PLACES))
    for alike in (verbs @ verbs.T, places @ places.T):
        assert alike.mean() > (verbs @ places.T).mean() + 0.3


def test_a_run_starts_from_counts_only_if_its_recipe_says_so(data: Path, tmp_path: Path) -> None:
    made = recipe(data, tmp_path, "embeddings=cooccurrence")
    tokenizer, train, _ = build.load_data(made)
    plain = build.objective(recipe(data, tmp_path), tokenizer, train).trunk.embedding.weight
    counted = build.objective(made, tokenizer, train).trunk.embedding.weight
    again = build.objective(made, tokenizer, train).trunk.embedding.weight
    assert not torch.equal(plain, counted)
    assert torch.equal(counted, again)


def test_a_run_that_continues_a_model_does_not_start_from_counts(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"start brings embeddings of its own\. Leave out start, or"):
        recipe(data, tmp_path, "embeddings=cooccurrence", "start=somewhere")


@pytest.mark.slow("trains")
def test_a_resumed_run_does_not_count_again(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(data, tmp_path, "embeddings=cooccurrence")
    pretrain.pretrain(made)
    monkeypatch.setattr(build, "initialise_embeddings", lambda *given: pytest.fail("counted again"))
    pretrain.pretrain(made)


def test_a_network_that_reads_characters_is_refused(tmp_path: Path) -> None:
    folder = prepared(tmp_path, "words")
    values = {
        "out": str(tmp_path / "run"),
        "embeddings": "cooccurrence",
        "model": {"kind": "elmo-small"},
        "objective": {"kind": "bilm"},
        "data": {"folder": str(folder), "max_length": 16, "batch_tokens": 512},
        "train": {"steps": 1},
    }
    made = config.build(values, Recipe, "elmo.toml")
    tokenizer, train, _ = build.load_data(made)
    with pytest.raises(RecipeError, match=r"elmo-small has no embedding for each token.*Set embeddings=random"):
        build.objective(made, tokenizer, train)


def test_a_text_of_one_word_leaves_the_embeddings_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("na na na na na na na\n\nna na na na\n" * 40, encoding="utf-8")
    corpus = Corpus([str(tmp_path / "text.txt")], layout="lines")
    pieces = TokenizerConfig(vocabulary=100, min_frequency=1)
    prepare(corpus, train(corpus.lines(), pieces), tmp_path / "data", validation_share=0.1, workers=1)
    text = Shards(tmp_path / "data" / "train")
    embedding = torch.nn.Embedding(text.vocabulary, 16)
    before = embedding.weight.detach().clone()
    cooccurrence.initialise_embeddings(embedding, text, 0)
    assert torch.equal(embedding.weight, before)
