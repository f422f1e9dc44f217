"""The seven-minute race: recipes, jobs, means, and which results are kept. Training itself has tests of its own."""

import json
import math
import pickle
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.script import ROOT, script
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import prepared, recipe

from bertsmith import config
from bertsmith.commands import pretrain as pretraining
from bertsmith.errors import RecipeError, RunError
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import log

record, race = script("record"), script("race")

POINTS = st.floats(-100, 100)
RECIPES = sorted(  # of pretraining on text
    path
    for path in (ROOT / "src" / "bertsmith" / "recipes").rglob("*.toml")
    if not re.search(r"^\[task\]|masked_patches", path.read_text("utf-8"), re.M)
)


class Threads(ThreadPoolExecutor):
    """Replaces the pool of processes: nothing needs to be pickled."""

    def __init__(self, workers: int, *_: Any) -> None:
        super().__init__(workers)


def job(task: str, seed: int) -> race.Job:
    return race.Job(task=task, seed=seed, model=Path(), data=Path(), tuning=(), size=race.TRIAL)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.name))
def test_only_budget_and_paths_of_a_recipe_are_changed(path: Path) -> None:
    own, (name, raced) = pretraining.read_recipe(path, []), race.raced(str(path), Path("text/data"), 7)
    assert name == path.stem
    assert (raced.train.budget, raced.train.steps, raced.train.epochs) == ("420s", None, None)
    assert (raced.train.evaluations, raced.train.checkpoints) == (0, 0)
    changed = {f"train.{name}" for name in ("steps", "epochs", "budget", "evaluations", "checkpoints")} | {
        "data.folder"
    }
    assert config.first_difference(own, raced, frozenset(changed)) is None


def test_a_recipe_is_identified_without_its_paths_and_with_its_text() -> None:
    here, there, other = (
        race.raced("bert-base", Path(place), 7)[1]
        for place in ("here/race-1-30522/data", "there/race-1-30522/data", "here/race-2-30522/data")
    )
    assert race.identity(here) == race.identity(replace(there, out=Path("elsewhere")))
    assert race.identity(here) != race.identity(other)
    assert race.identity(here) != race.identity(replace(here, train=replace(here.train, budget="60s")))


def test_overrides_after_a_path_hold_and_are_part_of_the_name() -> None:
    tiny, data = "tiny/bert", Path("text/data")
    name, raced = race.raced(f"{tiny} objective.mask_rate=0.4   optimizer.betas=[0.8,0.9]", data, 2)
    assert name == "bert objective.mask_rate=0.4 optimizer.betas=[0.8,0.9], 2 min"
    assert (raced.objective.settings.mask_rate, raced.optimizer.betas, raced.train.budget) == (0.4, (0.8, 0.9), "120s")
    changed = frozenset({"objective.mask_rate", "optimizer.betas"})
    assert config.first_difference(race.raced(tiny, data, 2)[1], raced, changed) is None
    with pytest.raises(RecipeError, match=r"unknown key 'mask_rat'\. Did you mean 'mask_rate'\?"):
        race.raced(f"{tiny} objective.mask_rat=0.4", data, 2)


@pytest.mark.parametrize(("said", "extent"), [("steps=9", (9, None, None)), ("epochs=0.5", (None, 0.5, None))])
def test_an_entry_with_its_own_length_is_not_bounded_by_the_budget(said: str, extent: tuple[Any, ...]) -> None:
    entry = f"tiny/bert train.{said}"
    name, raced = race.raced(entry, Path("text/data"), 2)
    assert (name, raced.train.steps, raced.train.epochs, raced.train.budget) == (f"bert train.{said}", *extent)
    assert (raced.train.evaluations, raced.train.checkpoints) == (0, 0)


@pytest.mark.slow
def test_a_raced_run_validates_before_and_after_the_clock_runs_and_saves_nothing(tmp_path: Path) -> None:
    made = recipe(prepared(tmp_path), tmp_path / "run", "train.evaluations=0", "train.checkpoints=0")
    made = replace(made, train=replace(made.train, steps=None, budget="0.3s"))
    figures = race.pretrain(made)
    lines = log.read(made.out / log.NAME)
    steps = [line for line in lines if line["kind"] == "step"]
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [0, figures["steps"]]
    assert figures["tokens"] == steps[-1]["tokens"]
    assert figures["seconds"] == steps[-1]["seconds"] >= 0.3
    assert figures["tokens_per_second"] == pytest.approx(figures["tokens"] / figures["seconds"])
    assert not (made.out / "checkpoints").exists()
    assert 0 < figures["held_out_loss"] < 2 * math.log(100)


def test_a_recipe_is_found_again_after_a_new_setting_was_added() -> None:
    """A file of results may be older than a setting, which then had its default."""
    same = race.identity(race.raced("bert-base", Path("text/data"), 7)[1])
    older = "\n".join(line for line in same.splitlines() if not line.startswith("clip ="))
    rows = {"row": {"recipe": older, "code": "old", "folder": "run", "pretrained": {}}}
    assert older != same
    assert race.kept(rows, same, None) == rows["row"]
    assert race.kept(rows, same, "new") is None
    rows["row"]["recipe"] = older + "\nnever_heard_of = 1"
    assert race.kept(rows, same, None) is None


def test_the_long_task_begins_first_and_runs_once() -> None:
    wanted = race.jobs(["BLiMP", *race.TASKS], Path(), Path(), (), race.Size())
    assert [wanted[0].task, len(wanted)] == ["SST-2", 2 + 4 * 3]
    assert sorted(one.seed for one in wanted if one.task == "CoLA") == [0, 1, 2]
    assert [one.task for one in wanted].count("SST-2") == 1


@given(st.sets(st.sampled_from(["BLiMP", *race.TASKS])))
def test_only_the_requested_tasks_are_scored(tasks: set[str]) -> None:
    assert {one.task for one in race.jobs(sorted(tasks), Path(), Path(), (), race.Size())} == tasks


def test_a_task_is_fine_tuned_with_the_given_overrides_and_the_seed_of_its_job() -> None:
    said = ("optimizer.learning_rate=1e-4", "task.pooling=mean", "train.epochs=2", "train.seed=5")
    usual, other = (race.learning(replace(job("CoLA", 1), tuning=tuning), Path("out")) for tuning in ((), said))
    assert (usual.optimizer.learning_rate, usual.task.settings.pooling, usual.train.epochs) == (5e-5, None, 4)
    assert (other.optimizer.learning_rate, other.task.settings.pooling, other.train.epochs) == (1e-4, "mean", 2)
    assert (usual.train.seed, other.train.seed) == (1, 1)
    changed = frozenset({"optimizer.learning_rate", "task.pooling", "train.epochs"})
    assert config.first_difference(usual, other, changed) is None


@pytest.mark.slow
@settings(deadline=None)
@given(st.fixed_dictionaries({task: st.lists(POINTS, min_size=1, max_size=4) for task in race.TASKS}))
def test_all_tasks_have_the_same_weight_whatever_their_seeds(points: dict[str, list[float]]) -> None:
    scores = {task: {str(seed): one for seed, one in enumerate(found)} for task, found in points.items()}
    known = race.summary(scores)
    means = [sum(found) / len(found) for found in points.values()]
    assert known["mean"][0] == pytest.approx(sum(means) / len(means), abs=1e-9)
    assert race.summary({**scores, "BLiMP": {"0": 62.0}})["mean"] == known["mean"]
    del scores["RTE"]
    assert "mean" not in race.summary(scores)


def test_the_published_row_is_the_mean_of_its_tasks() -> None:
    points = race.YARDSTICK["summary"]
    assert sum(points[task][0] for task in race.TASKS) / 5 == pytest.approx(points["mean"][0], abs=0.05)


def test_errors_survive_pickling() -> None:
    for error in (
        RunError("here", "it stopped", "Go on"),
        RunError("here", "why", "Did you mean 'x'?"),
        RunError("a", "b"),
    ):
        back = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert type(back) is RunError
        assert (str(back), back.location, back.fact, back.remedy) == (
            str(error),
            error.location,
            error.fact,
            error.remedy,
        )


def test_failures_are_counted_and_known_scores_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(one: Any) -> float:
        if one.task == "RTE":
            raise RunError("run", "stopped")
        return 7.0

    monkeypatch.setattr(race, "ProcessPoolExecutor", Threads)
    monkeypatch.setattr(race, "work", work)
    kept: list[str] = []
    row: dict[str, Any] = {"scores": {"CoLA": {"0": 1.0}}, "scoring_seconds": 100.0}
    wanted = [job("CoLA", 0), job("CoLA", 1), job("RTE", 0)]
    assert race.score(row, wanted, 1, lambda: kept.append(json.dumps(row["scores"]))) == 1
    assert row["scores"] == {"CoLA": {"0": 1.0, "1": 7.0}}
    assert kept == [json.dumps(row["scores"])]
    assert row["scoring_seconds"] >= 100  # of all calls together


def test_settings_that_do_not_fit_a_network_fail_its_job_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """BERT has no mean pooling for classification; with the first token the same job has a score."""
    tokenizer = Tokenizer.load(prepared(tmp_path) / "tokenizer")
    made = recipe(tmp_path, tmp_path, f"model.vocabulary={tokenizer.vocabulary}").model.settings
    folders.write(tmp_path / "model", made, MaskedLM(Transformer(made), MaskedLM.Config(pairs="none")).state_dict())
    tokenizer.save(tmp_path / "model")
    place = tmp_path / "glue" / "CoLA"
    place.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        rows = [f"x\t{number % 2}\t\tthe {'cat' if number % 2 else 'dog'} sees {number}" for number in range(8)]
        (place / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    monkeypatch.setattr(race, "ProcessPoolExecutor", Threads)
    row: dict[str, Any] = {"scores": {}, "scoring_seconds": 0.0}
    one = replace(job("CoLA", 0), model=tmp_path / "model", data=tmp_path, tuning=("task.pooling=mean",))
    assert race.score(row, [one], 1, lambda: None) == 1
    assert "CoLA 0: FAILED: task.pooling: transformers' BERT classifies by the first" in capsys.readouterr().out
    assert row["scores"] == {}
    assert race.score(row, [replace(one, tuning=())], 1, lambda: None) == 0
    assert -100 <= row["scores"]["CoLA"]["0"] <= 100


def test_the_number_of_pairs_concerns_only_blimp() -> None:
    protocol = {"tuning": "", "pairs": 200, "code": "own"}
    row = {"protocol": protocol, "scores": {"BLiMP": {"0": 60.0}, "CoLA": {"0": 10.0}}}
    assert race.alike(row, protocol) == row["scores"]
    assert race.alike(row, {**protocol, "pairs": 50}) == {"CoLA": {"0": 10.0}}
    assert race.alike(row, {**protocol, "pairs": 50, "code": "other"}) == race.alike(row, {**protocol, "new": 1}) == {}


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[str], dict[str, Any]]]:
    """The command without the slow parts: the scores it computed, and the rows it wrote."""
    measured: list[str] = []
    figures = {"seconds": 1.0, "tokens": 10, "tokens_per_second": 10.0, "held_out_loss": 3.0}
    monkeypatch.setattr(race, "ProcessPoolExecutor", Threads)
    monkeypatch.setattr(race, "prepared", lambda *_: tmp_path / "text" / "data")
    monkeypatch.setattr(race, "pretrain", lambda one: measured.append(one.model.kind) or figures)
    monkeypatch.setattr(race, "work", lambda one: measured.append(f"{one.task} {one.seed}") or 50.0)

    def call(*more: str, code: str = "first") -> tuple[list[str], dict[str, Any]]:
        measured.clear()
        out, tiny = tmp_path / "race.json", "tiny/bert"
        monkeypatch.setattr(race, "code", lambda: code)
        given = ["text", "data", "--trial", "--out", str(out), "--processes", "1"]
        given += [] if "--recipes" in more else ["--recipes", str(tiny)]
        monkeypatch.setattr(sys, "argv", ["race.py", *given, *more])
        race.main()
        return sorted(measured), json.loads(out.read_text(encoding="utf-8"))["rows"]

    return call


SCORED = ["BLiMP 0", "CoLA 0", "MRPC 0", "RTE 0", "SST-2 0", "STS-B 0"]
ROW = "bert, 0.2 min"

Command = Callable[..., tuple[list[str], dict[str, Any]]]


def test_the_same_command_computes_no_score_twice(command: Command) -> None:
    first, rows = command()
    assert first == sorted(["bert-tiny", *SCORED])
    assert rows[ROW]["summary"]["mean"] == [50.0, 0.0]
    assert command() == ([], rows)
    assert command("--seeds", "2")[0] == ["CoLA 1", "MRPC 1", "RTE 1", "STS-B 1"]


def test_other_code_pretrains_again_unless_only_scoring(command: Command) -> None:
    folder = command()[1][ROW]["folder"]
    scored, rows = command("--only-score", code="second")
    assert (scored, rows[ROW]["folder"], rows[ROW]["code"]) == (SCORED, folder, "first")
    anew, rows = command(code="third")
    assert anew == sorted(["bert-tiny", *SCORED])
    assert (rows[ROW]["folder"] != folder, rows[ROW]["code"]) == (True, "third")


def test_other_fine_tuning_settings_are_another_row_of_the_same_model(command: Command) -> None:
    folder = command()[1][ROW]["folder"]
    scored, rows = command("--tuning", "task.pooling=mean  optimizer.learning_rate=1e-4")
    other = f"{ROW}, tuned task.pooling=mean optimizer.learning_rate=1e-4"
    assert scored == SCORED
    assert {name: row["folder"] for name, row in rows.items()} == {ROW: folder, other: folder}
    assert rows[other]["protocol"]["tuning"] == "task.pooling=mean optimizer.learning_rate=1e-4"
    with pytest.raises(RecipeError, match="unknown key 'poling'"):
        command("--tuning", "task.poling=mean", "--recipes", "no/such.toml")  # before the recipe is read


def test_variants_of_one_file_are_rows_of_their_own(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = "tiny/bert"
    scored, rows = command("--recipes", tiny, f"{tiny} objective.mask_rate=0.4", f"{tiny} optimizer.betas=[0.8,0.9]")
    names = [ROW, "bert objective.mask_rate=0.4, 0.2 min", "bert optimizer.betas=[0.8,0.9], 0.2 min"]
    assert list(rows) == names
    assert len({row["folder"] for row in rows.values()}) == 3
    assert scored.count("bert-tiny") == 3
    shown = capsys.readouterr().out
    assert all(override in shown for override in ("objective.mask_rate=0.4", "optimizer.betas=[0.8,0.9]"))
    assert command("--recipes", f"{tiny} objective.mask_rate=0.4")[0] == []
    with pytest.raises(SystemExit, match="two of them have the same name"):
        command("--recipes", tiny, tiny)


def test_a_variant_that_cannot_be_pretrained_does_not_stop_the_others(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny, pretrain = "tiny/bert", race.pretrain

    def unlucky(one: Any) -> Any:
        if one.optimizer.learning_rate == 9.0:
            raise RunError(one.out, "the gradient was not a number")
        return pretrain(one)

    monkeypatch.setattr(race, "pretrain", unlucky)
    with pytest.raises(SystemExit, match="1 runs failed"):
        command("--recipes", f"{tiny} optimizer.learning_rate=9.0", tiny)
    assert "bert optimizer.learning_rate=9.0, 0.2 min: FAILED: " in capsys.readouterr().out
    assert command() == ([], {ROW: command()[1][ROW]})


def test_only_the_requested_tasks_are_scored_and_more_can_be_added_later(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    scored, rows = command("--tasks", "none")
    assert (scored, rows[ROW]["scores"], rows[ROW]["pretrained"]["held_out_loss"]) == (["bert-tiny"], {}, 3.0)
    assert command("--tasks", "BLiMP,CoLA")[0] == ["BLiMP 0", "CoLA 0"]
    assert command()[0] == sorted(set(SCORED) - {"BLiMP 0", "CoLA 0"})
    with pytest.raises(SystemExit):
        command("--tasks", "BLiMP,cola")
    assert "unknown task 'cola'" in capsys.readouterr().err


def test_another_number_of_pairs_scores_only_blimp_again(command: Command) -> None:
    command()
    scored, rows = command("--pairs", "50")
    assert (scored, rows[ROW]["protocol"]["pairs"]) == (["BLiMP 0"], 50)
    assert sorted(rows[ROW]["scores"]) == sorted(["BLiMP", *race.TASKS])


def test_a_model_that_was_never_pretrained_cannot_be_scored(command: Command) -> None:
    with pytest.raises(SystemExit, match=r"knows no run of tiny/bert\. Run it without --only-score\."):
        command("--only-score")
