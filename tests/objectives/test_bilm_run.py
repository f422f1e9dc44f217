"""ELMo from text to a folder, and what a tagger and a classifier read off it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import prepared
from tiny import recipe as tiny

from bertsmith import config
from bertsmith.commands import pretrain
from bertsmith.data.labelled.examples import Sentence
from bertsmith.errors import FolderError, RecipeError
from bertsmith.inference.load import load
from bertsmith.models.elmo import Elmo, ElmoConfig
from bertsmith.models.hf import folder as folders
from bertsmith.models.static import StaticConfig
from bertsmith.objectives.bilm import BidirectionalLM
from bertsmith.recipe import Recipe
from bertsmith.runs import finetuning, task_recipe
from bertsmith.tasks.feature_tagging import FeatureTagging
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import log

pytestmark = pytest.mark.slow("trains")

MODEL = [
    "kind=elmo-small",
    "filters=[8,8,8]",
    "max_characters=10",
    "hidden=48",
    "width=32",
    "max_length=128",
    "dropout=0.1",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("text"), "words")


def recipe(data: Path, out: Path, *changes: str) -> Recipe:
    values = {
        "out": str(out),
        "model": {},
        "objective": {"kind": "bilm", "sampled_softmax": 10},
        "data": {"folder": str(data), "max_length": 32, "batch_tokens": 256, "workers": 1},
        "optimizer": {"learning_rate": 0.01},
        "schedule": {"warmup": 0.1},
        "train": {"steps": 36, "precision": "float32", "evaluations": 2, "checkpoints": 4},
    }
    model = [f"model.{change}" for change in MODEL]
    return config.build(config.override(values, [*model, *changes]), Recipe, "tiny.toml")


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("elmo") / "run"
    pretrain.pretrain(recipe(data, out))
    return out


def test_a_run_learns_and_reports_both_directions(finished: Path) -> None:
    valid = [line for line in log.read(finished / log.NAME) if line["kind"] == "validation"]
    for way in ("left_to_right", "right_to_left"):
        assert valid[-1][f"{way}_loss"] < valid[0][f"{way}_loss"] / 1.5
    page, card = ((finished / name).read_text() for name in ("report.html", "model/README.md"))
    for text in ("perplexity, left to right", "perplexity, right to left", "validation loss of next words"):
        assert text in page
        assert text in card
    assert "Loss of previous words, in nats" in page
    assert 'tags: [bertsmith, "elmo"]' in card
    assert "library_name: bertsmith" in card
    assert "--task features" in card


def test_the_folder_opens_with_its_words_and_says_what_it_cannot_do(finished: Path) -> None:
    model = load(finished / "model")
    assert isinstance(model.objective, BidirectionalLM)
    assert isinstance(model.trunk, Elmo)
    tokenizer = Tokenizer.load(finished / "model")
    word = tokenizer.piece_ids["garden"]
    assert bytes((model.trunk.character_ids[word, 1:7] - 1).tolist()) == b"garden"
    with pytest.raises(FolderError, match="has no masked-word head"):
        model.fill("the [MASK]")
    with pytest.raises(FolderError, match="was not trained to predict the next token"):
        model.generate(["the"])
    with pytest.raises(FolderError, match="gives no vectors of texts"):
        model.embed(["the"])


def test_an_elmo_is_not_pretrained_on_anything_else(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="Use 'bilm', or a member such as bert-base"):
        pretrain.pretrain(recipe(data, tmp_path, "objective={kind='masked_lm'}"))
    with pytest.raises(RecipeError, match="Use another, or a member such as elmo"):
        pretrain.pretrain(tiny(data, tmp_path / "other", "objective={kind='bilm'}"))


# ---------------------------------------------------------------------------------------------------- features


def tagged(path: Path, count: int, seed: int) -> Path:
    """People are names, and so is anyone with their letters; the rest is not. Half of them nobody has ever met."""
    dice, lines = np.random.default_rng(seed), []
    for _ in range(count):
        who = dice.choice(["king", "queen", "zking", "qqueen"] if seed else ["king", "queen", "xking", "squeen"])
        thing = dice.choice(["tree", "river", "xtree", "sriver"])
        for word, tag in (("the", "O"), (who, "B-PER"), ("sees", "O"), ("the", "O"), (thing, "O")):
            lines.append(f"{word} {tag}")
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def classified(path: Path, count: int, seed: int) -> Path:
    dice, lines = np.random.default_rng(seed), ["text\tlabel"]
    for _ in range(count):
        good = bool(dice.integers(2))
        who = dice.choice(["king", "queen"] if good else ["tree", "river"])
        lines.append(f"the dog sees the {who} in the house .\t{'person' if good else 'thing'}")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


QUICK = [
    "task.hidden=16",
    "train.checkpoints=0",
    "train.evaluations=1",
    "data.batch_size=8",
    "optimizer.learning_rate=0.02",
]


def tuned(model: Path, train: Path, dev: Path, out: Path, task: str, *changes: str) -> dict[str, float]:
    made = task_recipe.build_recipe(model, train, out, dev=dev, task=task, seeds=1, overrides=[*QUICK, *changes])
    figures: dict[str, float] = finetuning.finetune(made)["runs"][0]["metrics"]
    assert not (out / "model").exists()
    return figures


def test_a_tagger_reads_unknown_words_by_their_characters(finished: Path, tmp_path: Path) -> None:
    train, dev = tagged(tmp_path / "train.conll", 60, 0), tagged(tmp_path / "dev.conll", 20, 1)
    how = ["task.lstm_layers=1", "train.epochs=8", "task.layers=mix"]
    figures = tuned(finished / "model", train, dev, tmp_path / "out", "features", *how)
    assert figures["f1"] > 0.9


def test_static_vectors_feed_the_same_tagger(finished: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(finished / "model")
    torch.manual_seed(0)
    shape = StaticConfig(vocabulary=tokenizer.vocabulary, width=32)
    folders.write(tmp_path / "static", shape, {"trunk.embedding.weight": torch.randn(tokenizer.vocabulary, 32)})
    tokenizer.save(tmp_path / "static")
    train, dev = tagged(tmp_path / "train.conll", 60, 0), tagged(tmp_path / "dev.conll", 20, 1)
    how = ["task.lstm_layers=1", "train.epochs=2"]
    figures = tuned(tmp_path / "static", train, dev, tmp_path / "out", "features", *how)
    assert 0 <= figures["f1"] <= 1


def test_a_classifier_reads_the_same_features(finished: Path, tmp_path: Path) -> None:
    train, dev = classified(tmp_path / "train.tsv", 64, 0), classified(tmp_path / "dev.tsv", 20, 1)
    figures = tuned(finished / "model", train, dev, tmp_path / "out", "classify_features", "train.epochs=7")
    assert figures["accuracy"] > 0.9


def test_features_have_a_high_learning_rate_and_no_weight_decay_by_default(finished: Path, tmp_path: Path) -> None:
    train = tagged(tmp_path / "train.conll", 5, 0)
    made = task_recipe.build_recipe(
        finished / "model", train, tmp_path, dev=None, task="features", seeds=1, overrides=[]
    )
    assert (made.optimizer.learning_rate, made.optimizer.weight_decay) == (1e-3, 0.0)


def test_an_elmo_is_not_fine_tuned_as_a_whole(finished: Path, tmp_path: Path) -> None:
    train = tagged(tmp_path / "train.conll", 20, 0)
    made = task_recipe.build_recipe(
        finished / "model", train, tmp_path / "out", dev=None, task="tag", seeds=1, overrides=[]
    )
    line = r"transformers has no class for 'tag' with this network\. Use features or classify_features"
    with pytest.raises(RecipeError, match=line):
        finetuning.finetune(made)


def test_an_item_has_characters_between_the_boundary_tokens(finished: Path) -> None:
    opened = folders.read(finished / "model")
    assert isinstance(opened.config, ElmoConfig)
    tokenizer = Tokenizer.load(finished / "model")
    task = FeatureTagging(Elmo(opened.config), FeatureTagging.Config(hidden=4), ("B", "O"))
    assert task.layer_selection.layers == "mix"
    words = ("the", "Zking", "sees", "trees")
    [item] = task.preprocess([Sentence(location="here", words=words, tags=("O", "B", "O", "O"))], tokenizer, 32)
    row = item.rows[0]
    assert row.ids.tolist() == [tokenizer.start_id, *tokenizer.encode([" ".join(words)])[0], tokenizer.stop_id]
    assert row.character_ids is not None
    spelt = [bytes(letter - 1 for letter in word.tolist() if letter <= 256) for word in row.character_ids]
    assert spelt == [b"", b"the", b"zking", b"sees", b"trees", b""]
    assert row.character_ids[[0, -1], 1].tolist() == [257, 258]
    long = Sentence(location="here", words=words * 5, tags=("O",) * 20)
    for item in task.preprocess([long], tokenizer, 8):
        assert item.rows[0].character_ids is not None
        assert len(item.rows[0].character_ids) == len(item.rows[0].ids) <= 8
