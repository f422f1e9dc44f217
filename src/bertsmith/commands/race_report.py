"""The report of a race: race.json with every figure, and a page of scores against compute with its protocol."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.commands.entrants import labels, own_overrides, shared_overrides
from bertsmith.data.shards.shards import Shards
from bertsmith.insight import leaderboard, table
from bertsmith.insight.leaderboard import CostAxis
from bertsmith.insight.table import Results
from bertsmith.recipe import Recipe
from bertsmith.runs import autoconfig
from bertsmith.train.clock import format_duration

RESULT, REPORT = "race.json", "report.html"


def save(out: Path, state: Mapping[str, Any]) -> Results:
    """Write the state of a race as JSON and as a page."""
    files.write_json(out / RESULT, state)
    rows, equal_time = state["rows"], state["rules"]["equal"] == "time"
    count = "one recipe" if len(rows) == 1 else f"{len(rows)} recipes"
    compute = f"{_budget(state)} each" if equal_time else "equal FLOPs"
    cost_axis: CostAxis = "seconds" if equal_time else "flops"
    labelled = [{**row, "name": label} for row, label in zip(rows, labels(rows), strict=True)]
    shared = f"For all: {' '.join(shared_overrides(rows))}" if len(rows) > 1 and shared_overrides(rows) else ""
    title = f"The race: {count}, {compute}"
    results = leaderboard.leaderboard_results(
        title, labelled, cost_axis, _protocol(state), subtitle=shared, unit=state["unit"]
    )
    files.write_atomic(out / REPORT, table.page(results).encode())
    return results


def _budget(state: Mapping[str, Any]) -> str:
    return format_duration(autoconfig.budget_seconds(state["rules"]["budget"]))


def _protocol(state: Mapping[str, Any]) -> dict[str, str]:
    """How the scores were computed, in plain words."""
    rows, rules = state["rows"], state["rules"]
    protocol = {"equal": f"{_budget(state)} of training each"}
    if rules["equal"] == "flops":
        protocol["equal"] = f"the FLOPs that {rules['pacemaker']} spends in {_budget(state)}"
    protocol["clock"] = "data loading, steps, logging and saving; not preparing the data, compilation and scoring"
    for row in rows:
        for point in row["points"]:
            for name, score in point["scores"].items():
                protocol[name] = _describe_metric(name, score["settings"])
    for label, row in zip(labels(rows), rows, strict=True):
        overrides = own_overrides(row, rows)
        protocol[label] = row["description"] + (f"; {' '.join(overrides)}" if overrides else "")
    return {**protocol, **state["machine"]}


def _describe_metric(name: str, settings: Mapping[str, Any]) -> str:
    match name:
        case leaderboard.BITS_PER_BYTE:
            return (
                f"of held-out text in sequences as long as in training: {settings['mask_rate']:.0%} of tokens masked, "
                "or all predicted from left to right, which is harder; a model without a language model head has none"
            )
        case leaderboard.BLIMP:
            pairs = "all pairs" if settings["limit"] is None else f"{settings['limit']} pairs"
            return f"minimal pairs whose acceptable sentence is the likelier one, {pairs} of each phenomenon"
        case _:
            seeds = "one seed" if settings["seeds"] == 1 else f"{settings['seeds']} seeds"
            overrides = f"; {' '.join(settings['overrides'])}" if settings["overrides"] else ""
            return f"fine-tuned and scored on the dev set, {seeds}{overrides}"


def describe(recipe: Recipe) -> str:
    """A recipe in one line: model, objective, vocabulary, sequence length and text."""
    shape, train = recipe.model.settings, Shards(recipe.data.local / "train")
    return (
        f"{recipe.model.kind}, {shape.layers} layers of width {shape.width}; objective {recipe.objective.kind}; "
        f"vocabulary of {train.vocabulary:,}, sequences of {recipe.data.max_length}; {train.words:,} words of text"
    )
