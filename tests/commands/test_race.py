"""The race: equal compute, scored checkpoints, and no work done twice. Training itself has tests of its own."""

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands.ticking import tick
from runs.test_suites import glue
from tiny import prepared, recipe, write_text
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.commands import entrants, race
from bertsmith.commands import pretrain as pretraining
from bertsmith.commands.race import Rules
from bertsmith.config import Component
from bertsmith.errors import BertsmithError, RecipeError, RunError
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import Recipe
from bertsmith.runs import race_metrics
from bertsmith.runs.race_metrics import MetricsConfig
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import checkpoint, log, trainer
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.log import Log
from bertsmith.train.signals import Signals

pytestmark = pytest.mark.slow("trains the entrants of races")

RULES = Rules(budget="1s", points=2)
MASKED = 'kind = "masked_lm"\npairs = "none"'
REPLACED = 'kind = "replaced_tokens"\ngenerator_size = 0.5'


def written(folder: Path, name: str, kind: str = "bert-base", objective: str = MASKED) -> str:
    """The file of a recipe whose steps take milliseconds; its text is set by the race."""
    text = f"""
out = "nowhere"
[model]
kind = "{kind}"
width = 32
layers = 2
heads = 2
feed_forward = 64
max_length = 32
[objective]
{objective}
[data]
folder = "nowhere"
max_length = 32
batch_tokens = 512
workers = 1
[optimizer]
learning_rate = 0.003
[train]
steps = 5
precision = "float32"
"""
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return str(folder / f"{name}.toml")


@pytest.fixture(autouse=True)
def _ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    tick(monkeypatch)


def pairs(folder: Path) -> Path:
    """Minimal pairs of the made-up language."""
    rows = [
        {"sentence_good": f"the {one} sees the tree .", "sentence_bad": f"the sees {one} the tree .", "UID": name}
        for name in ("first", "second")
        for one in ("cat", "dog", "king")
    ]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return folder / "pairs.jsonl"


def known(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "race.json").read_text(encoding="utf-8"))
    return found


def test_a_race_scores_checkpoints_and_does_no_work_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = prepared(tmp_path), tmp_path / "race"
    tuning = ["train.steps=1", "train.evaluations=0", "data.batch_size=4", "data.max_length=16"]
    asked = MetricsConfig(
        glue=glue(tmp_path / "glue"),
        tasks=["SST-2"],
        seeds=2,
        finetune_overrides=tuning,
        blimp=pairs(tmp_path),
        limit=2,
    )
    given = [written(tmp_path, "bert"), written(tmp_path, "electra", "electra-base", REPLACED), "train.seed=3"]
    results = race.race(given, out, rules=RULES, metrics=asked, data=data)
    bert, _ = rows = known(out)["rows"]
    assert [row["name"] for row in rows] == ["bert", "electra"]
    for row in rows:
        first, last = row["points"]
        assert first["step"] < last["step"]
        assert 0.5 <= first["seconds"] < 0.6
        assert 1 <= last["seconds"] < 1.1
        assert [point["flops"] for point in row["points"]] == [row["flops"] * p["tokens"] for p in row["points"]]
        assert [point["folder"] for point in row["points"]] == [f"{row['name']}/point-1/model", f"{row['name']}/model"]
        assert "seed = 3" in row["recipe"]
        assert len(list((out / row["name"] / "checkpoints").glob("step-*"))) == 1
        for point in row["points"]:
            assert len(point["scores"]["SST-2"]["values"]) == 2
            guesses = row is bert
            assert [len(point["scores"][name]["values"]) for name in ("bits per byte", "BLiMP")] == [guesses] * 2
            assert folders.read(out / point["folder"]).config.width == 32
    assert bert["points"][-1]["scores"]["bits per byte"]["values"][0] < 3
    assert results.rows[1][0] == "electra"
    assert results.rows[1][-2:] == ["-", "-"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,"]  # it loads nothing
    assert page.count("<svg") == 3
    assert "For all: train.seed=3</p>" in page
    assert results.subtitle == "For all: train.seed=3"

    before = (out / "race.json").read_bytes()
    monkeypatch.setattr(pretraining, "pretrain", lambda _: pytest.fail("trained again"))
    taken: list[str] = []
    judge = race_metrics.minimal_pairs.accuracies
    monkeypatch.setattr(race_metrics.minimal_pairs, "accuracies", lambda *given: taken.append("BLiMP") or judge(*given))
    monkeypatch.setattr(race_metrics.finetuning, "finetune", lambda _: pytest.fail("learnt again"))
    monkeypatch.setattr(race_metrics, "evaluate", lambda *_: pytest.fail("evaluated again"))
    assert race.race(given, out, rules=RULES, metrics=asked, data=data).rows == results.rows
    assert (taken, (out / "race.json").read_bytes()) == ([], before)
    race.race(given, out, rules=RULES, metrics=replace(asked, limit=1), data=data)
    assert taken == ["BLiMP", "BLiMP"]

    with pytest.raises(RunError, match=r"race: was begun with --budget 1s, and not 2s\. Choose another folder"):
        race.race(given, out, rules=replace(RULES, budget="2s"), metrics=asked, data=data)
    with pytest.raises(RunError, match=r"bert: was begun with another recipe: train\.seed was 3, is 4\."):
        race.race([*given[:2], "train.seed=4"], out, rules=RULES, metrics=asked, data=data)
    (tmp_path / "other").mkdir()
    with pytest.raises(RunError, match=r"bert: was trained on another text\."):
        race.race(given, out, rules=RULES, metrics=asked, data=prepared(tmp_path / "other", "unigram"))


def test_an_interrupted_race_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out, looks = prepared(tmp_path), tmp_path / "race", itertools.count()

    class Asked(Signals):
        """Ctrl-C in the third step."""

        received = property(lambda _: "SIGINT" if next(looks) == 2 else None, lambda *_: None)  # type: ignore[assignment]

    monkeypatch.setattr(trainer, "Signals", Asked)
    given = [written(tmp_path, "bert")]
    with pytest.raises(RunError, match=r"race/bert: stopped at step 3, saved\. The same command resumes it\."):
        race.race(given, out, rules=RULES, metrics=MetricsConfig(), data=data)
    assert known(out)["rows"] == []
    race.race(given, out, rules=RULES, metrics=MetricsConfig(), data=data)
    (row,) = known(out)["rows"]
    assert 3 < row["points"][0]["step"] < row["points"][1]["step"]
    assert all(point["scores"]["bits per byte"]["values"] for point in row["points"])


def test_a_recipe_that_fails_stops_no_other_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out, pretrain = prepared(tmp_path), tmp_path / "race", pretraining.pretrain
    given = [written(tmp_path, name) for name in ("first", "second", "third")]

    def mishap(recipe: Recipe) -> dict[str, float]:
        if recipe.out.name == "first":
            raise RuntimeError("CUDA ran out of something\nand said much more")
        if recipe.out.name == "third":
            raise RunError(recipe.out, "the gradient was not a number", "Lower optimizer.learning_rate")
        return pretrain(recipe)

    monkeypatch.setattr(pretraining, "pretrain", mishap)
    with pytest.raises(
        RunError, match=r"race: 2 of 3 recipes failed: first, third\. The reasons are printed above; the"
    ):
        race.race(given, out, rules=RULES, metrics=MetricsConfig(), data=data)
    printed = " ".join(capsys.readouterr().out.split())
    assert "first failed. RuntimeError: CUDA ran out of something (" in printed
    assert "third failed. " in printed
    assert "third: the gradient was not a number. Lower optimizer.learning_rate." in printed
    kept = (out / "first" / "failure.txt").read_text(encoding="utf-8")
    assert "Traceback" in kept
    assert "and said much more" in kept
    assert [row["name"] for row in known(out)["rows"]] == ["second"]
    monkeypatch.setattr(pretraining, "pretrain", pretrain)
    race.race(given, out, rules=RULES, metrics=MetricsConfig(), data=data)
    assert sorted(row["name"] for row in known(out)["rows"]) == ["first", "second", "third"]


def test_the_last_point_has_the_last_weights_of_a_recipe_that_would_keep_others(tmp_path: Path) -> None:
    """A recipe that diverges is best before its first update; its points are those of its compute all the same."""
    data, out, path = prepared(tmp_path), tmp_path / "race", written(tmp_path, "worse")
    text = Path(path).read_text(encoding="utf-8").replace("0.003", "30.0").replace("steps = 5", "steps=5\npatience = 3")
    Path(path).write_text('keep = "best"\n' + text, encoding="utf-8")
    race.race([path], out, rules=RULES, metrics=MetricsConfig(), data=data)
    [row] = known(out)["rows"]
    assert len(row["points"]) == RULES.points
    steps = [line["step"] for line in log.read(out / "worse" / log.NAME) if line["kind"] == "step"]
    assert row["points"][-1]["step"] == max(steps)


@pytest.mark.exhaustive
def test_with_equal_flops_all_spend_what_the_first_spends_in_its_time(tmp_path: Path) -> None:
    data, out = prepared(tmp_path), tmp_path / "race"
    first = written(tmp_path, "bert")
    given = [first, f"{first} model.width=64 data.batch_tokens=256"]
    rules = Rules(budget="0.6s", points=2, equal="flops")
    race.race(given, out, rules=rules, metrics=MetricsConfig(), data=data)
    small, wide = known(out)["rows"]
    assert (wide["name"], wide["points"][-1]["folder"]) == (
        "bert model.width=64 data.batch_tokens=256",
        "bert-model.width=64-data.batch_tokens=256/model",
    )
    assert wide["flops"] > 2 * small["flops"]
    update = wide["points"][-1]["flops"] / wide["points"][-1]["step"]
    assert wide["points"][-1]["flops"] == pytest.approx(small["points"][-1]["flops"], abs=3 * update)
    assert wide["points"][0]["step"] == math.ceil(wide["points"][-1]["step"] / 2)
    race.race(
        given[1:], out, rules=rules, metrics=MetricsConfig(), data=data
    )  # the FLOPs of the pacemaker are known by now
    runner = race.Runner(
        "other",
        entrants.Entrant(recipe(data, out), "other", []),
        recipe(data, out),
        pretraining.training_cost(recipe(data, out)),
    )
    with pytest.raises(RunError, match=r"its first recipe, 'bert', sets the FLOPs and is not finished\. Name"):
        race.with_budget(out, {"rules": {"pacemaker": "bert"}, "rows": []}, runner, rules)
    with pytest.raises(RunError, match=r"the budget is over after 0 updates, too soon for 2 points\."):
        race.with_budget(
            out, {"rules": {"pacemaker": "bert"}, "rows": [{"name": "bert", "points": [{"flops": 1}]}]}, runner, rules
        )


def test_the_text_is_prepared_once_for_each_kind_of_tokenizer(tmp_path: Path) -> None:
    """RoBERTa takes byte-level BPE, whose padding has id 1; both are scored on the same documents."""
    text, out = write_text(tmp_path / "text.txt", 200), tmp_path / "race"
    given = [written(tmp_path, "bert"), written(tmp_path, "roberta", "roberta-base")]
    race.race(given, out, rules=replace(RULES, points=1), metrics=MetricsConfig(), texts=[str(text)])
    paddings = [Tokenizer.load(out / f"data-{kind}" / "tokenizer").padding_id for kind in ("wordpiece", "bpe")]
    assert paddings == [0, 1]
    bert, roberta = known(out)["rows"]
    assert bert["data"] != roberta["data"]
    assert all(row["points"][-1]["scores"]["bits per byte"]["values"] for row in (bert, roberta))
    summaries = [json.loads((out / f"data-{kind}" / "summary.json").read_text()) for kind in ("wordpiece", "bpe")]
    assert summaries[0]["valid"]["bytes"] == summaries[1]["valid"]["bytes"] > 0


def test_a_network_of_another_size_does_not_get_the_members_name(tmp_path: Path) -> None:
    """The label "bert-base" would be wrong for a network of two layers; the name of a user's own file is kept."""
    given = [written(tmp_path, "bert-base"), written(tmp_path, "legal"), "train.seed=3"]
    found = entrants.read_entrants(given, budget="1s", points=1)
    assert [one.label for one in found.values()] == ["bert 2 x 32", "legal"]
    assert [one.overrides for one in found.values()] == [["train.seed=3"]] * 2
    assert entrants.short_name(
        "bert-base", replace(found["legal"].recipe, model=Component("bert-base", FAMILY["bert-base"]))
    ) == ("bert-base")
    small = replace(FAMILY["t5-base"], layers=4, decoder_layers=3, width=512, heads=8)
    assert (
        entrants.short_name("t5-base", replace(found["legal"].recipe, model=Component("t5-base", small)))
        == "t5 4 + 3 x 512"
    )


def test_legends_have_short_labels(tmp_path: Path) -> None:
    shared, long = ["train.seed=3", "data.max_length=16"], [f"schedule.option_{number}=1" for number in range(9)]
    rows: list[dict[str, Any]] = [
        {"label": "bert 4 x 512", "overrides": [*shared, "optimizer.learning_rate=5e-4"]},
        {"label": "bert 4 x 512", "overrides": [*shared, *long]},
        {"label": "gpt2 4 x 512", "overrides": [*shared, "model.dropout=0.2", *long]},
    ]
    assert entrants.shared_overrides(rows) == shared
    assert entrants.labels(rows) == ["bert 4 x 512, learning_rate=5e-4", "bert 4 x 512 (a)", "gpt2 4 x 512"]
    assert entrants.own_overrides(rows[0], rows) == ["optimizer.learning_rate=5e-4"]
    assert entrants.labels([rows[0], rows[0]]) == ["bert 4 x 512 (a)", "bert 4 x 512 (b)"]
    assert entrants.labels(rows[:1]) == ["bert 4 x 512"]
    assert entrants.own_overrides(rows[0], rows[:1]) == rows[0]["overrides"]


def test_points_are_the_first_checkpoints_after_each_part_of_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was interrupted has a checkpoint in between; the last point is the last step, whatever its time."""
    made = recipe(tmp_path, tmp_path / "run")
    made = replace(made, train=replace(made.train, steps=None, budget="100s"))
    for step, seconds in {3: 11.0, 8: 26.0, 9: 31.0, 14: 52.5, 20: 76.0, 24: 100.2, 25: 104.0}.items():
        state = {"training_seconds": seconds + 50, "tokens": 10 * step}  # as if a validation had come in between
        checkpoint.save(made.out / "checkpoints", Checkpoint(step, {"model": {}}, state), keep=100)
        with Log(made.out, tensorboard=False) as lines:
            lines.write({"kind": "step", "step": step, "seconds": seconds})
    exported: list[tuple[int, Path]] = []
    monkeypatch.setattr(pretraining, "export", lambda _, saved, place: exported.append((saved.step, place)))
    cost = pretraining.TrainingCost(parameters=1, flops=7.0, tokens=10)
    found = race.collect_points(tmp_path, made, 25, cost, Rules(budget="100s", points=4))
    assert [point["step"] for point in found] == [8, 14, 20, 25]
    assert exported == [(step, made.out / f"point-{number}") for number, step in enumerate((8, 14, 20), 1)]
    assert found[-1] == {
        "folder": "run/model", "scores": {}, "step": 25, "tokens": 250, "seconds": 104.0, "flops": 1750.0
    }  # fmt: skip
    with pytest.raises(RunError, match=r"run: the budget is over after 25 updates, too soon for 9 points\."):
        race.collect_points(tmp_path, made, 25, cost, Rules(budget="100s", points=9))


def test_an_exported_checkpoint_has_the_weights_of_its_step(tmp_path: Path) -> None:
    made = recipe(prepared(tmp_path), tmp_path / "run", "train.steps=4", "train.checkpoints=2")
    pretraining.pretrain(made)
    first, last = checkpoint.load_all(made.out / "checkpoints")
    assert (first.step, last.step) == (2, 4)
    pretraining.export(made, first, tmp_path / "early")
    table = "trunk.embedding.weight"
    early, late = (folders.read(place / "model").state_dict[table] for place in (tmp_path / "early", made.out))
    assert torch.equal(early, first.tensors["model"][table])
    assert not torch.equal(early, late)
    assert "after 2 updates" in (tmp_path / "early" / "model" / "README.md").read_text(encoding="utf-8")


def test_the_training_cost_of_a_recipe_is_that_of_its_batches(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    made = recipe(data, tmp_path / "run", "objective.pairs=none", "train.gradient_accumulation=3")
    cost = pretraining.training_cost(made)
    assert 0.98 * 3 * 512 <= cost.tokens <= 3 * 512
    shape = replace(made.model.settings, vocabulary=Tokenizer.load(data / "tokenizer").vocabulary)
    assert shape.flops(8, 0.15) < cost.flops < shape.flops(32, 0.15)
    objective = MaskedLM(Transformer(shape), made.objective.settings)
    assert cost.parameters == sum(weight.numel() for weight in objective.parameters())
    with pytest.raises(RecipeError, match="Train the tokenizer with --kind bpe"):
        pretraining.training_cost(recipe(data, tmp_path / "run", "model.position_offset=2"))


def test_fifteen_percent_of_held_out_tokens_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights of zero, every token is equally likely."""
    data = prepared(tmp_path)
    tokenizer = Tokenizer.load(data / "tokenizer")
    made = recipe(data, tmp_path, f"model.vocabulary={tokenizer.vocabulary}", "objective.mask_rate=0.4")
    objective = MaskedLM(Transformer(made.model.settings), made.objective.settings)
    for weight in objective.parameters():
        torch.nn.init.zeros_(weight)
    folders.write(tmp_path / "model", made.model.settings, objective.state_dict())
    tokenizer.save(tmp_path / "model")
    asked: list[Any] = []
    measure = race_metrics.evaluate
    monkeypatch.setattr(race_metrics, "evaluate", lambda *given: asked.extend(given[1]) or measure(*given))
    figures = race_metrics.held_out_scores(tmp_path / "model", data / "valid")
    assert figures["masked_loss"] == pytest.approx(math.log(tokenizer.vocabulary))
    hidden, seen = (sum(batch.counts[name] for batch in asked) for name in ("masked", "tokens"))
    assert hidden / seen == pytest.approx(0.15, abs=0.002)
    assert all(batch.labels is None for batch in asked)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["{bert}", "--budget", "soon", "--data", "{tmp}"], "--budget: 'soon' is not a duration."),
        (["{bert}", "--budget", "0s", "--data", "{tmp}"], "--budget: 0s is no time. Give at least some seconds."),
        (["{bert}", "--points", "0", "--data", "{tmp}"], "--points: 0 is too few. Give at least 1."),
        (["{bert}"], "race: needs one text for all recipes. Give --data PREPARED, or --text FILES."),
        (["{bert}", "--data", "{tmp}", "--text", "x"], "race: needs one text for all recipes."),
        (["nowhere.toml", "--data", "{tmp}"], "nowhere.toml: there is no such recipe."),
        (["train.seed=1", "--data", "{tmp}"], "race: no recipe is given."),
        (["{bert}", "{bert}", "--data", "{tmp}"], "two recipes have the name 'bert'. Rename a file, or leave one out."),
        (["{bert}", "train.steps=9", "--data", "{tmp}"], "'train.steps=9': is set by the race. Use --budget,"),
        (["{bert} keep=best", "--data", "{tmp}"], "'keep=best': is set by the race."),
        (["{bert}", "train.patience=2", "--data", "{tmp}"], "'train.patience=2': is set by the race."),
        (["{bert} data.folder=x", "--data", "{tmp}"], "'data.folder=x': is set by the race."),
        (["{bert}", "--data", "{tmp}/nowhere"], "nowhere: there is no such folder."),
        (["{bert}", "--data", "{tmp}", "--tasks", "CoLA"], "--tasks: needs GLUE's data. Give its folder with --glue"),
        (["{bert}", "--data", "{tmp}", "--glue", "{tmp}/glue", "--tasks", "SST2"], "Did you mean 'SST-2'?"),
        (["{bert}", "--data", "{tmp}", "--glue", "{tmp}/glue", "--finetune-overrides", "task.x=1"], "unknown key 'x'"),
        (["{bert}", "--data", "{tmp}", "--blimp", "{tmp}/none.jsonl"], "none.jsonl"),
    ],
)
def test_mistakes_are_reported_before_any_training(arguments: list[str], line: str, tmp_path: Path) -> None:
    glue(tmp_path / "glue")
    bert = written(tmp_path, "bert")
    given = [part.format(bert=bert, tmp=tmp_path) for part in arguments]
    answered = CliRunner().invoke(app, ["race", *given, "--out", str(tmp_path / "race")])
    assert isinstance(answered.exception, BertsmithError), answered.output
    assert line in str(answered.exception)
    assert not (tmp_path / "race" / "race.json").exists()
