"""Python as people type it: paths as strings, one text or many, results that know their model, one-line mistakes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripts
import torch
from tiny import prepared, recipe, write_text

import bertsmith
from bertsmith.commands import api, arguments
from bertsmith.commands import make as making
from bertsmith.commands import pretrain as pretraining
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import BertsmithError, FolderError, RecipeError, RunError, TextError
from bertsmith.inference import device as devices

SMALL = [
    "model.width=32",
    "model.heads=2",
    "model.feed_forward=64",
    "model.max_length=32",
    "data.validation_tokens=512",
]
BLANK = "the cat sees the [MASK] in the garden ."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> bertsmith.Run:
    """Pretrained by a recipe's name, with options in the field's words."""
    folder = tmp_path_factory.mktemp("api")
    options: dict[str, Any] = {"steps": 8, "learning_rate": 3e-3, "batch_tokens": 512, "max_length": 32, "seed": 1}
    return bertsmith.pretrain(
        "tiny/bert", data=str(prepared(folder)), out=str(folder / "run"), device="cpu", overrides=SMALL, **options
    )


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labelled") / "reviews.csv"
    others = ("bird", "fish", "king", "queen", "tree", "river", "horse", "child")
    rows = [
        f"the {noun} sees the {other} .,{'good' if noun == 'cat' else 'bad'}"
        for noun in ("cat", "dog")
        for other in others
    ]
    path.write_text("\n".join(["text,label", *rows * 4]) + "\n")
    return path


@pytest.fixture(scope="module")
def taught(base: bertsmith.Run, reviews: Path) -> bertsmith.Run:
    out = base.folder.with_name("reviews")
    options: dict[str, Any] = {"epochs": 4, "learning_rate": 5e-3, "batch_size": 8, "max_length": 16}
    return bertsmith.finetune(base, str(reviews), out=str(out), dev=str(reviews), **options)


def test_the_public_names_are_listed_and_each_has_a_docstring() -> None:
    assert {"load", "make", "pretrain", "finetune", "evaluate", "models", "prepare", "Model"} <= set(dir(bertsmith))
    for name in bertsmith.__all__:
        assert getattr(bertsmith, name) is not None
    for verb in (api.make, api.pretrain, api.finetune, api.evaluate, api.models, api.prepare, bertsmith.load):
        assert verb.__doc__ is not None


def test_models_are_named_by_a_pattern() -> None:
    assert bertsmith.models("bert-t*") == ["bert-tiny"]
    assert "tiny/bert" in bertsmith.models("tiny/*")
    assert {"word2vec", "bert-base", "transformer-multi30k"} <= set(bertsmith.models())


def test_a_run_knows_its_folder_scores_report_and_model(base: bertsmith.Run) -> None:
    assert base.report.exists()
    assert base.scores["loss"] > 0
    assert repr(base).startswith(f"Run('{base.folder}', ")
    assert base.model.fill(BLANK).best
    assert base.model is base.model  # loaded once
    said = repr(base.model)
    assert said.startswith("Model(bert, 2 layers of width 32, ")
    assert "pretrained (MaskedLM), cpu, " in said
    written = (base.folder / "recipe.toml").read_text()
    assert "rate = 0.003" in written
    assert "steps = 8" in written


def test_a_recipe_object_says_everything_itself(base: bertsmith.Run) -> None:
    data = base.folder.with_name("data")
    made = bertsmith.pretrain(recipe(data, base.folder.with_name("object"), "train.steps=1", "train.evaluations=0"))
    assert made.folder == base.folder.with_name("object")
    with pytest.raises(RecipeError, match=r"pretrain: a Recipe takes no options\. Change it with"):
        bertsmith.pretrain(recipe(data, base.folder), steps=3)


@pytest.mark.slow
def test_text_that_is_not_prepared_is_prepared_in_the_run(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    made = bertsmith.pretrain(
        "tiny/bert", data=text, out=tmp_path / "run", steps=1, batch_tokens=512, max_length=32, overrides=SMALL
    )
    assert (made.folder / "data-wordpiece" / "train").is_dir()
    assert (made.folder / "model" / "config.json").exists()


def test_a_tokenizer_is_trained_and_text_prepared_by_it(tmp_path: Path) -> None:
    text = str(write_text(tmp_path / "text.txt"))
    pieces = bertsmith.tokenizer(text, str(tmp_path / "words"), vocabulary=100)
    assert pieces.vocabulary == 100
    assert bertsmith.prepare([text], tmp_path / "data", tmp_path / "words", workers=0) == tmp_path / "data"
    assert (tmp_path / "data" / "train" / "index.json").exists()
    again = bertsmith.prepare([text], tmp_path / "again", pieces, workers=0)
    assert Shards(again / "train").fingerprint == Shards(tmp_path / "data" / "train").fingerprint


def test_make_takes_one_path_or_many_and_reads_no_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def make(texts: Any, out: Path, **options: Any) -> dict[str, float]:
        seen.append((texts, out, options))
        return {"loss": 1.0}

    monkeypatch.setattr(making, "make", make)
    monkeypatch.setattr(arguments, "check_options", lambda *given: None)
    for texts in ("texts", Path("texts"), ["texts"], ("texts",)):
        made = bertsmith.make(texts, "runs/mine", budget="5s")
        assert made.scores == {"loss": 1.0}
    assert seen == [(["texts"], Path("runs/mine"), {"budget": "5s", "seed": None})] * 4


def test_one_text_gives_one_result_and_a_list_gives_a_list(base: bertsmith.Run) -> None:
    model = base.model
    assert [one.best for one in model.fill([BLANK, BLANK])] == [model.fill(BLANK).best] * 2
    whole, [first] = model.score("the cat sees ."), model.score(["the cat sees ."])
    assert whole.log_likelihood == first.log_likelihood
    assert whole.text == "the cat sees ."
    assert whole.perplexity > 1
    assert model.embed("the cat").shape == (32,)
    assert np.array_equal(model.encode(["the cat", "a dog"])[0], model.embed("the cat"))
    assert model.embed(("the cat", "a dog")).shape == (2, 32)
    assert model.embed("the cat", layers=[-1, -2], layer_join="concatenate").shape == (64,)
    assert model.embed("the cat", layers=-2).shape == (32,)
    assert model.embed([]).shape == (0, 32)
    assert "sees the" in repr(model.fill(BLANK))
    assert repr(whole).startswith("ScoredText('the cat sees .', log_likelihood=")


@pytest.mark.slow
def test_a_taught_model_predicts_one_text_or_many(taught: bertsmith.Run) -> None:
    assert taught.scores["accuracy"] > 0.9
    model = taught.model
    assert model.task == "classify"
    assert model.labels == ("bad", "good")
    assert "classify (bad, good)" in repr(model)
    said = model.predict("the cat sees the fish .")
    assert said.label == said["label"] == "good"
    assert model.predict(["the cat sees the fish ."]) == [said]
    with pytest.raises(TextError) as caught:
        model.classify(("the cat sees", "the fish"))  # where `fill` and `embed` read two texts
    fact = "text 1: is a pair of texts, and the model was trained on single ones"
    assert str(caught.value) == f"{fact}. Give several texts as a list, not as a tuple."
    assert model.predict({"text": "the cat sees the fish ."}) == said
    assert repr(said).startswith("Prediction(label='good', ")
    assert "label" in dir(said)
    assert json.loads(json.dumps(said)) == said
    with pytest.raises(AttributeError, match="this prediction has no 'lable'; it has label, "):
        _ = said.lable


def test_a_taught_model_is_measured_on_any_file(taught: bertsmith.Run, reviews: Path, tmp_path: Path) -> None:
    found = bertsmith.evaluate(taught, reviews, tmp_path / "measured")
    assert isinstance(found, bertsmith.Evaluation)
    assert found.scores["accuracy"] == pytest.approx(taught.scores["accuracy"])
    assert repr(found).startswith("Evaluation(accuracy=")
    assert (tmp_path / "measured" / "result.json").exists()


def test_a_model_that_was_not_taught_says_how_to_teach_it(base: bertsmith.Run) -> None:
    with pytest.raises(FolderError, match=r"was not fine-tuned to predict anything\. Fine-tune it first: ") as caught:
        base.model.predict("a text")
    assert str(caught.value).endswith(f"bertsmith finetune {base.folder}/model DATA --out {base.folder}-tuned.")


def test_the_folder_of_another_kind_of_run_is_refused(
    base: bertsmith.Run, taught: bertsmith.Run, reviews: Path
) -> None:
    with pytest.raises(RunError) as caught:
        bertsmith.finetune(base, reviews, base.folder, steps=1)
    assert str(caught.value) == (
        f"{base.folder}: is the folder of pretraining, not of fine-tuning. Choose another folder."
    )
    recipe = replace(pretraining.read_recipe(base.folder / "recipe.toml", []), out=taught.folder)
    with pytest.raises(RunError, match=r"is the folder of fine-tuning, not of pretraining\. Choose another folder"):
        bertsmith.pretrain(recipe)


@pytest.mark.parametrize("kind", ["base", "taught"])
def test_a_saved_model_says_the_same(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    run: bertsmith.Run = request.getfixturevalue(kind)
    assert run.model.save(str(tmp_path / "copy")) == tmp_path / "copy"
    again = bertsmith.load(tmp_path / "copy", device="cpu")
    own, other = run.model.objective.state_dict(), again.objective.state_dict()
    assert own.keys() == other.keys()
    assert all(torch.equal(one, other[name]) for name, one in own.items())
    assert again.task == run.model.task
    said = json.loads((run.folder / "model" / "config.json").read_text())
    assert json.loads((tmp_path / "copy" / "config.json").read_text()) == said
    assert (tmp_path / "copy" / "README.md").exists()
    transformers = pytest.importorskip("transformers")
    auto = transformers.AutoModelForMaskedLM if kind == "base" else transformers.AutoModelForSequenceClassification
    opened, loading = auto.from_pretrained(tmp_path / "copy", output_loading_info=True)
    assert not loading["missing_keys"]
    assert opened.config.vocab_size == again.tokenizer.vocabulary


def test_a_model_is_used_on_the_fastest_device_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "_works", lambda name: True)
    assert devices.resolve_device().type == "cuda"
    assert devices.resolve_device("cuda:1") == torch.device("cuda", 1)
    monkeypatch.setattr(devices, "_works", lambda name: False)  # a driver without a GPU that torch has kernels for
    assert devices.resolve_device("auto").type == "cpu"
    assert devices.resolve_device("cpu").type == "cpu"
    for wanted, line in {
        "cuda": "device: there is no 'cuda' here that torch can use. Use cpu, or auto.",
        "gpu": "device: there is none called 'gpu'. Use auto, cpu, cuda, or cuda:1 and so on.",
        "mps": "device: 'mps' is not one that bertsmith computes on. Use auto, cpu, cuda, or cuda:1 and so on.",
    }.items():
        with pytest.raises(RunError) as caught:
            devices.resolve_device(wanted)
        assert str(caught.value) == line


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: bertsmith.pretrain("bert-tiny", stepps=3), "stepps: is not an option here. Did you mean 'steps'?"),
        (lambda: bertsmith.pretrain("bert-tinny"), "bert-tinny: there is no such recipe. Did you mean 'bert-tiny'?"),
        (lambda: bertsmith.pretrain("bert-tiny", learning_rate="fast"), "rate: expected a number, got 'fast'."),
        (lambda: bertsmith.finetune("x", "y.csv"), "out: is missing. Give a path."),
        (lambda: bertsmith.finetune("x", "y", "z", task="clasify"), "no task 'clasify'. Did you mean 'classify'?"),
        (lambda: bertsmith.finetune("x", "y.csv", out="z", seeds=0), "seeds: is 0. Give 1 or more."),
        (lambda: bertsmith.make([], "z"), "texts: is an empty list. Give at least one path."),
        (lambda: bertsmith.make("", "z"), "texts: is ''. Give a path."),
        (lambda: bertsmith.make("x", "z", buget="5m"), "buget: is not an option here. Did you mean 'budget'?"),
        (lambda: bertsmith.pretrain("bert-tiny", steps=1, epochs=1), "steps and epochs: are lengths of the same run."),
        (lambda: bertsmith.finetune("x", "y", overrides={"a": 1}), "overrides: is {'a': 1}. Give a list, such as ["),
        (lambda: bertsmith.prepare("x", "y", "z", validation_share="0.1"), "share: expected a number, got '0.1'."),
        (lambda: bertsmith.prepare("x", "y", "z", workers=1.5), "workers: expected a whole number, got 1.5."),
        (lambda: bertsmith.prepare("x", "y", "z", clean=1), "clean: expected true or false, got 1."),
        (lambda: bertsmith.evaluate("x", "y", suite="glue"), "out: the suite glue writes a folder. Name it: "),
        (lambda: bertsmith.load("nowhere"), "nowhere: is missing."),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_one_line(call: Any, line: str) -> None:
    with pytest.raises(BertsmithError) as caught:
        call()
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow("it calls every function")
def test_values_of_a_wrong_kind_are_told_in_one_line(
    base: bertsmith.Run, taught: bertsmith.Run, tmp_path: Path
) -> None:
    """In a process of its own, where no types are checked before the call."""
    for name, run in (("base", base), ("taught", taught)):
        shutil.copytree(run.folder / "model", tmp_path / name)
    done = scripts.python(str(Path(__file__).with_name("wrong_kinds.py")), str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout
    lines = done.stdout.splitlines()
    assert "texts: is None. Give a text, or a list of texts." in lines
    assert "texts 2: is 7. Give a text, or a list of texts." in lines
    assert "text 1: is 7. Give a text, a pair of texts as a tuple, or a list of these." in lines
    assert "layres: is not an option here. Did you mean 'layers'?" in lines
