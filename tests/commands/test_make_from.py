"""`make --from`: a model is continued on other text, measured before and after, and refused where it would harm."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import NOUNS, losses, prepared, recipe, write_text

from bertsmith import config, files
from bertsmith.commands import api, make, pretrain
from bertsmith.commands.continuation import SETTINGS, START, ContinuedRun
from bertsmith.errors import BertsmithError, RecipeError
from bertsmith.inference.load import load
from bertsmith.models.hf import folder as folders
from bertsmith.recipe import Recipe
from bertsmith.runs import before_after, continuation, new_head, summary
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train.clock import Clock, WallBudget
from bertsmith.train.overhead import Overhead
from bertsmith.train.trainer import Trainer

pytestmark = pytest.mark.slow("makes and continues models")

STEPS = 12  # of each run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, and the model that was made from it."""
    folder = tmp_path_factory.mktemp("from")
    changes = ("train.steps=60", "model.dropout=0.0", "optimizer.learning_rate=0.01")
    pretrain.pretrain(recipe(prepared(folder), folder / "run", *changes))
    return folder


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same language about other things: words that the vocabulary has to spell."""
    path = write_text(tmp_path_factory.mktemp("domain") / "domain.txt", documents=200)
    text = path.read_text(encoding="utf-8")
    animals = ("deer", "seal", "crane", "raven", "heron", "toad", "newt", "adder", "stoat", "shrew")
    for old, new in zip(NOUNS, animals, strict=True):
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps make a run, on a machine of any speed."""
    monkeypatch.setattr(Clock, "progress", lambda self, step, epoch: min(1.0, step / STEPS))
    monkeypatch.setattr(Overhead, "may_save", lambda *_: True)
    monkeypatch.setattr(new_head, "MAX_STEPS", STEPS)
    monkeypatch.setattr(continuation, "LEARNING_RATE", 5e-3)  # since they are few
    monkeypatch.setattr(before_after, "SMALL_GAIN", -9.0)  # and leave a model near word frequency


def test_a_model_learns_a_domain_and_is_measured_before_and_after(
    home: Path, domain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine"
    run = api.make(domain, out, budget="10m", start=home / "run", general_text=home / "text.txt")
    said = " ".join(capsys.readouterr().out.split())
    old, new = Tokenizer.load(home / "run" / "model"), run.model.tokenizer
    assert f"why: {new.vocabulary - old.vocabulary} new tokens (" in said
    assert "of their former" not in said
    assert "learnt by heart" in said  # a tiny text on a fast machine
    assert "next-sentence prediction: the folder has heads for both" in said
    scores = run.scores
    assert scores["bits_per_byte_domain_after"] < scores["bits_per_byte_domain_before"] - 0.3
    assert {"bits_per_byte_general_before", "bits_per_byte_general_after"} <= scores.keys()
    assert "The model has learnt your text: " in said
    page, card = ((out / name).read_text(encoding="utf-8") for name in ("report.html", "model/README.md"))
    for part in ("<h2>Before and after</h2>", "bits per byte on general text", "nearest neighbours of", "whole words"):
        assert part in page
    assert f"A BERT continued from {home / 'run'}" in card
    assert "run continued on" in card
    assert new.vocabulary == run.model.trunk.config.vocabulary
    assert {"raven", "heron"} & new.piece_ids.keys()


def test_the_same_command_resumes_a_run_that_was_killed(
    home: Path, domain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, arguments = tmp_path / "mine", {"budget": "10m", "start": home / "run", "general_text": home / "text.txt"}

    def killed(*_: Any, **__: Any) -> None:
        raise RuntimeError("the plug was pulled")

    for owner, name in ((ContinuedRun, "_measure_before"), (ContinuedRun, "choose_recipe"), (pretrain, "pretrain")):
        with monkeypatch.context() as patch:  # before each part of the work in turn
            patch.setattr(owner, name, killed)
            with pytest.raises(RuntimeError, match="plug"):
                make.make([str(domain)], out, **arguments)
    measured = (out / before_after.BEFORE).read_bytes()
    update = Trainer.update

    def failing(self: Trainer, *parts: Any) -> None:
        if self.state.step == STEPS - 4:
            raise RuntimeError("the plug was pulled")
        update(self, *parts)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", failing)
        with pytest.raises(RuntimeError, match="plug"):
            make.make([str(domain)], out, **arguments)
    before = losses(out)
    capsys.readouterr()
    make.make([str(domain)], out, **arguments)
    said = " ".join(capsys.readouterr().out.split())
    assert "resuming, with the rest of its budget" in said
    assert "resuming from step" in said
    assert losses(out)[: len(before) - 2] == before[:-2]
    assert (out / before_after.BEFORE).read_bytes() == measured
    last = losses(out)[-1][0]
    make.make([str(domain)], out, **arguments)
    assert "this run is finished" in " ".join(capsys.readouterr().out.split())
    assert losses(out)[-1][0] == last

    with pytest.raises(RecipeError, match=r"mine: its run was begun with --from .*model\. Give the same model"):
        make.make([str(domain)], out, budget="10m", start=tmp_path)
    with pytest.raises(RecipeError, match=r"its run was begun with --from .*model\. Give the option again"):
        make.make([str(domain)], out, budget="10m")


@pytest.mark.exhaustive
def test_a_network_without_a_head_gets_one_while_it_is_frozen(
    home: Path, domain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = folders.read(home / "run")
    bare = {name: weight for name, weight in opened.state_dict.items() if name.startswith("trunk.")}
    folders.write(tmp_path / "bare", opened.config, bare)
    Tokenizer.load(home / "run" / "model").save(tmp_path / "bare")
    out = tmp_path / "mine"
    figures = make.make([str(domain)], out, budget="10m", start=tmp_path / "bare")
    said = " ".join(capsys.readouterr().out.split())
    assert f"bare has no masked LM head: a new one was fitted to the frozen network in {STEPS} steps" in said
    started = folders.read(out / START).state_dict
    for name, weight in bare.items():
        assert torch.equal(started[name], weight), name
    assert figures["bits_per_byte_domain_after"] < figures["bits_per_byte_domain_before"]
    assert "How much general text it has forgotten was not measured" in said  # it knows no English
    assert "had no masked LM head" in (out / "report.html").read_text(encoding="utf-8")
    assert load(out).fill("the deer sees the [MASK] .").best


@pytest.mark.exhaustive
def test_a_causal_model_is_continued(domain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuation, "MIN_CHARACTERS", {"words": 1.0})  # a vocabulary of 300 spells most words
    data = prepared(tmp_path / "home", "bpe")
    pretrain.pretrain(causal_recipe(data, tmp_path / "gpt"))
    figures = make.make(
        [str(domain)], tmp_path / "mine", start=tmp_path / "gpt", general_text=tmp_path / "home" / "text.txt"
    )
    assert figures["bits_per_byte_domain_after"] < figures["bits_per_byte_domain_before"]
    page = (tmp_path / "mine" / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row">text 1</th>' in page
    assert "whole words" not in page
    assert load(tmp_path / "mine").generate("the deer", max_new_tokens=3)


def causal_recipe(data: Path, out: Path) -> Recipe:
    values = {
        "out": str(out),
        "model": {"kind": "gpt2", "layers": 2, "width": 32, "heads": 2, "feed_forward": 64, "max_length": 32},
        "objective": {"kind": "causal_lm"},
        "data": {"folder": str(data), "max_length": 32, "batch_tokens": 512, "workers": 1},
        "train": {"steps": 20, "precision": "float32"},
    }
    return config.build(values, Recipe, "gpt.toml")


@pytest.mark.exhaustive
def test_a_model_that_got_worse_is_not_to_be_used(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text that it was made from teaches it nothing, and a learning rate that is too high destroys it."""
    monkeypatch.setattr(continuation, "LEARNING_RATE", 0.3)
    text = write_text(tmp_path / "text.txt", documents=100)
    make.make([str(text)], tmp_path / "mine", start=home / "run")
    said = " ".join(capsys.readouterr().out.split())
    assert "Do not use this model: on text like yours it is worse than run (" in said
    assert "Keep run, or give it more text or more time." in said
    assert (tmp_path / "mine" / "model" / "config.json").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"lowercase": True}, "--lowercase: with --from, the tokenizer is the model's. Leave the option out."),
        ({"strip_accents": False}, "--strip-accents: with --from, the tokenizer is the model's. Leave the option out."),
        ({"start": "nowhere"}, "nowhere: is missing. Name a model folder, or the folder of a run."),
        (
            {"start": None, "general_text": "x"},
            "--general-text: is for a model that is continued. Name one with --from.",
        ),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    home: Path, domain: Path, tmp_path: Path, options: dict[str, Any], line: str
) -> None:
    with pytest.raises(BertsmithError) as caught:
        make.make([str(domain)], tmp_path / "mine", **{"start": home / "run", **options})
    assert str(caught.value) == line
    assert not (tmp_path / "mine" / "recipe.toml").exists()


def test_texts_that_would_harm_are_refused(home: Path, tmp_path: Path) -> None:
    model = home / "run" / "model"
    small = write_text(tmp_path / "small.txt", documents=20)
    with pytest.raises(BertsmithError, match=r"1,4\d\d words are too few .* by heart\. Give at least 5,000"):
        make.make([str(small)], tmp_path / "one", start=model)
    text = write_text(tmp_path / "text.txt", documents=200).read_text(encoding="utf-8")
    russian = tmp_path / "russian.txt"
    russian.write_text(text.replace("the", "этот").replace("sees", "видит"), encoding="utf-8")
    with pytest.raises(BertsmithError, match=r"text: \d+% of the text's tokens are unknown .* or leave --from out"):
        make.make([str(russian)], tmp_path / "two", start=model)
    spelt = tmp_path / "spelt.txt"
    letters = str.maketrans("aeioutnsr", "tnsraeiou")
    spelt.write_text(text.translate(letters), encoding="utf-8")
    with pytest.raises(BertsmithError, match=r"spells the text out, 1\.\d characters per token\. Continue a model"):
        make.make([str(spelt)], tmp_path / "three", start=model)


def test_a_run_that_was_begun_without_it_is_refused(
    home: Path, domain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrain, "pretrain", lambda *_: {})  # it is refused by what was prepared
    make.make([str(domain)], tmp_path / "mine", budget="10m")
    with pytest.raises(RecipeError, match=r"mine: its run was begun without --from\. Choose another folder"):
        make.make([str(domain)], tmp_path / "mine", budget="10m", start=home / "run")


def test_a_longer_budget_is_not_promised_where_the_text_is_worn_out(tmp_path: Path) -> None:
    spent = {"finished": True, "budget": 60.0, "total_seconds": 60.0}
    said = make._resume_message(tmp_path, spent, 60.0, capped=True)
    fact = "its text has been read as often as it pays, which a longer --budget does not change"
    assert said.endswith(f"{fact}. Continue the model on more text, with another --out")
    files.write_json(tmp_path / SETTINGS, {"start": "elsewhere"})
    run = ContinuedRun(tmp_path, tmp_path, 60.0)
    assert not run.is_capped
    files.write_json(tmp_path / SETTINGS, {"start": "elsewhere", "max_budget": 50.0})
    assert run.is_capped


def test_the_budget_is_cut_where_a_text_would_be_seen_too_often(
    home: Path, domain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[float] = []

    def pretrained(recipe: Recipe, wall: WallBudget, *_: Any) -> dict[str, float]:
        budgets.append(wall.budget)
        return {}

    monkeypatch.setattr(pretrain, "pretrain", pretrained)
    make.make([str(domain)], tmp_path / "mine", budget="20h", start=home / "run")
    limit = json.loads((tmp_path / "mine" / SETTINGS).read_text())["max_budget"]
    assert 0 < limit < 10 * 3600
    assert budgets == [limit]
    reasons = summary.load_choices(tmp_path / "mine").recipe
    assert any("your text 40.0 times; seen more often, it would be learnt by heart" in line for line in reasons)
