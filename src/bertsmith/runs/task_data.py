"""The data of a fine-tuning run: files, examples, labels, the train/dev split, and items of token ids."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bertsmith import files, terminal
from bertsmith.data.labelled import glue, parallel, reader
from bertsmith.data.labelled.bad_rows import count_dropped
from bertsmith.data.labelled.columns import GUESSED_COLUMNS, Columns
from bertsmith.data.labelled.examples import Example
from bertsmith.data.labelled.reader import LabelledData
from bertsmith.data.labelled.splits import find_split
from bertsmith.errors import RecipeError, TextError
from bertsmith.models.hf import convert
from bertsmith.models.hf.finetuned import TASKS as HF_TASKS
from bertsmith.models.hf.folder import CONFIG
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.networks import NetworkConfig, build_network
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.recipe import FineTune
from bertsmith.runs.dev_split import split_dev
from bertsmith.tasks import TASKS, items
from bertsmith.tasks.base import Item, Task
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.text.tokenizer import Tokenizer

DEV_STEMS = ("dev", "valid", "validation", "val")  # names of dev files
FEATURE_TASKS = ("features", "classify_features")  # tasks on the frozen layers of any network


@dataclass(frozen=True)
class TaskData:
    """The training and dev examples of a task, and its labels."""

    train: LabelledData
    dev: LabelledData
    labels: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        return f"{self.train.fingerprint} {self.dev.fingerprint}"

    @property
    def identity(self) -> str:
        """The fingerprint with a hash of the labels: a renamed GLUE folder has them in another order."""
        return f"{self.fingerprint} {sha256(repr(self.labels).encode()).hexdigest()}"


@dataclass(frozen=True)
class EncodedData:
    """The training and dev items (token ids), encoded once for all seeds."""

    train: Sequence[Item]
    dev: Sequence[Item]

    @property
    def truncated(self) -> tuple[int, int]:
        """The number of truncated items in both sets."""
        return items.count_truncated(self.train), items.count_truncated(self.dev)


def read(recipe: FineTune) -> TaskData:
    """Read the examples, split off a dev set if there is none, and collect the labels."""
    given, kind = recipe.data, TASKS[recipe.task.kind]
    columns = Columns(texts=given.texts, label=given.label, separator=given.separator, labels=given.labels)
    form = kind.file_kind(recipe.task.settings)
    folder = recipe.out if recipe.out.is_dir() else None  # large files are spooled to the run's disk

    def read_file(path: Path) -> LabelledData:
        with progress_line(f"reading {path.name}") as progress:
            return reader.read(path, form, columns, given.on_bad_row, folder=folder, progress=progress)

    train = read_file(given.train)
    if given.dev is None:
        classes = form == "classify" and recipe.task.kind != "write"
        train, dev = split_dev(train, classes)
        if train.examples and not dev.examples:
            fact = f"{terminal.count_of(len(train.examples), 'example')}, too few to hold one out for evaluation"
            needed = "at least two of a class" if classes else "at least two"
            raise TextError(given.train, f"has {fact}", f"Give {needed}, or a dev file: --dev FILE")
    else:
        dev = read_file(given.dev)
    for part, path in ((train, given.train), (dev, given.dev or given.train)):
        if not part.examples:
            raise TextError(path, "holds no examples")
    known = train.examples if given.dev else chain(train.examples, dev.examples)  # a split set shares its labels
    return TaskData(train, dev, _labels(known, given.train, kind))


def encode(recipe: FineTune, shape: NetworkConfig, tokenizer: Tokenizer, data: TaskData) -> EncodedData:
    """Encode both sets into items."""
    task, length = build_task(recipe, shape, data), recipe.data.max_length
    if length > shape.max_length:
        fact = f"sequences of {length} tokens do not fit a model of {shape.max_length} positions"
        raise RecipeError("data.max_length", fact, f"Give at most {shape.max_length}")
    folder, encoded = recipe.out if recipe.out.is_dir() else None, []
    for name, part in (("training", data.train), ("dev", data.dev)):
        with progress_line(f"encoding {name} examples", len(part.examples)) as progress:
            encoded.append(items.make_items(task, part.examples, tokenizer, length, folder, progress))
    return EncodedData(*encoded)


@contextmanager
def progress_line(title: str, total: int | None = None, what: str = "examples") -> Iterator[Callable[[int], object]]:
    """A transient progress line on the terminal."""
    count = TextColumn("{task.completed:,.0f}" + (f" of {total:,}" if total else "") + " " + what)
    name = TextColumn("{task.description}", markup=False)  # the name of a file must not be read as markup
    columns = (name, *([BarColumn()] if total else []), count, TimeElapsedColumn())
    console = terminal.console(errors=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        line = progress.add_task(title, total=total)
        yield lambda done: progress.update(line, completed=done)


def find_files(
    data: Path, dev: Path | None, glue_task: glue.GlueTask | None, columns: Columns = GUESSED_COLUMNS
) -> tuple[Path, Path | None]:
    """The training file and the dev file: of a folder, or a file alone.

    For parallel text the columns are suffixes: `train.en` and `train.de` are `train`.
    """
    if not data.is_dir():
        return data, dev
    stems = (data / stem for stem in ("train", *DEV_STEMS))
    side = [stem for stem in stems if parallel.find_sides(stem, columns.texts, columns.label)]
    if side and side[0].name == "train":
        return side[0], dev or (side[1] if len(side) > 1 else None)
    if glue_task is not None:
        named = glue.split_files(data, glue_task)
        train, dev = named.get("train"), dev or named.get("dev")
    else:
        train, dev = find_split(data, ("train",)), dev or find_split(data, (*DEV_STEMS, "testa"))
    if train is None:
        raise TextError(data, "holds no training file", "Name it train.tsv, .csv, .jsonl, .parquet, .conll or .json")
    return train, dev


def network_config(model: Path) -> NetworkConfig | None:
    """The network config of a model folder; None if there is no folder."""
    path = model / CONFIG
    return convert.from_config_json(files.read_json(path), path) if path.is_file() else None


def _labels(examples: Iterable[Any], path: Path, kind: type[Task]) -> tuple[str, ...]:
    """The labels in the order of their ids: GLUE's own order for its tasks, so that ids mean the same elsewhere."""
    task = glue.recognise(path)
    if task is not None and task.classes and kind in (TASKS["classify"], TASKS["write"]):
        return task.classes
    return kind.collect_labels(examples)


def build_task(recipe: FineTune, shape: NetworkConfig, data: TaskData) -> Task:
    """The task on a network of this config, without weights."""
    if recipe.dropout is not None:
        names = ("dropout", "attention_dropout") if isinstance(shape, TransformerConfig) else ("dropout",)
        changes: dict[str, Any] = dict.fromkeys(names, recipe.dropout)
        shape = replace(shape, **changes)
    kind, classes = recipe.task.kind, layout_of(shape).architectures
    if shape.decoder_layers and kind != "write":
        fact = f"'{kind}' is for encoders, and this network has a decoder"
        raise RecipeError("task.kind", fact, "Use write, or a network such as bert-base")
    if kind == "write" and not shape.decoder_layers:
        fact = "'write' is for networks with a decoder, and this one has none"
        raise RecipeError("task.kind", fact, "Use another task, or a network such as t5-base")
    if shape.decoder_layers and (recipe.adapt.kind, recipe.adapt.freeze, recipe.adapt.layer_decay) != ("full", 0, 1.0):
        fact = "networks with a decoder are fine-tuned as a whole"
        raise RecipeError("adapt", fact, "Leave adapt out")
    if kind in HF_TASKS and kind not in classes:
        fact = f"transformers has no class for '{kind}' with this network"
        others = [name for name in HF_TASKS if name in classes]
        raise RecipeError("task.kind", fact, f"Use {' or '.join(others or FEATURE_TASKS)}")
    task = TASKS[kind](build_network(shape), recipe.task.settings, data.labels)
    if isinstance(task, SequenceClassification):
        task.check_classes()
        if task.config.class_weights == "balanced":
            task.set_class_weights(one.label for one in data.train.examples if isinstance(one, Example))
    return task


def summary_lines(data: TaskData) -> list[str]:
    """Lines on the examples that were read and the rows that were left out."""
    lines = []
    for name, part in (("training", data.train), ("dev", data.dev)):
        lines.append(f"{terminal.count_of(len(part.examples), f'{name} example')}: {part.description}")
        for reason, count in part.dropped.items():
            remedy = " (the file is not UTF-8: save it as UTF-8)" if reason == reader.NOT_UTF8 else ""
            lines += [f"  left out: {count_dropped(count, reason)}{remedy}"] if count else []
    return lines


def training_columns(recipe: FineTune, data: TaskData) -> dict[str, Any]:
    """The kind of file and the columns of the training data, kept in the model folder for `predict`."""
    part, given = data.train, recipe.data
    texts, label = part.texts or given.texts, part.label or given.label
    kind = TASKS[recipe.task.kind].file_kind(recipe.task.settings)
    columns = {"kind": kind, "texts": list(texts or ()), "label": label, "context_columns": part.context_columns}
    columns |= {"labels": list(given.labels)} if given.labels else {}
    return columns | ({"separator": given.separator} if given.separator else {})


def held_out_file(data: Path, columns: Columns = GUESSED_COLUMNS) -> Path:
    """The file to evaluate on: the file itself; of a folder its test file, or else its dev file."""
    if not data.is_dir():
        return data
    test, dev = ("test", "testb"), (*DEV_STEMS, "testa")
    side = [data / stem for stem in (*test, *dev) if parallel.find_sides(data / stem, columns.texts, columns.label)]
    task = glue.recognise(data)
    # GLUE's test files have no labels.
    path = glue.split_files(data, task).get("dev") if task else side[0] if side else None
    path = path if task or path else find_split(data, test) or find_split(data, dev)
    if path is None:
        raise TextError(data, "holds no test file and no dev file", "Name the file itself")
    return path
