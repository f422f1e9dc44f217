"""The recipe of a fine-tuning run; the task and hyperparameters that are not given are guessed from the data."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith import config, recipes, terminal
from bertsmith.data.labelled import glue, splits
from bertsmith.data.labelled.columns import Columns
from bertsmith.data.labelled.guess import Guess, count_rows, guess, guess_by_suffix
from bertsmith.errors import RecipeError, suggest
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.recipe import EXTENTS, FineTune, LabelledConfig
from bertsmith.runs import task_data
from bertsmith.tasks import TASK_NAMES, TASKS
from bertsmith.tasks.label_words import GLUE_PROMPTS
from bertsmith.tasks.question_answering import QuestionAnswering

CONSOLE = terminal.console()
DEFAULTS: dict[str, dict[str, Any]] = {
    "optimizer": {"learning_rate": 5e-5},
    "schedule": {"warmup": 0.1},
    "train": {"epochs": 3.0, "evaluations": 3, "checkpoints": 3, "compile": "never"},
}
FROM_SCRATCH: dict[str, dict[str, Any]] = {  # Vaswani et al. 2017, section 5
    "task": {"label_smoothing": 0.1, "max_new_tokens": 128},
    "optimizer": {"learning_rate": 1e-3, "betas": [0.9, 0.98], "weight_decay": 0.0},
    "schedule": {"kind": "inverse_root", "warmup": 0.1},
    "train": {"epochs": 30.0, "evaluations": 10, "checkpoints": 10, "compile": "never"},
}
FEW_ROWS = 3_000  # a training file with fewer rows takes more epochs and smaller batches
FEW_ROWS_UPDATES, MAX_EPOCHS = 600, 20  # for such a file: the number of updates, and the limit of epochs
FEW_ROWS_KEYS = {"train.epochs", "data.batch_size", "optimizer.learning_rate"}  # what is chosen for such a file
TEXT_TO_TEXT_LEARNING_RATE = 3e-4  # of T5; Raffel et al. 2020 took 1e-3, with another optimizer
FEATURES_LEARNING_RATE = 1e-3  # of a randomly initialised head on frozen features
LIST_KEYS = ("texts", "labels")  # settings that are lists of columns


def build_recipe(
    model: Path,
    data: Path,
    out: Path,
    *,
    dev: Path | None,
    task: str | None,
    seeds: int | None,
    overrides: Sequence[str],
) -> FineTune:
    """The recipe of a fine-tuning run; settings that are not given are guessed from the data.

    `model` is a model folder; a member of the family, which is trained from scratch; or a recipe, by name or as a TOML
    file.
    """
    task, overrides = _task_name(task, overrides)
    if _names_recipe(model):
        return _read_recipe(model, data, out, dev=dev, task=task, seeds=seeds, overrides=overrides)
    model, glue_task = folders.model_folder(model), glue.recognise(data)
    given = config.override({}, overrides)
    columns = _columns(given)
    train, dev = _find_files(data, dev, glue_task, columns)
    values: dict[str, Any] = {"out": str(out)} | ({} if seeds is None else {"seeds": seeds})
    member = str(model) if str(model) in FAMILY and not model.exists() else None
    values |= {"network": {"kind": member}} if member else {"model": str(model)}
    shape = task_data.network_config(model)
    # A network with a decoder learns every task as text to text.
    generates = member is not None or (shape is not None and shape.decoder_layers > 0)
    # No guess is needed for text to text, for GLUE, or if the problem is given.
    known = glue_task is not None or generates or {"problem", "output"} & _section(given, "task").keys()
    guessed = Guess(task=guess_by_suffix(train), rows=0 if glue_task or generates else count_rows(train))
    guessed = guessed if known else guess(train, columns, task)
    kind = task or ("write" if generates else guessed.task)
    values["task"] = {"kind": kind}
    if kind == "classify" and guessed.problem != "single_label":
        values["task"] |= {"problem": guessed.problem}
    if glue_task is not None and kind in ("classify", "write"):
        metric = "accuracy_f1" if glue_task.headline == "mean" else glue_task.headline
        regression = glue_task.kind == "number"
        values["task"] |= (
            ({"problem": "regression"} if kind == "classify" else {"output": "number"})
            if regression
            else {"metric": metric}
        )
    if kind == "write":
        values["task"] |= (
            GLUE_PROMPTS[glue_task.name] if glue_task else {"output": "span"} if guessed.task == "answer" else {}
        )
    if kind == "answer" or values["task"].get("output") == "span":
        values["data"] = {"max_length": 384}
    default = values.get("data", {}).get("max_length", LabelledConfig.max_length)
    if shape is not None and shape.max_length < default:
        values["data"] = {"max_length": shape.max_length}
        if kind == "answer":  # windows of a short model share less
            values["task"] |= {"overlap": min(QuestionAnswering.Config.overlap, shape.max_length // 4)}
    values["data"] = {"train": str(train), **({"dev": str(dev)} if dev else {}), **values.get("data", {})}
    values["data"] |= {"labels": list(guessed.labels)} if guessed.labels else {}
    values["data"] |= {"separator": guessed.separator} if guessed.separator else {}
    values |= {name: dict(section) for name, section in DEFAULTS.items()}
    few = 0 < guessed.rows < FEW_ROWS and kind not in task_data.FEATURE_TASKS
    if few:
        _suit_few_rows(values, guessed.rows, shape.width if shape else None)
    if kind == "write":
        values["optimizer"]["learning_rate"] = TEXT_TO_TEXT_LEARNING_RATE
    if kind in task_data.FEATURE_TASKS:
        values["optimizer"] |= {"learning_rate": FEATURES_LEARNING_RATE, "weight_decay": 0.0}
    if member:
        values |= {name: {**values[name], **section} for name, section in FROM_SCRATCH.items()}
        values["task"]["translation"] = glue_task is None
    built: FineTune = config.build(config.override(values, overrides, EXTENTS), FineTune, "finetune")
    if message := guessed.message if task else _message(guessed, glue_task, generates):
        CONSOLE.print(message, markup=False)
    settings = {override.partition("=")[0] for override in overrides}
    settings |= {"train.epochs"} if settings & set(EXTENTS[0]) else set()
    if few and not settings >= FEW_ROWS_KEYS:
        epochs = built.train.epochs
        length = f"{epochs:g} epoch{'s' * (epochs != 1)}, " if epochs else ""
        chosen = f"{length}batch size {built.data.batch_size}, learning rate {built.optimizer.learning_rate:g}"
        options = "epochs, batch size and learning rate can be given"
        CONSOLE.print(f"{guessed.rows:,} rows are few: {chosen}; {options}", markup=False)
    return built


def _message(guessed: Guess, glue_task: glue.GlueTask | None, generates: bool) -> str:
    """The task that was chosen, and the reason for it."""
    if generates:
        return "Task: text to text, since the network has a decoder"
    if glue_task is None:
        return guessed.message
    of = "regression" if glue_task.kind == "number" else f"classification, {len(glue_task.classes)} classes"
    return f"Task: {of}: these are the files of {glue_task.name}, a task of GLUE"


def _task_name(task: str | None, overrides: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """Our name of a task, and its problem as an override that later overrides may change."""
    if task is None or task in TASKS:
        return task, overrides
    if task not in TASK_NAMES:
        raise RecipeError("task", f"there is no task '{task}'", suggest(task, [*TASK_NAMES, *TASKS]))
    kind, problem = TASK_NAMES[task]
    return kind, [*([f"task.problem={problem}"] if problem else []), *overrides]


def check(model: Path, task: str | None = None) -> None:
    """Refuse an unknown task and a missing model before any data is read."""
    _task_name(task, [])
    if not _names_recipe(model) and (model.exists() or str(model) not in FAMILY):
        folders.check_exists(folders.model_folder(model))


def _suit_few_rows(values: dict[str, Any], rows: int, width: int | None) -> None:
    """Defaults for few rows: smaller batches and more epochs, so that there are enough updates.

    Mosbach et al. 2021: fine-tuning on few examples fails mostly from too few updates; they take 20 epochs. Networks
    narrower than BERT-base take a higher learning rate, and wider ones a lower one.
    """
    batch_size = 16 if rows >= 300 else 8
    epochs = min(MAX_EPOCHS, max(values["train"]["epochs"], math.ceil(FEW_ROWS_UPDATES * batch_size / rows)))
    values["data"] |= {"batch_size": batch_size}
    values["train"] |= {"epochs": float(epochs)}
    if width is not None:
        values["optimizer"] |= {
            "learning_rate": float(f"{values['optimizer']['learning_rate'] * min(4.0, 768 / width):.1g}")
        }


def _read_recipe(
    path: Path,
    data: Path,
    out: Path,
    *,
    dev: Path | None,
    task: str | None,
    seeds: int | None,
    overrides: Sequence[str],
) -> FineTune:
    """The recipe of a file, with the data and the output folder of the command line."""
    values = config.read_toml(recipes.find(path))
    changed = config.override(values, overrides, EXTENTS)
    train, dev = _find_files(data, dev, glue.recognise(data), _columns(changed))
    values["data"] = {**values.get("data", {}), "train": str(train)}
    values["data"] |= {"dev": str(dev)} if dev else {}
    values |= {"out": str(out)} | ({} if seeds is None else {"seeds": seeds})
    values |= {"task": {**values.get("task", {}), "kind": task}} if task else {}
    return config.build(config.override(values, overrides, EXTENTS), FineTune, str(path))


def _find_files(
    data: Path, dev: Path | None, glue_task: glue.GlueTask | None, columns: Columns
) -> tuple[Path, Path | None]:
    """The training file and the dev file; those of a folder are printed."""
    train, own = task_data.find_files(data, dev, glue_task, columns)
    if data.is_dir():
        chosen = f", dev set {splits.describe(own)}" if own and dev is None else ""
        CONSOLE.print(f"Of {data}: training set {splits.describe(train)}{chosen}", markup=False)
    return train, own


def _names_recipe(model: Path) -> bool:
    """Whether a recipe is given instead of a model: a TOML file, or the name of one."""
    return model.suffix == ".toml" or (not model.exists() and _is_finetuning_recipe(str(model)))


def _is_finetuning_recipe(name: str) -> bool:
    """Whether a recipe for fine-tuning of this name comes with bertsmith."""
    return name in recipes.names() and "task" in config.read_toml(recipes.find(name))


def _columns(values: Mapping[str, Any]) -> Columns:
    """The columns that are given in settings."""
    section = _section(values, "data")
    texts, labels = (
        tuple(map(str, named)) if isinstance(named := section.get(name), list) else None for name in LIST_KEYS
    )
    label, separator = ((value := section.get(name)) and str(value) for name in ("label", "separator"))
    return Columns(texts=texts, label=label, labels=labels, separator=separator)


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of settings; an empty one if it is missing or no section."""
    section = values.get(name, {})
    return section if isinstance(section, Mapping) else {}
