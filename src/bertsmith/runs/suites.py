"""Suites: one command that measures a model in every way of a benchmark, and goes on where it was stopped."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith import config, files, terminal
from bertsmith.data.labelled import glue as tasks
from bertsmith.errors import FolderError, RecipeError, TextError, suggest
from bertsmith.inference import minimal_pairs
from bertsmith.inference.few_shot import FewShotClassifier, FewShotConfig
from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.inference.prompt import DemonstrationPool, Template, label_words
from bertsmith.insight import probes as probing
from bertsmith.insight import table
from bertsmith.insight.few_shot import few_shot_results
from bertsmith.insight.table import Results
from bertsmith.models.transformer import Transformer
from bertsmith.random_bits import permute
from bertsmith.runs import finetuning, task_data, task_recipe
from bertsmith.train import hardware
from bertsmith.train.clock import format_duration

CONSOLE = terminal.console()
LAYERS = {  # Devlin et al. 2018, table 7
    "embeddings": "embeddings",
    "second_to_last": "second to last",
    "last": "last",
    "sum_last_four": "sum of the last four",
    "concatenate_last_four": "the last four side by side",
    "sum_all": "sum of all",
}
FEATURE_OVERRIDES = [
    "optimizer.learning_rate=1e-3",
    "optimizer.weight_decay=0.0",
    "train.epochs=5",
    "train.evaluations=5",
]
NO_CHECKPOINTS = ["train.checkpoints=0"]  # what takes seconds is run again rather than saved


def run_suite(
    suite: str, model: Path, data: Path, out: Path, *, seeds: int, limit: int | None, overrides: Sequence[str]
) -> Results:
    """Run a suite, and leave its table in the folder."""
    if suite not in SUITES:
        raise RecipeError("--suite", f"there is no suite '{suite}'", suggest(suite, SUITES))
    out.mkdir(parents=True, exist_ok=True)
    results = SUITES[suite](model, data, out, seeds, limit, overrides)
    table.write(out, suite, results)
    CONSOLE.print(results.to_table())
    CONSOLE.print(f"table {out / suite}.html and .json")
    return results


def glue(model: Path, data: Path, out: Path, seeds: int, limit: int | None, overrides: Sequence[str]) -> Results:
    """Every task of GLUE that is there, fine-tuned and scored on its dev set."""
    there = glue_folders(data)
    began, found, rows = time.monotonic(), {}, []
    for name, folder in there.items():
        # No task is named: its files say that texts are to be classified, and a T5 that it writes the class.
        changes = [*NO_CHECKPOINTS, *overrides]
        recipe = task_recipe.build_recipe(
            model, folder, out / name, dev=None, task=None, seeds=seeds, overrides=changes
        )
        result = finetuning.finetune(recipe)
        found[name] = result
        rows.append(_row(name, result))
    means = [result["summary"][result["headline"]]["mean"] for result in found.values()]
    rows.append(["mean", "", f"{100 * sum(means) / len(means):.1f}", "", "", ""])
    return Results(
        title=f"GLUE, dev sets: {_model_name(model)}",
        columns=["task", "measure", "mean", "95 % interval", "deviation", "seconds a seed"],
        rows=rows,
        protocol=_protocol(next(iter(found.values())), seeds, time.monotonic() - began),
        figures=found,
    )


def layers(model: Path, data: Path, out: Path, seeds: int, limit: int | None, overrides: Sequence[str]) -> Results:
    """Tags read by a Bi-LSTM off the frozen vectors of each choice of layers."""
    began, found, rows = time.monotonic(), {}, []
    for layer, words in LAYERS.items():
        chosen = [*FEATURE_OVERRIDES, *NO_CHECKPOINTS, f"task.layers={layer}", *overrides]
        recipe = task_recipe.build_recipe(
            model, data, out / layer, dev=None, task="features", seeds=seeds, overrides=chosen
        )
        result = finetuning.finetune(recipe)
        found[layer] = result
        rows.append(_row(words, result))
    return Results(
        title=f"Features from layers: {_model_name(model)}",
        columns=["layers", "measure", "mean", "95 % interval", "deviation", "seconds a seed"],
        rows=rows,
        protocol=_protocol(next(iter(found.values())), seeds, time.monotonic() - began),
        figures=found,
    )


def blimp(model: Path, data: Path, out: Path, seeds: int, limit: int | None, overrides: Sequence[str]) -> Results:
    """Minimal pairs: how often the good sentence is the likelier one."""
    _refuse_overrides(overrides)
    opened = load(model, device=hardware.select_device("auto").type)
    pairs = minimal_pairs.read_minimal_pairs(data, limit)
    began = time.monotonic()
    judged = minimal_pairs.evaluate(opened.language_model(), opened.tokenizer, pairs, device=opened.device)
    took = time.monotonic() - began
    rows = [[name, f"{100 * share:.1f}"] for name, share in sorted(judged.phenomena.items())]
    rows += [[f"all of {name}", f"{100 * share:.1f}"] for name, share in sorted(judged.fields.items())]
    rows.append(["all", f"{100 * judged.accuracy:.1f}"])
    hidden = "pseudo-log-likelihood, later pieces of a word hidden with the one that is scored"
    protocol = {
        "score": "log-likelihood from left to right" if opened.trunk.config.causal else hidden,
        "pairs": f"{len(pairs):,}, of them {judged.ties:,} with the same score, counted as wrong",
        "time": format_duration(took),
        **hardware.describe(opened.device),
    }
    return Results(
        title=f"Minimal pairs judged right: {_model_name(model)}",
        columns=["phenomenon", "% right"],
        rows=rows,
        protocol=protocol,
        figures={**judged.to_dict(), "seconds": took},
    )


def probes(model: Path, data: Path, out: Path, seeds: int, limit: int | None, overrides: Sequence[str]) -> Results:
    """One matrix on each layer: what can be read off it."""
    _refuse_overrides(overrides)
    recipe = task_recipe.build_recipe(model, data, out, dev=None, task=None, seeds=1, overrides=[])
    kind: Any = recipe.task.kind
    if kind not in ("tag", "classify"):
        raise TextError(data, f"is a file to {kind}", "Probe with a tagging or a classification file")
    examples = task_data.read(recipe)
    opened = load(model, device=hardware.select_device("auto").type)
    both = examples.train.examples, examples.dev.examples
    if not isinstance(opened.trunk, Transformer):
        raise FolderError(model, "has no layers of attention to probe", "Take a network such as BERT's")
    found = probing.probe(opened.trunk, opened.tokenizer, *both, kind, limit=limit or 20_000)
    probing.draw(found, out / "probes.svg")
    rows = [[str(layer), f"{100 * share:.1f}"] for layer, share in enumerate(found.accuracy)]
    rows.append(["the commonest label", f"{100 * found.majority:.1f}"])
    return Results(
        title=f"Linear probes: {_model_name(model)}",
        columns=["layer", "% right"],
        rows=rows,
        protocol={"data": examples.train.description, **hardware.describe(opened.device)},
        figures=found.to_dict(),
        chart=(out / "probes.svg").read_text(encoding="utf-8"),
    )


def few_shot(model: Path, data: Path, out: Path, seeds: int, limit: int | None, overrides: Sequence[str]) -> Results:
    """Classes told by examples in the prompt alone, with more and more of them. Brown et al. 2020, section 2.1."""
    columns = [text for text in overrides if text.startswith("data.")]
    own = [text for text in overrides if text not in columns]
    how = config.build(config.override({}, own), FewShotConfig, "evaluate")
    opened, began = load(model, device=hardware.select_device("auto").type), time.monotonic()
    opened.causal_lm()  # whoever has none hears of it before any data is read
    found = {}
    for name, place in _classification_tasks(data).items():
        recipe = task_recipe.build_recipe(
            model, place, out / name, dev=None, task="classify", seeds=1, overrides=columns
        )
        if recipe.task.settings.problem != "single_label":
            raise TextError(place, "its labels are no classes", "Shots tell one class of several")
        examples = task_data.read(recipe)
        for line in task_data.summary_lines(examples):
            CONSOLE.print(line)
        found[name] = _few_shot_task(name, opened, examples, how, out / name, seeds, limit)
    protocol = {
        "said": "the label whose words are likeliest after the prompt",
        "shots": "examples drawn anew for each text and seed, the classes in turn; fewer where more do not fit",
        "±": "half of the 95 % interval of the mean over seeds",
        **{f"{name} is asked": f"{asked['texts']:,} times, as {asked['template']!r}" for name, asked in found.items()},
        **{f"{name} is answered": ", ".join(asked["words"].values()) for name, asked in found.items()},
        "seeds": str(seeds),
        "time": format_duration(time.monotonic() - began),
        **hardware.describe(opened.device),
    }
    return few_shot_results(f"By examples in the prompt: {_model_name(model)}", found, protocol)


def _classification_tasks(data: Path) -> dict[str, Path]:
    """A labelled file or folder by its name; or all tasks of GLUE in a folder that have classes."""
    task = tasks.recognise(data)
    if task is None and data.is_dir() and any(tasks.recognise(path) for path in data.iterdir() if path.is_dir()):
        return {name: folder for name, folder in glue_folders(data).items() if tasks.GLUE[name].classes}
    return {task.name if task else data.resolve().name.partition(".")[0]: data}


def _few_shot_task(
    name: str,
    opened: Model,
    data: task_data.TaskData,
    shots_config: FewShotConfig,
    out: Path,
    seeds: int,
    limit: int | None,
) -> dict[str, Any]:
    """One task, as often as there are numbers of shots and seeds, and what guessing would score."""
    train, dev = list[Any](data.train.examples), list[Any](data.dev.examples)
    if limit is not None and limit < 1:
        raise RecipeError("--limit", f"{limit} texts are none", "Give at least 1")
    chosen = permute(np.arange(min(limit or len(dev), len(dev))), len(dev), 0)
    asked = {number: dev[number] for number in sorted(chosen.tolist())}
    template, words = (
        Template.of(shots_config.template, len(train[0].texts)),
        label_words(data.labels, shots_config.label_words, name),
    )
    made, pool = FewShotClassifier(opened.causal_lm(), opened.tokenizer, words, template), DemonstrationPool(train)
    settings = {"template": template.pattern, "words": words, "texts": len(asked)}
    weights = [files.digest(path).sha256 for path in sorted(Path(opened.path).glob("*.safetensors"))]
    same = {**settings, "calibrate": shots_config.calibrate, "data": data.fingerprint, "weights": weights}
    same["tokenizer"] = opened.tokenizer.fingerprint
    runs = _saved_runs(out / "runs.json", same)
    wanted = [
        (count, seed) for count in shots_config.shots for seed in range(seeds if count else 1)
    ]  # none are always the same
    for count, seed in wanted:
        if (count, seed) not in runs:
            figures = made.evaluate(asked, pool, count, seed, shots_config.calibrate)
            runs[count, seed] = {"shots": count, "seed": seed, **figures}
            files.write_json(out / "runs.json", {"settings": same, "runs": list(runs.values())})
            CONSOLE.print(f"{name}, shots {count}, seed {seed}: {figures['accuracy']:.1%} right")
    commonest = Counter(example.label for example in train).most_common(1)[0][0]
    guessed = sum(example.label == commonest for example in asked.values()) / len(asked)
    return {**settings, "chance": 1 / len(words), "majority": guessed, "runs": [runs[one] for one in wanted]}


def _saved_runs(path: Path, settings: Mapping[str, Any]) -> dict[tuple[int, int], Any]:
    """What was measured before with the same settings, by its shots and seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = files.read_json(path) if path.exists() else {}
    return {(run["shots"], run["seed"]): run for run in kept["runs"]} if kept.get("settings") == settings else {}


Suite = Callable[[Path, Path, Path, int, int | None, Sequence[str]], Results]
SUITES: dict[str, Suite] = {"glue": glue, "layers": layers, "blimp": blimp, "probes": probes, "few-shot": few_shot}


def _model_name(model: Path) -> str:
    """A model by its folder, or by its run's where all models are called `model`."""
    whole = model.resolve()
    return whole.parent.name if whole.name == "model" else whole.name


def glue_folders(data: Path) -> dict[str, Path]:
    """GLUE's folders that hold a training file, in GLUE's own order."""
    if not data.is_dir():
        raise TextError(data, "is not a folder", "Name the folder that holds CoLA, SST-2 and the others")
    known = {}
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        task = tasks.recognise(folder)
        if task is not None and {"train", "dev"} <= tasks.split_files(folder, task).keys():
            known[task.name] = folder
    if not known:
        raise TextError(data, "holds no task of GLUE", f"Known: {', '.join(tasks.GLUE)}")
    return {name: known[name] for name in tasks.GLUE if name in known}


def _row(name: str, result: Mapping[str, Any]) -> list[str]:
    headline = result["headline"]
    found = result["summary"][headline]
    ends = "" if found["low"] is None else f"{100 * found['low']:.1f} to {100 * found['high']:.1f}"
    seconds = [one["metrics"]["seconds"] for one in result["runs"]]
    cells = [headline.replace("_", " "), f"{100 * found['mean']:.1f}", ends, f"{100 * found['deviation']:.1f}"]
    return [name, *cells, f"{sum(seconds) / len(seconds):.1f}"]


def _protocol(result: Mapping[str, Any], seeds: int, seconds: float) -> dict[str, str]:
    """What all rows have in common, by the first of them."""
    protocol = result["protocol"]
    return {
        "seeds": str(seeds),
        "weights": protocol["selection"],
        "time": format_duration(seconds),
        "recipe of the first": protocol["recipe"],
        **protocol["machine"],
    }


def _refuse_overrides(overrides: Sequence[str]) -> None:
    if overrides:
        raise RecipeError(f"'{overrides[0]}'", "this suite trains nothing that could be changed so")
