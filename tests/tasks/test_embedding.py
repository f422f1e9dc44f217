"""Vectors learn by the formulas written out, and are compared by their angle."""

import math
from typing import Any

import pytest
import torch
from tasks.small import CASES, LENGTH, prose, shape, stirred, tokenizer
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens
from bertsmith.data.labelled.examples import Example
from bertsmith.errors import TextError
from bertsmith.models.transformer import Transformer
from bertsmith.tasks.base import Bucket, predict
from bertsmith.tasks.embedding import SentenceEmbedding


def embed(dropout: float = 0.0, **settings: Any) -> SentenceEmbedding:
    config = shape(dropout=dropout, attention_dropout=dropout)
    made: SentenceEmbedding = stirred(SentenceEmbedding(Transformer(config), SentenceEmbedding.Config(**settings)))
    return made


def example(*texts: str, label: float | None = None) -> Example:
    return Example(location="pairs.tsv:3", texts=texts, label=label)


def batch(task: SentenceEmbedding, examples: list[Example]) -> Batch:
    items = task.preprocess(examples, tokenizer(), LENGTH)
    return task.collate(items, Bucket(batch_size=len(items), max_length=LENGTH))


def vectors(task: SentenceEmbedding, texts: list[str]) -> list[Tensor]:
    """Of each text alone, in double precision, by the states of the network."""
    found = []
    for text in texts:
        ids = [tokenizer().start_id, *tokenizer().encode([text])[0][: LENGTH - 2], tokenizer().stop_id]
        with torch.no_grad():
            state = task.trunk.hidden_states(Tokens.from_rows([ids]), "eager")[-1].double()
        pooled = state.mean(0) if task.config.pooling == "mean" else state[0]
        found.append(pooled / pooled.norm())
    return found


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("texts", [2, 3])
def test_the_partner_is_found_among_all_partners_and_negatives_of_the_batch(pooling: str, texts: int) -> None:
    task = embed(pooling=pooling, scale=7.0)
    written = prose(5 * texts, 4, 9)
    examples = [example(*written[number * texts : (number + 1) * texts]) for number in range(5)]
    columns = [vectors(task, [one.texts[place] for one in examples]) for place in range(texts)]
    total = 0.0
    for number, anchor in enumerate(columns[0]):
        likeness = [7.0 * float(anchor @ other) for column in columns[1:] for other in column]
        total -= likeness[number] - math.log(sum(math.exp(one) for one in likeness))
    found = batch(task, examples)
    assert task(found)["contrast"].total.item() == pytest.approx(total, rel=1e-4)
    assert found.counts["contrast"] == 5


def test_the_scale_and_the_pooling_are_those_of_the_config() -> None:
    examples = [example("cat", "dog"), example("river garden", "green")]
    losses = {
        task(batch(task, examples))["contrast"].total.item()
        for task in (embed(), embed(scale=3.0), embed(pooling="first"))
    }
    assert len(losses) == 3


def test_the_cosine_loss_moves_the_cosine_to_the_score() -> None:
    task = embed(loss="scores", max_score=5.0)
    examples = [example("the cat", "dog", label=5.0), example("old", "the green river", label=1.5)]
    found = batch(task, examples)
    ones, others = (vectors(task, [one.texts[place] for one in examples]) for place in (0, 1))
    cosines = [float(one @ other) for one, other in zip(ones, others, strict=True)]
    total = (cosines[0] - 1.0) ** 2 + (cosines[1] - 0.3) ** 2
    assert task(found)["cosine"].total.item() == pytest.approx(total, rel=1e-4)
    assert found.counts["cosine"] == 2


@pytest.mark.parametrize("texts", [("the cat",), ("the cat", "the dog")])
def test_simcse_finds_a_text_by_itself(texts: tuple[str, ...]) -> None:
    task = embed(dropout=0.2, loss="dropout")
    examples = (
        [example(*texts), example("river", "old garden")] if len(texts) > 1 else [example(*texts), example("old")]
    )
    found = batch(task, examples)
    rows = torch.split(found.tokens.ids, found.tokens.bounds.diff().tolist())
    assert len(rows) == 4
    for first, second in (rows[:2], rows[2:]):
        assert first.tolist() == second.tolist()
    assert rows[0].tolist() == tokenizer().encode_pair("the cat")[0]
    task.train()
    torch.manual_seed(0)
    one, other = task.embeddings(found.tokens)[:2]
    assert not torch.allclose(one, other, atol=1e-3)
    task.eval()
    one, other = task.embeddings(found.tokens)[:2]
    torch.testing.assert_close(one, other)


def test_single_texts_are_scored_by_uniformity() -> None:
    task = embed(dropout=0.2, loss="dropout")
    texts = [Example(location=str(number), texts=(str(number),)) for number in range(3)]
    same, apart = [[1.0, 0.0]] * 3, [[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]]
    scores = [
        task.score(texts, [{"cosine": 1.0, "vectors": [vector]} for vector in vectors])["uniformity"]
        for vectors in (same, apart)
    ]
    assert scores == pytest.approx([0.0, 6.0])  # squared distances of 0 and 3, twice that in the exponent


def test_pairs_are_scored_though_dropout_learns_from_texts_alone() -> None:
    task = embed(dropout=0.2, loss="dropout")
    examples = [example("the cat", "the dog", label=1.0), example("old", "green", label=2.0)]
    said = predict(task, examples, task.preprocess(examples, tokenizer(), LENGTH), device="cpu")
    one, other = vectors(task, ["the cat", "the dog"])
    assert said[0]["cosine"] == pytest.approx(float(one @ other), abs=1e-5)


def test_predictions_hold_a_unit_vector_for_each_text() -> None:
    task = embed()
    examples = [example("the cat", "dog", "old"), example("river", "green", "in")]
    said = predict(task, examples, task.preprocess(examples, tokenizer(), LENGTH), device="cpu")
    for one, whole in zip(said, examples, strict=True):
        assert len(one["vectors"]) == 3
        for vector, true in zip(one["vectors"], vectors(task, list(whole.texts)), strict=True):
            assert vector == pytest.approx(true.tolist(), abs=1e-5)
    (alone,) = predict(
        task, [example("cat", "cat")], task.preprocess([example("cat", "cat")], tokenizer(), LENGTH), device="cpu"
    )
    assert alone["cosine"] == pytest.approx(1.0, abs=1e-6)


def test_scores_are_of_order_or_of_finding_the_partner() -> None:
    task = embed()
    said = [{"cosine": cosine} for cosine in (0.1, 0.9, 0.5)]
    labelled = [example("a", "b", label=value) for value in (1.0, 4.0, 2.0)]
    figures = task.score(labelled, said)
    assert figures["spearman"] == pytest.approx(1.0)
    unlabelled = [example("a", "b")] * 2
    near = [{"vectors": [[1.0, 0.0], [0.9, 0.1]]}, {"vectors": [[0.0, 1.0], [0.8, 0.2]]}]
    assert task.score(unlabelled, near) == {"accuracy": 1.0}
    far = [{"vectors": [[1.0, 0.0], [0.7, 0.2]]}, {"vectors": [[0.0, 1.0], [0.9, 0.1]]}]
    assert task.score(unlabelled, far) == {"accuracy": 0.0}


def test_long_texts_are_truncated_and_counted() -> None:
    (item,) = embed().preprocess([example("cat " * 40, "dog " * 35)], tokenizer(), LENGTH)
    assert [len(row) for row in item.rows] == [LENGTH, LENGTH]
    assert item.truncated == 10


def test_negatives_that_some_rows_lack_are_left_out() -> None:
    items = embed().preprocess([example("a", "b", "c"), example("d", "e")], tokenizer(), LENGTH)
    assert [len(item.rows) for item in items] == [2, 2]


def test_pairs_are_learnt() -> None:
    task, examples = CASES["pairs"].task(), [example(text, text.upper() + " the") for text in prose(8, 1, 6)]
    items = task.preprocess(examples, tokenizer(), LENGTH)
    found = task.collate(items, Bucket(batch_size=8, max_length=LENGTH))
    before = task(found)["contrast"].total.item()
    optimizer = torch.optim.AdamW(task.parameters(), lr=0.003)
    for _ in range(15):
        optimizer.zero_grad()
        task(found)["contrast"].total.backward()
        optimizer.step()
    assert task(found)["contrast"].total.item() < before / 2


def test_one_text_is_no_pair() -> None:
    with pytest.raises(TextError) as caught:
        embed().preprocess([example("cat", "dog"), example("river")], tokenizer(), LENGTH)
    assert str(caught.value) == "pairs.tsv:3: has no second text to compare with. Give every row two."


def test_a_pair_without_a_score_is_refused_with_its_location() -> None:
    with pytest.raises(TextError) as caught:
        embed(loss="scores").preprocess([example("cat", "dog")], tokenizer(), LENGTH)
    assert str(caught.value) == "pairs.tsv:3: has no score. Give one, or use task.loss=pairs."
