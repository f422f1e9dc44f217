"""Probes: what one matrix reads off each layer."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertsmith.data.batch import Tokens
from bertsmith.data.labelled.examples import Example, Sentence
from bertsmith.data.rows import Row
from bertsmith.errors import TextError
from bertsmith.insight import probes
from bertsmith.insight.probes import L2_PENALTY, ProbeResults, draw, probe, probe_accuracy
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

pytestmark = pytest.mark.slow("trains probes")

WORDS = ["red", "blue", "green", "pink", "one", "two", "three", "four", "and", "or"]
TAGS = dict(zip(WORDS, ["colour"] * 4 + ["number"] * 4 + ["link"] * 2, strict=True))
PROBED = ProbeResults(
    kind="tag", labels=("A", "B"), accuracy=(0.8, 0.9, 0.95, 0.95), control=(0.7, 0.6, 0.5, 0.4),
    majority=0.55, train_count=1200, dev_count=300, seed=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 4, TokenizerConfig(vocabulary=100, min_frequency=1))


@pytest.fixture(scope="module")
def trunk() -> Transformer:
    torch.manual_seed(0)
    return Transformer(
        TransformerConfig(vocabulary=100, width=16, layers=3, heads=2, feed_forward=32, max_length=16, dropout=0.5)
    )


def sentences(count: int, start: int = 0) -> list[Sentence]:
    """Words at random, each with the tag that it always has."""
    draw = np.random.default_rng(start)
    found = []
    for number in range(count):
        words = [WORDS[which] for which in draw.integers(0, 10, draw.integers(2, 7))]
        found.append(Sentence(location=f"made:{number}", words=tuple(words), tags=tuple(TAGS[word] for word in words)))
    return found


def test_a_tag_that_depends_on_the_word_is_read_off_the_embedding(trunk: Transformer, tokenizer: Tokenizer) -> None:
    trunk.train()
    found = probe(trunk, tokenizer, sentences(60), sentences(30, 1), "tag")
    assert trunk.training
    assert found.labels == ("colour", "link", "number")
    assert len(found.accuracy) == 4
    assert found.accuracy[0] > 0.99
    assert found.best == found.accuracy.index(max(found.accuracy))
    assert found.train_count == sum(len(sentence.words) for sentence in sentences(60))
    tags = [tag for sentence in sentences(30, 1) for tag in sentence.tags or ()]
    learnt = [tag for sentence in sentences(60) for tag in sentence.tags or ()]
    commonest = max(set(learnt), key=learnt.count)
    assert found.majority == tags.count(commonest) / len(tags)
    # Ten words can be learnt by heart with any tags: the probe knows nothing beyond them.
    assert found.control is not None
    assert found.control[0] > 0.99
    assert found.selectivity == tuple(np.subtract(found.accuracy, found.control))
    assert found == probe(trunk, tokenizer, sentences(60), sentences(30, 1), "tag")
    assert len(json.loads(json.dumps(found.to_dict()))["accuracy"]) == 4


def test_vectors_are_those_of_every_layer_in_order_at_the_words_first_pieces(trunk: Transformer) -> None:
    rows = [[5, 6, 7], [8, 9, 10, 11, 12, 13], [14, 15]]
    places = [np.array([1]), np.array([1, 4]), np.array([], np.int64)]
    flat = [Row(np.array(row, np.int32), np.zeros(len(row), np.int32)) for row in rows]
    trunk.eval()
    found = probes._vectors(trunk, flat, places)
    assert found.shape == (4, 3, 16)
    first, second = trunk.hidden_states(Tokens.from_rows(rows[:1])), trunk.hidden_states(Tokens.from_rows(rows[1:2]))
    for layer in range(4):
        true = torch.stack([first[layer][1], second[layer][1], second[layer][4]])
        torch.testing.assert_close(found[layer], true, rtol=0, atol=1e-5)
    for where, alone in (("mean", second[2].mean(0)), ("first", second[2][0])):
        whole = probes._vectors(trunk, flat, where)
        assert whole.shape == (4, 3, 16)
        torch.testing.assert_close(whole[2, 1], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_class_of_texts_is_read_off_some_layer(trunk: Transformer, tokenizer: Tokenizer, pooling: str) -> None:
    def texts(count: int, start: int) -> list[Example]:
        return [
            Example(location="made", texts=(" ".join(said.words),), label=str(TAGS[said.words[0]]))
            for said in sentences(count, start)
        ]

    found = probe(trunk, tokenizer, texts(300, 2), texts(100, 3), "classify", pooling=pooling)
    assert (found.control, found.selectivity, found.dev_count) == (None, None, 100)
    if pooling == "first":  # the embedding of [CLS] is the same in every text
        assert found.accuracy[0] == found.majority
    assert max(found.accuracy) > found.majority + 0.1


def test_every_layer_has_its_own_fit_and_reaches_the_lowest_point() -> None:
    """Against L-BFGS on one layer alone; and a layer that says nothing is as good as the commonest class."""
    torch.manual_seed(0)
    known, unknown = torch.randn(2, 200, 5) * 3 + 1, torch.randn(2, 100, 5)
    unknown[0] = known[0, :100] + 0.1
    targets = (known[0, :, 0] + known[0, :, 1] + torch.randn(200) > 2).long() + (known[0, :, 2] > 4).long()
    known[1] = unknown[1] = 7.0
    truth = targets[:100].numpy()
    both = probe_accuracy(known, targets[:, None].numpy(), unknown, truth[:, None], 3)[0]
    assert both[0] == probe_accuracy(known[:1], targets[:, None].numpy(), unknown[:1], truth[:, None], 3)[0][0]
    assert both[1] == (truth == np.bincount(targets.numpy()).argmax()).mean()

    standard = (known[0] - known[0].mean(0)) / known[0].std(0, correction=0)
    weight, bias = torch.zeros(5, 3, requires_grad=True), torch.zeros(3, requires_grad=True)
    newton = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-7)

    def loss(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(standard @ weight + bias, targets) + L2_PENALTY / 2 * weight.square().sum()

    def closure() -> torch.Tensor:
        newton.zero_grad()
        found = loss(weight, bias)
        found.backward()
        return found

    newton.step(closure)
    fitted, offset = probes._fit(standard[None], targets[:, None], 3)
    assert loss(fitted[0], offset[0, 0]) < 1.01 * loss(weight, bias).detach()


def test_the_control_gives_a_word_one_tag_as_often_as_real_tags_are() -> None:
    shares = np.array([0.7, 0.1, 0.2])
    words = [f"word{number}" for number in range(5000)]
    drawn = probes._control_labels(words, shares, 0)
    assert drawn.tolist() == probes._control_labels(words[::-1], shares, 0)[::-1].tolist()
    assert np.bincount(drawn) / 5000 == pytest.approx(shares, abs=0.02)
    assert (drawn != probes._control_labels(words, shares, 1)).any()


def test_no_more_examples_are_taken_than_asked_for(trunk: Transformer, tokenizer: Tokenizer) -> None:
    found = probe(trunk, tokenizer, sentences(60), sentences(30), "tag", limit=40)
    assert 40 <= found.train_count < 46
    assert 40 <= found.dev_count < 46


def test_examples_that_cannot_be_probed_are_refused(trunk: Transformer, tokenizer: Tokenizer) -> None:
    def refusal(*examples: Example) -> str:
        with pytest.raises(TextError) as caught:
            probe(trunk, tokenizer, examples, examples, "classify")
        return str(caught.value)

    plain = Example(location="a.tsv:1", texts=("red",))
    assert refusal(plain) == "probe: none of 1 examples has a label. Give examples with labels."
    assert refusal(replace(plain, label=3.5)) == "a.tsv:1: the label 3.5 is no class. Probe for classes."
    alone = refusal(replace(plain, label="x"))
    assert alone == "probe: there is but one label, ('x',). Give examples of at least two."


def test_the_picture_marks_the_lowest_of_the_best_layers_and_the_commonest_label(tmp_path: Path) -> None:
    draw(PROBED, tmp_path / "probe.svg")
    drawn = (tmp_path / "probe.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(drawn)
    name = "{http://www.w3.org/2000/svg}"
    texts = [part.text for part in root.iter(f"{name}text")]
    for text in (
        "layer 2: 95.0%",
        "layer (0: embeddings)",
        "dev words judged right",
        "always the commonest label: 55.0%",
        "2 labels · 1,200 words learnt, 300 judged",
        *"0123",
    ):
        assert text in texts
    rings = [part for part in root.iter(f"{name}circle") if part.get("class") == "ring"]
    dots = [part for part in root.iter(f"{name}circle") if part.get("class") == "dot"]
    assert len(dots) == 4
    assert [ring.get("cx") for ring in rings] == [dots[2].get("cx")]
    heights = [float(str(dot.get("cy"))) for dot in dots]
    assert heights[0] > heights[1] > heights[2] == heights[3]
    dashed = [part for part in root.iter(f"{name}line") if part.get("class") == "majority"]
    assert float(str(dashed[0].get("y1"))) > heights[0]
    for x, y in re.findall(r"([\d.]+),([\d.]+)", " ".join(re.findall(r' d="([^"]+)"', drawn))):
        assert 0 < float(x) < 880
        assert 0 < float(y) < 520


def test_a_picture_is_a_page_where_its_name_says_so_and_needs_no_control(tmp_path: Path) -> None:
    draw(replace(PROBED, kind="classify", control=None), tmp_path / "probe.html")
    page = (tmp_path / "probe.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "texts judged right" in page
    assert "drawn at random" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
