"""Vectors come in the order of the texts, alone or in a crowd, from any stream."""

import copy
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bertsmith.data.batch import Tokens
from bertsmith.errors import RecipeError, TextError
from bertsmith.inference import embedder as module
from bertsmith.inference import semantic_search as searching
from bertsmith.inference.embedder import Embedder, embed
from bertsmith.inference.semantic_search import semantic_search
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.pooling import first, mean
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

pytestmark = pytest.mark.slow("embeds the same texts in many ways")

WORDS = ["cat", "dog", "sees", "likes", "the", "garden", "river", "in", "green", "old"]


def sentences(count: int) -> list[str]:
    dice = np.random.default_rng(0)
    return [" ".join(dice.choice(WORDS, size)) for size in dice.integers(0, 40, count)]


TEXTS = sentences(150)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TEXTS, TokenizerConfig(vocabulary=100, min_frequency=1))


@pytest.fixture(scope="module")
def trunk(tokenizer: Tokenizer) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(
        vocabulary=tokenizer.vocabulary, width=32, layers=4, heads=4, feed_forward=64, max_length=24
    )
    trunk = Transformer(config).eval()
    for parameter in trunk.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return trunk


def plain(trunk: Transformer, tokenizer: Tokenizer, text: str, length: int = 24) -> list[torch.Tensor]:
    """The states of one text, by the network as it stands."""
    ids = [tokenizer.start_id, *tokenizer.encode([text])[0][: length - 2], tokenizer.stop_id]
    with torch.no_grad():
        return trunk.hidden_states(Tokens.from_rows([ids]), "eager")


def one(trunk: Transformer, tokenizer: Tokenizer, text: str, length: int = 24) -> NDArray[np.float32]:
    state = plain(trunk, tokenizer, text, length)[-1]
    return np.asarray(torch.nn.functional.normalize(state.mean(0), dim=0))


def test_each_text_gets_its_own_vector_in_order(trunk: Transformer, tokenizer: Tokenizer) -> None:
    found = embed(trunk, tokenizer, TEXTS, precision="float32")
    assert found.dtype == np.float32
    assert found.shape == (150, 32)
    for text, vector in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(vector, one(trunk, tokenizer, text), atol=5e-6)


def test_a_text_has_the_same_vector_alone_and_in_a_crowd(trunk: Transformer, tokenizer: Tokenizer) -> None:
    embedder = Embedder(trunk, tokenizer, precision="float32")
    together = embedder(TEXTS)
    for number in range(0, 150, 7):
        np.testing.assert_allclose(embedder([TEXTS[number]])[0], together[number], atol=1e-6)


def test_neither_budget_nor_cores_nor_chunks_change_a_vector(
    trunk: Transformer, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = embed(trunk, tokenizer, TEXTS, precision="float32")
    np.testing.assert_allclose(embed(trunk, tokenizer, TEXTS, precision="float32", batch_tokens=50), whole, atol=1e-6)
    monkeypatch.setitem(module.CHUNK_TEXTS, "cpu", 13)
    np.testing.assert_allclose(embed(trunk, tokenizer, TEXTS, precision="float32"), whole, atol=1e-6)
    torch.set_num_threads(3)
    try:
        np.testing.assert_allclose(embed(trunk, tokenizer, TEXTS, precision="float32"), whole, atol=1e-6)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)


def test_half_precision_stays_near(trunk: Transformer, tokenizer: Tokenizer) -> None:
    exact, half = (embed(trunk, tokenizer, TEXTS, precision=precision) for precision in ("float32", "bfloat16"))
    assert (exact * half).sum(1).min() > 0.999
    assert np.abs(exact - half).max() > 1e-6


def test_a_long_text_is_read_up_to_the_length(trunk: Transformer, tokenizer: Tokenizer) -> None:
    text = "the cat sees the old green river in the garden"
    found = embed(trunk, tokenizer, [text], max_length=6, precision="float32")[0]
    np.testing.assert_allclose(found, one(trunk, tokenizer, text, 6), atol=5e-6)
    short = tokenizer.decode(tokenizer.encode([text])[0][:4])
    np.testing.assert_allclose(found, embed(trunk, tokenizer, [short], precision="float32")[0], atol=1e-6)


def test_an_empty_text_has_a_vector_and_no_texts_have_none(trunk: Transformer, tokenizer: Tokenizer) -> None:
    np.testing.assert_allclose(
        embed(trunk, tokenizer, [""], precision="float32")[0], one(trunk, tokenizer, ""), atol=5e-6
    )
    assert embed(trunk, tokenizer, []).shape == (0, 32)
    assert embed(trunk, tokenizer, [], layers=(1, 2), layer_join="concatenate").shape == (0, 64)


def test_layers_are_chosen_and_joined(trunk: Transformer, tokenizer: Tokenizer) -> None:
    text = "the old cat"
    states = plain(trunk, tokenizer, text)
    how = {"precision": "float32", "normalise": False, "pooling": "first"}
    last = embed(trunk, tokenizer, [text], layers=(-4, -3, -2, -1), **how)[0]
    np.testing.assert_allclose(last, sum(state[0] for state in states[-4:]), atol=2e-5)
    beside = embed(trunk, tokenizer, [text], layers=(0, 4), layer_join="concatenate", **how)[0]
    np.testing.assert_allclose(beside, torch.cat((states[0][0], states[4][0])), atol=2e-5)


@pytest.mark.parametrize(("pooling", "pool"), [("first", first), ("mean", mean)])
def test_tokens_are_pooled_as_asked(trunk: Transformer, tokenizer: Tokenizer, pooling: str, pool: object) -> None:
    state = plain(trunk, tokenizer, "the dog likes the garden")[-1]
    true = pool(state, torch.tensor([0, len(state)], dtype=torch.int32))[0]  # type: ignore[operator]
    how = {"pooling": pooling, "normalise": False, "precision": "float32"}
    found = embed(trunk, tokenizer, ["the dog likes the garden"], **how)
    np.testing.assert_allclose(found[0], true, atol=2e-5)


def test_a_stream_is_read_as_it_is_computed(
    trunk: Transformer, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.CHUNK_TEXTS, "cpu", 10)
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield TEXTS[(taken - 1) % 150]

    embedder = Embedder(trunk, tokenizer, precision="float32")
    stream = embedder.stream(endless())
    found = np.concatenate([next(stream) for _ in range(4)])
    stream.close()  # type: ignore[attr-defined]
    assert taken <= 70
    np.testing.assert_allclose(found, embedder(TEXTS[:40]), atol=1e-6)


def test_a_fault_of_the_stream_is_told(trunk: Transformer, tokenizer: Tokenizer) -> None:
    def broken() -> Iterator[str]:
        yield "the cat"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        embed(trunk, tokenizer, broken())


def test_several_threads_may_ask_at_once(trunk: Transformer, tokenizer: Tokenizer) -> None:
    embedder = Embedder(trunk, tokenizer, precision="float32")
    whole, found = embedder(TEXTS), {}

    def ask(number: int) -> None:
        found[number] = embedder(TEXTS[number * 30 : number * 30 + 30])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(np.concatenate([found[number] for number in range(5)]), whole, atol=1e-6)


def test_passes_on_a_cpu_come_in_few_sizes() -> None:
    sizes = {module._rounded_up(tokens) for tokens in range(1, 1025)}
    assert len(sizes) <= 24
    assert all(tokens <= module._rounded_up(tokens) < max(17, 1.26 * tokens) + 16 for tokens in range(1, 1025))
    assert module._rounded_up(1024) == 1024


def test_mistakes_are_told_in_one_line(trunk: Transformer, tokenizer: Tokenizer) -> None:
    with pytest.raises(TextError, match=r"^texts: is one text, not several. Put it into a list.$"):
        embed(trunk, tokenizer, "the cat")
    with pytest.raises(RecipeError, match=r"^max_length: is 25, and the model reads 24 tokens. Give 3 to 24.$"):
        embed(trunk, tokenizer, ["the cat"], max_length=25)
    with pytest.raises(RecipeError, match=r"^layers: there is no 5. They go from 0, the embedding, to 4.$"):
        embed(trunk, tokenizer, ["the cat"], layers=(-1, 5))
    with pytest.raises(RecipeError, match=r"^layers: none is chosen. -1 is the last.$"):
        embed(trunk, tokenizer, ["the cat"], layers=())
    with pytest.raises(TextError, match=r"^queries: are \(2, 4\), the vectors \(3, 5\). Both are tables"):
        semantic_search(np.zeros((3, 5), np.float32), np.zeros((2, 4), np.float32))


@pytest.mark.parametrize("block", [7, 64, 1000])
def test_the_nearest_are_those_a_full_sort_finds(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "BLOCK_VECTORS", block)
    monkeypatch.setattr(searching, "BLOCK_QUERIES", 3)
    dice = np.random.default_rng(0)
    vectors, queries = (dice.standard_normal((count, 16), np.float32) for count in (200, 8))
    scores, places = semantic_search(vectors, queries, 9)
    products = queries @ vectors.T
    np.testing.assert_array_equal(places, np.argsort(-products, 1)[:, :9])
    np.testing.assert_allclose(scores, np.take_along_axis(products, places, 1), atol=1e-5)


def test_no_more_are_near_than_there_are() -> None:
    vectors = np.eye(3, dtype=np.float32)
    vectors.flags.writeable = False
    scores, places = semantic_search(vectors, np.array([[0.1, 0.5, 0.3]], np.float32), 10)
    assert places.tolist() == [[1, 2, 0]]
    assert scores.tolist() == [pytest.approx([0.5, 0.3, 0.1])]
    assert semantic_search(vectors, np.zeros((0, 3), np.float32), 2)[1].shape == (0, 2)


@pytest.mark.gpu
def test_a_gpu_finds_the_same_vectors(trunk: Transformer, tokenizer: Tokenizer) -> None:
    exact = embed(trunk, tokenizer, TEXTS, precision="float32")
    moved = copy.deepcopy(trunk).cuda()
    for budget in (100, 131_072):
        half = embed(moved, tokenizer, TEXTS, batch_tokens=budget)
        assert (exact * half).sum(1).min() > 0.999
    np.testing.assert_allclose(embed(moved, tokenizer, TEXTS, precision="float32"), exact, atol=1e-5)
