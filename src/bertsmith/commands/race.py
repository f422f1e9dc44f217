"""`race`: pretrain several recipes on the same text with equal compute, and score their checkpoints against the cost.

A score says little without the compute that it took: Clark et al. 2020, figure 1. Each recipe runs as `bertsmith
pretrain` runs it. The clock counts data loading, steps, logging and saving; it leaves out the tokenizer, compilation
and scoring.
"""

import gc
import math
import shutil
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from bertsmith import config, files, terminal
from bertsmith.commands import pretrain, race_report
from bertsmith.commands.entrants import Entrant, folder_name, prepare_text, read_entrants
from bertsmith.commands.pretrain import TrainingCost
from bertsmith.commands.race_report import REPORT, RESULT
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import BertsmithError, RecipeError, RunError, StopError
from bertsmith.insight import leaderboard
from bertsmith.insight.leaderboard import Unit
from bertsmith.insight.table import Results
from bertsmith.recipe import Recipe, settle
from bertsmith.runs import autoconfig, image_recipe
from bertsmith.runs.candidates import tokenizer_kind
from bertsmith.runs.race_metrics import Metric, MetricsConfig, build_metrics
from bertsmith.train import checkpoint, hardware, log
from bertsmith.train.clock import Clock
from bertsmith.train.lock import Lock

Equal = Literal["time", "flops"]
CONSOLE = terminal.console()
FAILURE = "failure.txt"
# Settings that may differ when a race is resumed.
MAY_DIFFER = frozenset({"out", "data.folder", "data.workers", "train.device", "train.compile"})


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The compute that each recipe may spend, and the number of its checkpoints that are scored."""

    budget: str = "5m"
    equal: Equal = "time"
    points: int = 4

    def __post_init__(self) -> None:
        if autoconfig.budget_seconds(self.budget) <= 0:
            raise RecipeError("--budget", f"{self.budget} is no time", "Give at least some seconds")
        if self.points < 1:
            raise RecipeError("--points", f"{self.points} is too few", "Give at least 1")


@dataclass(frozen=True)
class Runner:
    """A recipe that takes part, ready to run."""

    name: str
    entrant: Entrant
    recipe: Recipe  # the entrant's recipe with the folder and the text of the race
    cost: TrainingCost


def race(
    entries: Sequence[str],
    out: Path,
    *,
    rules: Rules,
    metrics: MetricsConfig,
    data: Path | None = None,
    texts: Sequence[str] = (),
    lowercase: bool = True,
) -> Results:
    """Train and score each recipe, and write the report. Earlier results are kept, and a failure stops no other recipe.

    `entries` are recipes, each with overrides of its own if it has any, as in "bert-base objective.mask_rate=0.4"; an
    override by itself is for all of them. The text is a prepared folder, or files that are prepared here.
    """
    if data is not None:
        image_recipe.refuse_images(Path(next((text.split()[0] for text in entries if text.strip()), "race")), data)
    scored_by = build_metrics(metrics)
    entrants = read_entrants(entries, budget=rules.budget, points=rules.points)
    if (data is None) == (not texts):
        raise RecipeError("race", "needs one text for all recipes", "Give --data PREPARED, or --text FILES")
    with Lock(out):
        models = {name: entrant.recipe.model for name, entrant in entrants.items()}
        kinds = {name: tokenizer_kind(model.kind, model.settings) for name, model in models.items()}
        folders = {kind: data or prepare_text(texts, out, kind, lowercase) for kind in dict.fromkeys(kinds.values())}
        runners = []
        for name, entrant in entrants.items():
            text = replace(entrant.recipe.data, folder=folders[kinds[name]])
            recipe = replace(entrant.recipe, out=out / folder_name(name), data=text)
            runners.append(Runner(name, entrant, recipe, pretrain.training_cost(recipe)))
        state, failed = load_race(out, rules, runners[0].name), []
        for runner in runners:
            check(out, state, runner, rules)
        for number, runner in enumerate(runners, 1):
            CONSOLE.print(f"{runner.name}, recipe {number} of {len(runners)}", style="bold")
            try:
                row = run_entrant(out, state, runner, rules)
                score(row, runner.recipe, out, scored_by, partial(race_report.save, out, state))
            except StopError:
                raise
            except Exception as error:  # any error: the others may have hours of training before them
                if len(runners) == 1:
                    raise
                failed.append(runner.name)
                report_failure(runner.name, runner.recipe.out, error)
        results = race_report.save(out, state)
    show(results, out, failed, len(runners))
    return results


def show(results: Results, out: Path, failed: Sequence[str], entrants: int) -> None:
    """Print the table of a race; an error names the recipes that failed."""
    CONSOLE.print(results.to_table())
    CONSOLE.print(f"report {out / REPORT}, results {out / RESULT}", markup=False)
    if failed:
        fact = f"{len(failed)} of {entrants} recipes failed: {', '.join(failed)}"
        raise RunError(out, fact, "The reasons are printed above; the same command tries these recipes again")


def report_failure(name: str, folder: Path, error: Exception) -> None:
    """Print why a recipe failed; the traceback of an error that is not the user's goes into the recipe's folder."""
    line = str(error)
    if not isinstance(error, BertsmithError):
        path = folder / FAILURE
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(path, "".join(traceback.format_exception(error)).encode())
        line = f"{type(error).__name__}: {line.partition(chr(10))[0]} (traceback in {path})"
    CONSOLE.print(f"{name} failed. {line}", markup=False)
    free_memory()


def load_race(out: Path, rules: Rules, first: str, unit: Unit = "tokens") -> dict[str, Any]:
    """The state of a race, from its folder; a race with other rules, or on other data, is refused."""
    given = {"budget": rules.budget, "equal": rules.equal, "points": rules.points}
    if not (out / RESULT).exists():
        machine = hardware.describe(hardware.select_device("auto"))
        rules_of_all = {**given, "pacemaker": first}
        files.write_json(out / RESULT, {"rules": rules_of_all, "unit": unit, "machine": machine, "rows": []})
    state = files.read_json(out / RESULT)
    if state["unit"] != unit:
        kind = "images" if state["unit"] == "images" else "text"
        raise RunError(out, f"is a race on {kind}", "Choose another folder, or remove this one")
    for name, value in given.items():
        if (before := state["rules"][name]) != value:
            fact = f"was begun with --{name} {before}, and not {value}"
            raise RunError(out, fact, "Choose another folder, or remove this one")
    return state


def check(out: Path, state: dict[str, Any], runner: Runner, rules: Rules) -> None:
    """Refuse a recipe whose earlier results are those of other settings or another text."""
    if (row := find_row(state, runner.name)) is None:
        return
    recipe = with_budget(out, state, runner, rules)
    settle(recipe, MAY_DIFFER)
    if row["data"] != Shards(recipe.data.local / "train").fingerprint:
        raise RunError(recipe.out, "was trained on another text", "Choose another folder, or give it the same text")


def run_entrant(out: Path, state: dict[str, Any], runner: Runner, rules: Rules) -> dict[str, Any]:
    """The row of a recipe, which is trained now unless it was before."""
    if (row := find_row(state, runner.name)) is not None:
        return row
    recipe = with_budget(out, state, runner, rules)
    last = round(pretrain.pretrain(recipe)["step"])
    device = hardware.select_device(recipe.train.device)
    row = {
        "name": runner.name,
        "label": runner.entrant.label,
        "overrides": runner.entrant.overrides,
        "description": race_report.describe(recipe),
        "data": Shards(recipe.data.local / "train").fingerprint,
        "parameters": runner.cost.parameters,
        "flops": runner.cost.flops,  # per token
        "peak": hardware.peak_flops(device, torch.bfloat16) if device.type == "cuda" else None,
        "points": collect_points(out, recipe, last, runner.cost, rules),
        "recipe": config.dump(recipe),
    }
    state["rows"].append(row)
    race_report.save(out, state)
    for folder in sorted((recipe.out / "checkpoints").glob("step-*"))[:-1]:
        shutil.rmtree(folder)  # their models have been exported
    free_memory()
    return row


def find_row(state: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The row of a recipe, if it has been trained."""
    return next((row for row in state["rows"] if row["name"] == name), None)


def with_budget(out: Path, state: Mapping[str, Any], runner: Runner, rules: Rules) -> Recipe:
    """The recipe with its length: the same time for all, or as many updates as the pacemaker's FLOPs allow."""
    if rules.equal == "time" or runner.name == state["rules"]["pacemaker"]:
        return runner.recipe
    steps = round(pacemaker_flops(out, state) / (runner.cost.flops * runner.cost.tokens))
    if steps < rules.points:
        raise too_short(runner.recipe.out, steps, rules.points)
    return replace(runner.recipe, train=replace(runner.recipe.train, budget=None, steps=steps))


def pacemaker_flops(out: Path, state: Mapping[str, Any]) -> float:
    """The FLOPs that the first recipe has spent, which the others get, too."""
    first = find_row(state, state["rules"]["pacemaker"])
    if first is None:
        fact = f"its first recipe, '{state['rules']['pacemaker']}', sets the FLOPs and is not finished"
        raise RunError(out, fact, "Name it first")
    flops: float = first["points"][-1]["flops"]
    return flops


def collect_points(out: Path, recipe: Recipe, last: int, cost: TrainingCost, rules: Rules) -> list[dict[str, Any]]:
    """The models to score: at each part of the budget the first checkpoint after it, and the last step's at the end."""
    points: list[dict[str, Any]] = []
    steps = (line for line in log.read(recipe.out / log.NAME) if line["kind"] == "step")
    times = {line["step"]: line["seconds"] for line in steps}  # the time in a checkpoint may include a validation
    for saved in checkpoint.load_all(recipe.out / "checkpoints"):
        seconds, tokens = times[saved.step], saved.state["tokens"]
        folder, number = recipe.out, len(points) + 1
        if saved.step != last:
            share = Clock(recipe.train.extent, training_seconds=seconds).progress(saved.step, 0.0)
            if number == rules.points or share < number / rules.points:
                continue  # saved between two points, because the run was interrupted
            folder = recipe.out / f"point-{number}"
            pretrain.export(recipe, saved, folder)
        spent = {"step": saved.step, "tokens": tokens, "seconds": seconds, "flops": tokens * cost.flops}
        points.append({"folder": str((folder / "model").relative_to(out)), "scores": {}, **spent})
    if len(points) < rules.points:
        raise too_short(recipe.out, last, rules.points)
    return points


def too_short(folder: Path, steps: int, points: int) -> RunError:
    """The error of a budget in which there are fewer updates than points."""
    fact = f"the budget is over after {steps} updates, too soon for {points} points"
    return RunError(folder, fact, "Give a longer --budget and another --out, or fewer --points")


def free_memory() -> None:
    """Free the memory and the compiled steps of a run before the next one; torch bounds how many steps it compiles."""
    gc.collect()
    if torch.cuda.is_available():
        torch.compiler.reset()
        torch.cuda.empty_cache()


def score(
    row: Mapping[str, Any], recipe: Recipe, out: Path, metrics: Sequence[Metric], save: Callable[[], object]
) -> None:
    """Compute the scores that the points of a row do not have yet, and save each as soon as it is known."""
    for number, point in enumerate(row["points"], 1):
        for metric in metrics:
            if point["scores"].get(metric.name, {}).get("settings") == metric.settings:
                continue
            values = [value for value in metric.compute(recipe, out / point["folder"]) if math.isfinite(value)]
            point["scores"][metric.name] = {"settings": metric.settings, "values": values}
            save()
            shown = f"{leaderboard.heading(metric.name)} {leaderboard.cell(metric.name, values)}"
            CONSOLE.print(f"{row['name']}, point {number} of {len(row['points'])}: {shown}")
            free_memory()
