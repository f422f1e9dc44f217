"""Every public name has a docstring with an example, and every example runs, on models of a few thousand parameters."""

import doctest
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference import photos
from inference.test_load import plain, saved
from tasks.small import shape, stirred, tokenizer
from tiny import write_text

import bertsmith
from bertsmith import config
from bertsmith.commands import api
from bertsmith.inference.embedder import Embedder
from bertsmith.inference.generate import GeneratedText
from bertsmith.inference.semantic_search import semantic_search
from bertsmith.inference.translate import TokenAlignment, TranslatedText
from bertsmith.inference.word_vectors import AnalogyScores, KeyedVectors, Neighbour, SimilarityScores
from bertsmith.insight.image_inspection.inspection import ImageInspection
from bertsmith.insight.inspection.inspected_text import InspectedText
from bertsmith.insight.inspection.inspection import Inspection
from bertsmith.insight.table import Results
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer
from bertsmith.models.word_vectors import WordVectors
from bertsmith.objectives.causal import CausalLM
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import TokenizerConfig, train
from bertsmith.train.clock import WallBudget

TABLES = ("FAMILY", "OBJECTIVES", "TASKS")  # dictionaries have no docstring
PARTS = ("BertsmithError", "FineTune", "ImageFineTune", "Recipe", "Tokenizer", "Transformer", "TransformerConfig")
RESULTS = (
    *(bertsmith.Run, bertsmith.Evaluation, bertsmith.FilledText, bertsmith.WordPrediction, bertsmith.ScoredText),
    *(bertsmith.Prediction, GeneratedText, TranslatedText, TokenAlignment, Results, Embedder),
    *(bertsmith.ImageModel, KeyedVectors, Neighbour, SimilarityScores, AnalogyScores),
    *(Inspection, InspectedText, ImageInspection),
)
WORDS = WordVectors(
    ["king", "queen", "man", "woman", "river"],
    np.array([[1, 1, 0], [1, 0.9, 0.4], [0.2, 1, 0], [0.2, 0.9, 0.4], [0, 0, -1]], np.float32),
)
RECIPES = {
    "bert.toml": """out = "runs/bert"
[model]
kind = "bert-tiny"
[objective]
kind = "masked_lm"
[data]
folder = "shards"
[optimizer]
[schedule]
[train]
steps = 2
""",
    "reviews.toml": """out = "runs/reviews"
model = "runs/mine"
[task]
kind = "classify"
[data]
train = "reviews.csv"
[optimizer]
[schedule]
[train]
epochs = 3
""",
    "completed.toml": """out = "runs/completed"
[model]
kind = "mae-tiny"
[objective]
kind = "masked_patches"
[data]
train = "photographs"
[optimizer]
[schedule]
[train]
epochs = 3
""",
    "digits.toml": """out = "runs/digits"
[network]
kind = "vit-tiny"
image_size = 28
patch_size = 4
channels = 1
[data]
train = "mnist"
size = 28
channels = 1
[optimizer]
[schedule]
[train]
epochs = 3
""",
}


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class and of its parents in bertsmith."""
    for parent in reversed(kind.__mro__):
        if parent.__module__.startswith("bertsmith."):
            for name, value in vars(parent).items():
                if not name.startswith("_") and (callable(value) or isinstance(value, property | cached_property)):
                    yield f"{kind.__name__}.{name}", value


def public() -> dict[str, Any]:
    """By name, all that must have an example."""
    found = {name: getattr(bertsmith, name) for name in bertsmith.__all__ if name not in TABLES}
    found["models"] = api.models
    found["semantic_search"] = semantic_search
    for kind in (bertsmith.Model, *RESULTS):
        found[kind.__name__] = kind
        found.update(methods(kind))
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, labelled data, recipes, and a small model for each kind of use; most are not trained."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "texts").mkdir()
    write_text(folder / "texts" / "one.txt")
    rows = [f"the {noun} sees it,{'good' if noun == 'cat' else 'bad'}" for noun in ("cat", "dog") for _ in range(10)]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    for name, recipe in RECIPES.items():
        (folder / name).write_text(recipe)
    plain(folder / "runs" / "mine" / "model")
    photos.model(folder / "runs" / "photos" / "model")
    photos.images(folder / "photos")
    classifier = SequenceClassification(Transformer(shape()), SequenceClassification.Config(), ("bad", "good"))
    saved(folder / "runs" / "reviews" / "model", "class", stirred(classifier))
    for run, name in {"ner": "tag", "squad": "answer", "swag": "choose"}.items():
        saved(folder / "runs" / run / "model", name)
    small: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "feed_forward": 48, "max_length": 64}
    bpe = train(["the cat sees a dog"] * 3, TokenizerConfig(kind="bpe", vocabulary=280, min_frequency=1))
    gpt = CausalLM(Transformer(replace(FAMILY["gpt2"], vocabulary=bpe.vocabulary, **small)), CausalLM.Config())
    folders.write(folder / "runs" / "gpt" / "model", gpt.trunk.config, stirred(gpt).state_dict(), {})
    bpe.save(folder / "runs" / "gpt" / "model", max_length=64)
    sizes = replace(FAMILY["transformer-tiny"], vocabulary=tokenizer().vocabulary, decoder_layers=2, **small)
    writer = TextToText(stirred(EncoderDecoder(sizes)), TextToText.Config(translation=True, max_new_tokens=10))
    own = {"task": "write", "labels": [], "translation": True, "max_new_tokens": 10, "label_smoothing": 0.1}
    extra = {"bertsmith": own, **tokenizer().special_ids(layout_of(sizes).special_tokens)}
    folders.write(folder / "runs" / "translation" / "model", sizes, writer.state_dict(), extra)
    tokenizer().save(folder / "runs" / "translation" / "model", max_length=64)
    return folder


class Checker(doctest.OutputChecker):
    """An example without an expected value may print its progress."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


@pytest.mark.parametrize("name", public())
def test_the_docstring_has_an_example(name: str) -> None:
    doc = public()[name].__doc__
    assert doc, f"{name} has no docstring"
    examples = doctest.DocTestParser().get_examples(doc)
    assert any(example.want for example in examples), f"the docstring of {name} has no example with its result: >>> ..."


@pytest.mark.parametrize("name", PARTS)
def test_methods_of_the_parts_have_a_docstring(name: str) -> None:
    silent = [method for method, value in methods(getattr(bertsmith, name)) if not value.__doc__]
    assert [method for method in silent if not method.endswith("_id")] == []  # mask_id says what it is


@pytest.mark.slow("it trains small models")
def test_every_example_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    spent = iter(range(0, 10_000, 300))
    monkeypatch.setattr(WallBudget, "remaining", lambda wall, _: wall.budget - next(spent))  # `make` ends in two steps
    known = {"bertsmith": bertsmith, "config": config, "np": np, "Path": Path, "Results": Results}
    known |= {"KeyedVectors": KeyedVectors, "WordVectors": WordVectors, "semantic_search": semantic_search}
    known |= {"model": bertsmith.load("runs/mine"), "vectors": KeyedVectors(WORDS)}
    runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    for name, value in public().items():
        test = doctest.DocTestParser().get_doctest(value.__doc__, dict(known), name, None, None)
        runner.run(test, out=said.append)
    results = runner.summarize(verbose=False)
    assert results.failed == 0, "".join(said)
    assert results.attempted > 80
