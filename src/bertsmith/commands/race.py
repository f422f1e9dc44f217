"""The race: recipes trained on one text at equal compute, scored on the way, and drawn against what they cost.

What a model scores says little without what it took: Clark et al. 2020, figure 1. Each recipe runs as `bertsmith
pretrain` runs it. The clock counts loader, steps, log and saving, but no vocabulary, no compilation and no scores.
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
from bertsmith.commands import pretrain
from bertsmith.commands.entrants import (
    Entrant,
    folder_name,
    labels,
    own_overrides,
    prepare_text,
    read_entrants,
    shared_overrides,
    tokenizer_kind,
)
from bertsmith.commands.pretrain import TrainingCost
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import BertsmithError, RecipeError, RunError, StopError
from bertsmith.insight import leaderboard, table
from bertsmith.insight.leaderboard import CostAxis
from bertsmith.insight.table import Results
from bertsmith.recipe import Recipe, settle
from bertsmith.runs import autoconfig
from bertsmith.runs.race_metrics import Metric, MetricsConfig, build_metrics
from bertsmith.train import checkpoint, hardware, log
from bertsmith.train.clock import Clock, format_duration
from bertsmith.train.lock import Lock

Equal = Literal["time", "flops"]
CONSOLE = terminal.console()
RESULT, REPORT, FAILURE = "race.json", "report.html", "failure.txt"
MAY_DIFFER = frozenset(
    {"out", "data.folder", "data.workers", "train.device", "train.compile"}
)  # what may differ in a row


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is equal for all: how much each may spend, of what, and at how many points of that it is looked at."""

    budget: str = "5m"
    equal: Equal = "time"
    points: int = 4

    def __post_init__(self) -> None:
        if autoconfig.budget_seconds(self.budget) <= 0:
            raise RecipeError("--budget", f"{self.budget} is no time", "Give at least some seconds")
        if self.points < 1:
            raise RecipeError("--points", f"{self.points} are none", "Give at least 1")


@dataclass(frozen=True)
class Runner:
    """A recipe that takes part."""

    name: str
    entrant: Entrant
    recipe: Recipe  # the entrant's, for the folder and the text of the race
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
    """Train, score and draw; what is known from an earlier call is not made again, and one that fails stops no other.

    `entries` are recipes, each perhaps with overrides of its own, as in "bert-base objective.mask_rate=0.4"; an
    override that stands alone is for all of them. The text is a prepared folder, or files that are prepared here.
    """
    asked = build_metrics(metrics)
    entrants = read_entrants(entries, budget=rules.budget, points=rules.points)
    if (data is None) == (not texts):
        raise RecipeError("race", "it takes one text for all", "Give --data PREPARED, or --text FILES")
    with Lock(out):
        kinds = {name: tokenizer_kind(entrant.recipe.model.settings) for name, entrant in entrants.items()}
        folders = {kind: data or prepare_text(texts, out, kind, lowercase) for kind in dict.fromkeys(kinds.values())}
        runners = []
        for name, entrant in entrants.items():
            text = replace(entrant.recipe.data, folder=folders[kinds[name]])
            recipe = replace(entrant.recipe, out=out / folder_name(name), data=text)
            runners.append(Runner(name, entrant, recipe, pretrain.training_cost(recipe)))
        known, failed = load_race(out, rules, runners[0].name), []
        for runner in runners:
            check(out, known, runner, rules)
        for number, runner in enumerate(runners, 1):
            CONSOLE.print(f"{runner.name}, recipe {number} of {len(runners)}", style="bold")
            try:
                row = run_entrant(out, known, runner, rules)
                score(row, runner.recipe, out, asked, partial(save, out, known))
            except StopError:
                raise
            except Exception as error:  # whatever it is, hours of the others are at stake
                if len(runners) == 1:
                    raise
                failed.append(runner.name)
                report_failure(runner, error)
        results = save(out, known)
    CONSOLE.print(results.to_table())
    CONSOLE.print(f"page {out / REPORT}, figures {out / RESULT}")
    if failed:
        many = f"{len(failed)} of {len(runners)} recipes failed: {', '.join(failed)}"
        raise RunError(out, many, "What happened stands above; the same command tries them again")
    return results


def report_failure(runner: Runner, error: Exception) -> None:
    """Say what a recipe failed of; of a fault that is ours or the machine's the folder keeps all that Python knows."""
    line = str(error)
    if not isinstance(error, BertsmithError):
        place = runner.recipe.out / FAILURE
        place.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(place, "".join(traceback.format_exception(error)).encode())
        line = f"{type(error).__name__}: {line.partition(chr(10))[0]} ({place} has it all)"
    CONSOLE.print(f"{runner.name} failed. {line}")
    _free_memory()


# -------------------------------------------------------------------------------------------------------- the running


def load_race(out: Path, rules: Rules, first: str) -> dict[str, Any]:
    """What is known of the race; one that was begun by other rules is not gone on with."""
    told = {"budget": rules.budget, "equal": rules.equal, "points": rules.points}
    if not (out / RESULT).exists():
        where = hardware.describe(hardware.select_device("auto"))
        files.write_json(out / RESULT, {"rules": {**told, "pacemaker": first}, "machine": where, "rows": []})
    known = files.read_json(out / RESULT)
    for name, value in told.items():
        if (before := known["rules"][name]) != value:
            fact = f"was begun with --{name} {before}, and not {value}"
            raise RunError(out, fact, "Choose another folder, or remove this one")
    return known


def check(out: Path, known: dict[str, Any], runner: Runner, rules: Rules) -> None:
    """That what is known of a recipe is of this one, and of this text."""
    if (row := _row(known, runner.name)) is None:
        return
    recipe = with_budget(out, known, runner, rules)
    settle(recipe, MAY_DIFFER)
    if row["data"] != Shards(recipe.data.folder / "train").fingerprint:
        raise RunError(recipe.out, "was raced on another text", "Choose another folder, or give it the same text")


def run_entrant(out: Path, known: dict[str, Any], runner: Runner, rules: Rules) -> dict[str, Any]:
    """The row of a recipe, after it has run to the end."""
    if (row := _row(known, runner.name)) is not None:
        return row
    recipe = with_budget(out, known, runner, rules)
    last = round(pretrain.pretrain(recipe)["step"])
    device = hardware.select_device(recipe.train.device)
    row = {
        "name": runner.name,
        "label": runner.entrant.label,
        "overrides": runner.entrant.overrides,
        "description": _describe(recipe),
        "data": Shards(recipe.data.folder / "train").fingerprint,
        "parameters": runner.cost.parameters,
        "flops": runner.cost.flops,  # for a token
        "peak": hardware.peak_flops(device, torch.bfloat16) if device.type == "cuda" else None,
        "points": collect_points(out, recipe, last, runner.cost, rules),
        "recipe": config.dump(recipe),
    }
    known["rows"].append(row)
    save(out, known)
    for folder in sorted((recipe.out / "checkpoints").glob("step-*"))[:-1]:
        shutil.rmtree(folder)  # their models stand in folders of their own now
    _free_memory()
    return row


def _row(known: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    return next((row for row in known["rows"] if row["name"] == name), None)


def with_budget(out: Path, known: Mapping[str, Any], runner: Runner, rules: Rules) -> Recipe:
    """The recipe for as long as it may run: the same time, or as many updates as the pacemaker's FLOPs pay for."""
    if rules.equal == "time" or runner.name == known["rules"]["pacemaker"]:
        return runner.recipe
    first = _row(known, known["rules"]["pacemaker"])
    if first is None:
        fact = f"has not seen its first recipe to the end, '{known['rules']['pacemaker']}', which sets the FLOPs"
        raise RunError(out, fact, "Name it first")
    steps = round(first["points"][-1]["flops"] / (runner.cost.flops * runner.cost.tokens))
    if steps < rules.points:
        raise _too_short(runner.recipe.out, steps, rules.points)
    return replace(runner.recipe, train=replace(runner.recipe.train, budget=None, steps=steps))


def collect_points(out: Path, recipe: Recipe, last: int, cost: TrainingCost, rules: Rules) -> list[dict[str, Any]]:
    """The models at each part of the budget, by the first checkpoint behind it; and at the end, by the last step's."""
    found: list[dict[str, Any]] = []
    steps = (line for line in log.read(recipe.out / log.NAME) if line["kind"] == "step")
    times = {line["step"]: line["seconds"] for line in steps}  # a checkpoint's own may count a validation, too
    for saved in checkpoint.load_all(recipe.out / "checkpoints"):
        seconds, tokens = times[saved.step], saved.state["tokens"]
        place, number = recipe.out, len(found) + 1
        if saved.step != last:
            share = Clock(recipe.train.extent, training_seconds=seconds).progress(saved.step, 0.0)
            if number == rules.points or share < number / rules.points:
                continue  # saved only because somebody asked it to stop
            place = recipe.out / f"point-{number}"
            pretrain.export(recipe, saved, place)
        took = {"step": saved.step, "tokens": tokens, "seconds": seconds, "flops": tokens * cost.flops}
        found.append({"folder": str((place / "model").relative_to(out)), "scores": {}, **took})
    if len(found) < rules.points:
        raise _too_short(recipe.out, last, rules.points)
    return found


def _too_short(place: Path, steps: int, points: int) -> RunError:
    fact = f"the budget is over after {steps} updates, too soon for {points} points"
    return RunError(place, fact, "Give a longer --budget and another --out, or fewer --points")


def _free_memory() -> None:
    """Leave nothing of a run to the next: neither memory nor compiled steps, of which there may be only so many."""
    gc.collect()
    if torch.cuda.is_available():
        torch.compiler.reset()
        torch.cuda.empty_cache()


# ----------------------------------------------------------------------------------------------- scores and the page


def score(
    row: Mapping[str, Any], recipe: Recipe, out: Path, metrics: Sequence[Metric], save: Callable[[], object]
) -> None:
    """Take the scores that the points of a row do not have yet, and keep each as soon as it is known."""
    for number, point in enumerate(row["points"], 1):
        for measure in metrics:
            if point["scores"].get(measure.name, {}).get("settings") == measure.settings:
                continue
            taken = [value for value in measure.compute(recipe, out / point["folder"]) if math.isfinite(value)]
            point["scores"][measure.name] = {"settings": measure.settings, "values": taken}
            save()
            told = leaderboard.cell(measure.name, taken)
            CONSOLE.print(f"{row['name']}, point {number} of {len(row['points'])}: {measure.name} {told}")
            _free_memory()


def save(out: Path, known: Mapping[str, Any]) -> Results:
    """Write down what is known, as figures and as a page."""
    files.write_json(out / RESULT, known)
    rows, rules = known["rows"], known["rules"]
    many = "one recipe" if len(rows) == 1 else f"{len(rows)} recipes"
    same = (
        f"{format_duration(autoconfig.budget_seconds(rules['budget']))} each"
        if rules["equal"] == "time"
        else "equal FLOPs"
    )
    against: CostAxis = "seconds" if rules["equal"] == "time" else "flops"
    named = [{**row, "name": label} for row, label in zip(rows, labels(rows), strict=True)]
    shared = f"For all: {' '.join(shared_overrides(rows))}" if len(rows) > 1 and shared_overrides(rows) else ""
    title = f"The race: {many}, {same}"
    results = leaderboard.leaderboard_results(title, named, against, _protocol(known), subtitle=shared)
    files.write_atomic(out / REPORT, table.page(results).encode())
    return results


def _protocol(known: Mapping[str, Any]) -> dict[str, str]:
    """How it was done, in words."""
    rows, rules = known["rows"], known["rules"]
    told = {"equal": f"{format_duration(autoconfig.budget_seconds(rules['budget']))} of training each"}
    if rules["equal"] == "flops":
        budget = format_duration(autoconfig.budget_seconds(rules["budget"]))
        told["equal"] = f"the FLOPs that {rules['pacemaker']} spends in {budget}"
    told["clock"] = "loader, steps, log and saving; vocabulary, shards, compilation and scores lie outside"
    asked = {
        name: found["settings"] for row in rows for point in row["points"] for name, found in point["scores"].items()
    }
    for name, how in asked.items():
        match name:
            case leaderboard.BITS_PER_BYTE:
                told[name] = (
                    f"of held-out text in sequences as long as in training: {how['mask_rate']:.0%} of it masked, or "
                    "read from left to right, which is harder; a model without a language model head has none"
                )
            case leaderboard.BLIMP:
                most = "all pairs" if how["limit"] is None else f"{how['limit']} pairs"
                told[name] = f"minimal pairs whose good sentence is the likelier one, {most} of each phenomenon"
            case _:
                seeds = "one seed" if how["seeds"] == 1 else f"{how['seeds']} seeds"
                tuning = f"; {' '.join(how['overrides'])}" if how["overrides"] else ""
                told[name] = f"fine-tuned and scored on the dev set, {seeds}{tuning}"
    for label, row in zip(labels(rows), rows, strict=True):
        others = own_overrides(row, rows)
        told[label] = row["description"] + (f"; {' '.join(others)}" if others else "")
    return {**told, **known["machine"]}


def _describe(recipe: Recipe) -> str:
    """A recipe in a line."""
    shape, train = recipe.model.settings, Shards(recipe.data.folder / "train")
    return (
        f"{recipe.model.kind}, {shape.layers} layers of width {shape.width}; objective {recipe.objective.kind}; "
        f"{train.vocabulary:,} pieces, sequences of {recipe.data.max_length}; {train.words:,} words of text"
    )
