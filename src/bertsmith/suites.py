"""Suites: one command that measures a model in every way of a benchmark, and goes on where it was stopped."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bertsmith import lesson, tune
from bertsmith.data import glue as tasks
from bertsmith.errors import RecipeError, TextError, nearest
from bertsmith.insight import probes as probing
from bertsmith.insight import table
from bertsmith.insight.table import Results
from bertsmith.train import machine
from bertsmith.train.clock import spoken
from bertsmith.use import minimal
from bertsmith.use.load import load

SAY = Console(highlight=False, soft_wrap=True)
LAYERS = {  # Devlin et al. 2018, table 7
    "embeddings": "embeddings",
    "second_to_last": "second to last",
    "last": "last",
    "sum_last_four": "sum of the last four",
    "concatenate_last_four": "the last four side by side",
    "sum_all": "sum of all",
}
FEATURES = ["optimizer.rate=1e-3", "optimizer.decay=0.0", "train.epochs=5", "train.evaluations=5"]
QUICK = ["train.saves=0"]  # what takes seconds is run again rather than saved


def evaluate(
    suite: str, model: Path, data: Path, out: Path, *, seeds: int, most: int | None, overrides: Sequence[str]
) -> Results:
    """Run a suite, and leave its table in the folder."""
    if suite not in SUITES:
        raise RecipeError("--suite", f"there is no suite '{suite}'", nearest(suite, SUITES))
    out.mkdir(parents=True, exist_ok=True)
    results = SUITES[suite](model, data, out, seeds, most, overrides)
    table.write(out, suite, results)
    SAY.print(results.printed())
    SAY.print(f"table {out / suite}.html and .json")
    return results


def glue(model: Path, data: Path, out: Path, seeds: int, most: int | None, overrides: Sequence[str]) -> Results:
    """Every task of GLUE that is there, fine-tuned and scored on its dev set."""
    there = _glue_folders(data)
    began, found, rows = time.monotonic(), {}, []
    for name, folder in there.items():
        recipe = tune.recipe(
            model, folder, out / name, dev=None, task="classify", seeds=seeds, overrides=[*QUICK, *overrides]
        )
        result = tune.finetune(recipe)
        found[name] = result
        rows.append(_row(name, result))
    means = [result["summary"][result["headline"]]["mean"] for result in found.values()]
    rows.append(["mean", "", f"{100 * sum(means) / len(means):.1f}", "", "", ""])
    return Results(
        title=f"GLUE, dev sets: {_named(model)}",
        columns=["task", "measure", "mean", "95 % interval", "deviation", "seconds a seed"],
        rows=rows,
        protocol=_protocol(next(iter(found.values())), seeds, time.monotonic() - began),
        figures=found,
    )


def layers(model: Path, data: Path, out: Path, seeds: int, most: int | None, overrides: Sequence[str]) -> Results:
    """Tags read by a Bi-LSTM off the frozen vectors of each choice of layers."""
    began, found, rows = time.monotonic(), {}, []
    for layer, words in LAYERS.items():
        chosen = [*FEATURES, *QUICK, f"task.layers={layer}", *overrides]
        recipe = tune.recipe(model, data, out / layer, dev=None, task="features", seeds=seeds, overrides=chosen)
        result = tune.finetune(recipe)
        found[layer] = result
        rows.append(_row(words, result))
    return Results(
        title=f"Features from layers: {_named(model)}",
        columns=["layers", "measure", "mean", "95 % interval", "deviation", "seconds a seed"],
        rows=rows,
        protocol=_protocol(next(iter(found.values())), seeds, time.monotonic() - began),
        figures=found,
    )


def blimp(model: Path, data: Path, out: Path, seeds: int, most: int | None, overrides: Sequence[str]) -> Results:
    """Minimal pairs: how often the good sentence is the likelier one."""
    _nothing_to_change(overrides)
    opened = load(model, device=machine.device("auto").type)
    pairs = minimal.minimal_pairs(data, most)
    began = time.monotonic()
    judged = minimal.judge(opened.masked(), opened.tokenizer, pairs, device=opened.device)
    took = time.monotonic() - began
    rows = [[name, f"{100 * share:.1f}"] for name, share in sorted(judged.phenomena.items())]
    rows += [[f"all of {name}", f"{100 * share:.1f}"] for name, share in sorted(judged.fields.items())]
    rows.append(["all", f"{100 * judged.accuracy:.1f}"])
    protocol = {
        "score": "pseudo-log-likelihood, later pieces of a word hidden with the one that is scored",
        "pairs": f"{len(pairs):,}, of them {judged.ties:,} with the same score, counted as wrong",
        "time": spoken(took),
        **machine.describe(opened.device),
    }
    return Results(
        title=f"Minimal pairs judged right: {_named(model)}",
        columns=["phenomenon", "% right"],
        rows=rows,
        protocol=protocol,
        figures={**judged.plain(), "seconds": took},
    )


def probes(model: Path, data: Path, out: Path, seeds: int, most: int | None, overrides: Sequence[str]) -> Results:
    """One matrix on each layer: what can be read off it."""
    _nothing_to_change(overrides)
    recipe = tune.recipe(model, data, out, dev=None, task=None, seeds=1, overrides=[])
    kind: Any = recipe.task.kind
    if kind not in ("tag", "classify"):
        raise TextError(data, f"is a file to {kind}", "Probe with a tagging or a classification file")
    examples = lesson.read(recipe)
    opened = load(model, device=machine.device("auto").type)
    both = examples.train.examples, examples.dev.examples
    found = probing.probe(opened.trunk, opened.tokenizer, *both, kind, most=most or 20_000)
    probing.draw(found, out / "probes.svg")
    rows = [[str(layer), f"{100 * share:.1f}"] for layer, share in enumerate(found.accuracy)]
    rows.append(["the commonest label", f"{100 * found.majority:.1f}"])
    return Results(
        title=f"Linear probes: {_named(model)}",
        columns=["layer", "% right"],
        rows=rows,
        protocol={"data": examples.train.found, **machine.describe(opened.device)},
        figures=found.plain(),
        picture=(out / "probes.svg").read_text(encoding="utf-8"),
    )


Suite = Callable[[Path, Path, Path, int, int | None, Sequence[str]], Results]
SUITES: dict[str, Suite] = {"glue": glue, "layers": layers, "blimp": blimp, "probes": probes}


def _named(model: Path) -> str:
    """A model by its folder, or by its run's where all models are called `model`."""
    whole = model.resolve()
    return whole.parent.name if whole.name == "model" else whole.name


def _glue_folders(data: Path) -> dict[str, Path]:
    """GLUE's folders that hold a training file, in GLUE's own order."""
    if not data.is_dir():
        raise TextError(data, "is not a folder", "Name the folder that holds CoLA, SST-2 and the others")
    known = {}
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        task = tasks.recognise(folder)
        if task is not None and {"train", "dev"} <= tasks.files(folder, task).keys():
            known[task.name] = folder
    if not known:
        raise TextError(data, "holds no task of GLUE", f"Known: {', '.join(tasks.GLUE)}")
    return {name: known[name] for name in tasks.GLUE if name in known}


def _row(name: str, result: Mapping[str, Any]) -> list[str]:
    headline = result["headline"]
    found = result["summary"][headline]
    ends = "" if found["low"] is None else f"{100 * found['low']:.1f} to {100 * found['high']:.1f}"
    seconds = [one["figures"]["seconds"] for one in result["runs"]]
    cells = [headline.replace("_", " "), f"{100 * found['mean']:.1f}", ends, f"{100 * found['deviation']:.1f}"]
    return [name, *cells, f"{sum(seconds) / len(seconds):.1f}"]


def _protocol(result: Mapping[str, Any], seeds: int, took: float) -> dict[str, str]:
    """What all rows have in common, by the first of them."""
    protocol = result["protocol"]
    return {
        "seeds": str(seeds),
        "weights": protocol["selection"],
        "time": spoken(took),
        "recipe of the first": protocol["recipe"],
        **protocol["machine"],
    }


def _nothing_to_change(overrides: Sequence[str]) -> None:
    if overrides:
        raise RecipeError(f"'{overrides[0]}'", "this suite trains nothing that could be changed so")
