"""Benchmark suites: GLUE, features by layer, BLiMP, linear probes, few-shot prompts. An interrupted suite resumes."""

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
from bertsmith.inference.load import load_text_model
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
    "concatenate_last_four": "the last four, concatenated",
    "sum_all": "sum of all",
}
FEATURE_OVERRIDES = [
    "optimizer.learning_rate=1e-3",
    "optimizer.weight_decay=0.0",
    "train.epochs=5",
    "train.evaluations=5",
]
SEEDS = 3  # of a suite that trains or draws, by default
NO_CHECKPOINTS = ["train.checkpoints=0"]  # a run of seconds is repeated rather than resumed


def run_suite(
    suite: str, model: Path, data: Path, out: Path, *, seeds: int | None, limit: int | None, overrides: Sequence[str]
) -> Results:
    """Run a suite, and write its table to the output folder."""
    if suite not in SUITES:
        raise RecipeError("--suite", f"there is no suite '{suite}'", suggest(suite, SUITES))
    for option, given in (("--seeds", seeds), ("--limit", limit)):
        if given is not None and option in WITHOUT.get(suite, ()):
            raise RecipeError(option, f"the suite {suite} has no such option", "Leave it out")
    out.mkdir(parents=True, exist_ok=True)
    results = SUITES[suite](model, data, out, SEEDS if seeds is None else seeds, limit, overrides)
    table.write(out, suite, results)
    CONSOLE.print(results.to_table())
    CONSOLE.print(f"table {out / suite}.html and .json")
    return results


def glue(model: Path, data: Path, out: Path, seeds: int, limit: int | None, overrides: Sequence[str]) -> Results:
    """Fine-tune on every GLUE task in the folder, and score on its dev set."""
    began, results, rows = time.monotonic(), {}, []
    for name, folder in glue_folders(data).items():
        # No task is given: an encoder classifies, and T5 generates the class.
        changes = [*NO_CHECKPOINTS, *overrides]
        recipe = task_recipe.build_recipe(
            model, folder, out / name, dev=None, task=None, seeds=seeds, overrides=changes
        )
        result = finetuning.finetune(recipe)
        results[name] = result
        rows.append(_row(name, result))
    means = [result["summary"][result["headline"]]["mean"] for result in results.values()]
    rows.append(["mean", "", f"{100 * sum(means) / len(means):.1f}", "", "", ""])
    return Results(
        title=f"GLUE, dev sets: {_model_name(model)}",
        columns=["task", "metric", "mean", "95 % interval", "deviation", "seconds per seed"],
        rows=rows,
        protocol=_protocol(next(iter(results.values())), seeds, time.monotonic() - began),
        figures=results,
    )


def layers(model: Path, data: Path, out: Path, seeds: int, limit: int | None, overrides: Sequence[str]) -> Results:
    """Feature-based tagging: a Bi-LSTM on the frozen vectors of each choice of layers."""
    began, results, rows = time.monotonic(), {}, []
    for layer, label in LAYERS.items():
        changed = [*FEATURE_OVERRIDES, *NO_CHECKPOINTS, f"task.layers={layer}", *overrides]
        recipe = task_recipe.build_recipe(
            model, data, out / layer, dev=None, task="features", seeds=seeds, overrides=changed
        )
        result = finetuning.finetune(recipe)
        results[layer] = result
        rows.append(_row(label, result))
    return Results(
        title=f"Features from layers: {_model_name(model)}",
        columns=["layers", "metric", "mean", "95 % interval", "deviation", "seconds per seed"],
        rows=rows,
        protocol=_protocol(next(iter(results.values())), seeds, time.monotonic() - began),
        figures=results,
    )


def blimp(model: Path, data: Path, out: Path, seeds: int, limit: int | None, overrides: Sequence[str]) -> Results:
    """Minimal pairs: the share in which the acceptable sentence is the likelier one."""
    _refuse_overrides(overrides)
    opened = load_text_model(model, device=hardware.select_device("auto").type)
    pairs = minimal_pairs.read_minimal_pairs(data, limit)
    began = time.monotonic()
    scores = minimal_pairs.evaluate(opened.language_model(), opened.tokenizer, pairs, device=opened.device)
    seconds = time.monotonic() - began
    rows = [[name, f"{100 * share:.1f}"] for name, share in sorted(scores.phenomena.items())]
    rows += [[f"all of {name}", f"{100 * share:.1f}"] for name, share in sorted(scores.fields.items())]
    rows.append(["all", f"{100 * scores.accuracy:.1f}"])
    pseudo = "pseudo-log-likelihood; the later tokens of a word are masked with the scored one"
    protocol = {
        "score": "log-likelihood, left to right" if opened.trunk.config.causal else pseudo,
        "pairs": f"{len(pairs):,}, of them {scores.ties:,} with the same score, counted as wrong",
        "time": format_duration(seconds),
        **hardware.describe(opened.device),
    }
    return Results(
        title=f"Minimal pairs (BLiMP): {_model_name(model)}",
        columns=["phenomenon", "accuracy, %"],
        rows=rows,
        protocol=protocol,
        figures={**scores.to_dict(), "seconds": seconds},
    )


def probes(model: Path, data: Path, out: Path, seeds: int, limit: int | None, overrides: Sequence[str]) -> Results:
    """Linear probes: a linear classifier on the frozen vectors of each layer."""
    _refuse_overrides(overrides)
    recipe = task_recipe.build_recipe(model, data, out, dev=None, task=None, seeds=1, overrides=[])
    kind: Any = recipe.task.kind
    if kind not in ("tag", "classify"):
        raise TextError(data, f"is a file for the task '{kind}'", "Probe with a tagging or a classification file")
    examples = task_data.read(recipe)
    opened = load_text_model(model, device=hardware.select_device("auto").type)
    sets = examples.train.examples, examples.dev.examples
    if not isinstance(opened.trunk, Transformer):
        raise FolderError(model, "is not a transformer", "Use a network such as BERT")
    probed = probing.probe(opened.trunk, opened.tokenizer, *sets, kind, limit=limit or 20_000)
    probing.draw(probed, out / "probes.svg")
    rows = [[str(layer), f"{100 * share:.1f}"] for layer, share in enumerate(probed.accuracy)]
    rows.append(["most frequent label", f"{100 * probed.majority:.1f}"])
    return Results(
        title=f"Linear probes: {_model_name(model)}",
        columns=["layer", "accuracy, %"],
        rows=rows,
        protocol={"data": examples.train.description, **hardware.describe(opened.device)},
        figures=probed.to_dict(),
        chart=probing.picture(probed),
    )


def few_shot(model: Path, data: Path, out: Path, seeds: int, limit: int | None, overrides: Sequence[str]) -> Results:
    """Few-shot classification: examples in the prompt, in several numbers. Brown et al. 2020, section 2.1."""
    columns = [text for text in overrides if text.startswith("data.")]
    own = [text for text in overrides if text not in columns]
    settings = config.build(config.override({}, own), FewShotConfig, "evaluate")
    opened, began = load_text_model(model, device=hardware.select_device("auto").type), time.monotonic()
    opened.causal_lm()  # a model that is not causal is refused before any data is read
    results = {}
    for name, path in _classification_tasks(data).items():
        recipe = task_recipe.build_recipe(
            model, path, out / name, dev=None, task="classify", seeds=1, overrides=columns
        )
        if recipe.task.settings.problem != "single_label":
            raise TextError(path, "its labels are not classes", "Few-shot prompts predict one class of several")
        examples = task_data.read(recipe)
        for line in task_data.summary_lines(examples):
            CONSOLE.print(line)
        results[name] = _few_shot_task(name, opened, examples, settings, out / name, seeds, limit)
    protocol = {
        "prediction": "the label whose words are likeliest after the prompt",
        "shots": "examples drawn for each text and seed, the classes in turn; fewer if more do not fit",
        "±": "half of the 95 % interval of the mean over seeds",
        **{f"{name}, prompt": f"{task['texts']:,} texts, as {task['template']!r}" for name, task in results.items()},
        **{f"{name}, label words": ", ".join(task["words"].values()) for name, task in results.items()},
        "seeds": str(seeds),
        "time": format_duration(time.monotonic() - began),
        **hardware.describe(opened.device),
    }
    return few_shot_results(f"Few-shot prompts: {_model_name(model)}", results, protocol)


def _classification_tasks(data: Path) -> dict[str, Path]:
    """A labelled file or folder by its name, or all classification tasks in a folder of GLUE."""
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
    """One task with each number of shots and each seed, and its two baselines."""
    train, dev = list[Any](data.train.examples), list[Any](data.dev.examples)
    if limit is not None and limit < 1:
        raise RecipeError("--limit", f"{limit} is too few", "Give at least 1")
    chosen = permute(np.arange(min(limit or len(dev), len(dev))), len(dev), 0)
    texts = {number: dev[number] for number in sorted(chosen.tolist())}
    template, words = (
        Template.of(shots_config.template, len(train[0].texts)),
        label_words(data.labels, shots_config.label_words, name),
    )
    classifier, pool = (
        FewShotClassifier(opened.causal_lm(), opened.tokenizer, words, template),
        DemonstrationPool(train),
    )
    settings = {"template": template.pattern, "words": words, "texts": len(texts)}
    weights = [files.digest(path).sha256 for path in sorted(Path(opened.path).glob("*.safetensors"))]
    same = {**settings, "calibrate": shots_config.calibrate, "data": data.fingerprint, "weights": weights}
    same["tokenizer"] = opened.tokenizer.fingerprint
    runs = _saved_runs(out / "runs.json", same)
    # Without shots all seeds are the same.
    wanted = [(count, seed) for count in shots_config.shots for seed in range(seeds if count else 1)]
    for count, seed in wanted:
        if (count, seed) not in runs:
            figures = classifier.evaluate(texts, pool, count, seed, shots_config.calibrate)
            runs[count, seed] = {"shots": count, "seed": seed, **figures}
            files.write_json(out / "runs.json", {"settings": same, "runs": list(runs.values())})
            CONSOLE.print(f"{name}, shots {count}, seed {seed}: {figures['accuracy']:.1%} correct")
    majority = Counter(example.label for example in train).most_common(1)[0][0]
    majority_share = sum(example.label == majority for example in texts.values()) / len(texts)
    return {**settings, "chance": 1 / len(words), "majority": majority_share, "runs": [runs[one] for one in wanted]}


def _saved_runs(path: Path, settings: Mapping[str, Any]) -> dict[tuple[int, int], Any]:
    """Earlier runs with the same settings, by shots and seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = files.read_json(path) if path.exists() else {}
    return {(run["shots"], run["seed"]): run for run in saved["runs"]} if saved.get("settings") == settings else {}


Suite = Callable[[Path, Path, Path, int, int | None, Sequence[str]], Results]
SUITES: dict[str, Suite] = {"glue": glue, "layers": layers, "blimp": blimp, "probes": probes, "few-shot": few_shot}
WITHOUT = {"glue": {"--limit"}, "layers": {"--limit"}, "blimp": {"--seeds"}, "probes": {"--seeds"}}  # options


def _model_name(model: Path) -> str:
    """The name of a model: its folder, or the run's folder if that is `model`."""
    path = model.resolve()
    return path.parent.name if path.name == "model" else path.name


def glue_folders(data: Path) -> dict[str, Path]:
    """The folders of GLUE tasks with training and dev files, in GLUE's own order."""
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
    statistics = result["summary"][headline]
    bounds = "" if statistics["low"] is None else f"{100 * statistics['low']:.1f} to {100 * statistics['high']:.1f}"
    seconds = [one["metrics"]["seconds"] for one in result["runs"]]
    mean, deviation = (f"{100 * statistics[key]:.1f}" for key in ("mean", "deviation"))
    cells = [headline.replace("_", " "), mean, bounds, deviation]
    return [name, *cells, f"{sum(seconds) / len(seconds):.1f}"]


def _protocol(result: Mapping[str, Any], seeds: int, seconds: float) -> dict[str, str]:
    """The protocol of all rows, from the first one."""
    protocol = result["protocol"]
    return {
        "seeds": str(seeds),
        "weights": protocol["selection"],
        "time": format_duration(seconds),
        "recipe of the first row": protocol["recipe"],
        **protocol["machine"],
    }


def _refuse_overrides(overrides: Sequence[str]) -> None:
    if overrides:
        raise RecipeError(f"'{overrides[0]}'", "this suite has no such setting")
