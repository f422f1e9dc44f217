"""The data of a fine-tuning run: files, examples, classes, and the items that the network is trained on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bertsmith import files, terminal
from bertsmith.data.labelled import glue, parallel, reader
from bertsmith.data.labelled.examples import Example, take
from bertsmith.data.labelled.reader import Columns, LabelledData
from bertsmith.errors import RecipeError, TextError
from bertsmith.models.hf import convert
from bertsmith.models.hf.finetuned import TASKS as LEARNT
from bertsmith.models.hf.folder import CONFIG
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.networks import NetworkConfig, build_network
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.random_bits import permute
from bertsmith.recipe import FineTune
from bertsmith.tasks import TASKS, items
from bertsmith.tasks.base import Item, Task
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.text.tokenizer import Tokenizer

DEV_STEMS = ("dev", "valid", "validation", "val")  # what the field calls the file to choose the best weights by
FEATURE_TASKS = ("features", "classify_features")  # what any network is good for that tells what its layers say
SPLIT_CANDIDATES = 200_000  # examples, of which those that are held back are taken
MAX_DEV_EXAMPLES = 20_000  # and at most so many: more would take longer to predict than they tell
DEV_SHARE = 0.1  # of the training examples, where no others are given to choose the best weights by


@dataclass(frozen=True)
class TaskData:
    """Both sets of examples as the task reads them, and what there is to say about them."""

    train: LabelledData
    dev: LabelledData
    labels: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        return f"{self.train.fingerprint} {self.dev.fingerprint}"


@dataclass(frozen=True)
class EncodedData:
    """The same as the network sees them, made once for all seeds."""

    train: Sequence[Item]
    dev: Sequence[Item]

    @property
    def truncated(self) -> tuple[int, int]:
        """How many of both sets were longer than a sequence may be."""
        return items.count_truncated(self.train), items.count_truncated(self.dev)


def read(recipe: FineTune) -> TaskData:
    """The examples, and the classes that they name."""
    given, kind = recipe.data, TASKS[recipe.task.kind]
    columns = Columns(texts=given.texts, label=given.label, separator=given.separator, labels=given.labels)
    form = kind.file_kind(recipe.task.settings)
    folder = recipe.out if recipe.out.is_dir() else None  # where there is room for a run there is room for its data

    def of(path: Path) -> LabelledData:
        with _progress(f"reading {path.name}") as progress:
            return reader.read(path, form, columns, given.on_bad_row, folder=folder, progress=progress)

    train = of(given.train)
    if given.dev is None:
        train, dev = _split_dev(train, classes=form == "classify" and recipe.task.kind != "write")
    else:
        dev = of(given.dev)
    for part, place in ((train, given.train), (dev, given.dev or given.train)):
        if not part.examples:
            raise TextError(place, "holds no examples")
    known = train.examples if given.dev else chain(train.examples, dev.examples)  # held back, but not hidden
    return TaskData(train, dev, _labels(known, given.train, kind))


def encode(recipe: FineTune, shape: NetworkConfig, tokenizer: Tokenizer, data: TaskData) -> EncodedData:
    """Items of both sets."""
    task, length = build_task(recipe, shape, data), recipe.data.max_length
    if length > shape.max_length:
        fact = f"sequences of {length} tokens do not fit a model of {shape.max_length} positions"
        raise RecipeError("data.max_length", fact, f"Give at most {shape.max_length}")
    folder, made = recipe.out if recipe.out.is_dir() else None, []
    for name, part in (("training", data.train), ("dev", data.dev)):
        with _progress(f"encoding {name} examples", len(part.examples)) as progress:
            made.append(items.make_items(task, part.examples, tokenizer, length, folder, progress))
    return EncodedData(*made)


@contextmanager
def _progress(what: str, total: int | None = None) -> Iterator[Callable[[int], object]]:
    """A line on the terminal that says how far the work is, and goes when it is done."""
    count = TextColumn("{task.completed:,.0f}" + (f" of {total:,}" if total else "") + " examples")
    name = TextColumn("{task.description}", markup=False)  # a file's name is no markup
    columns = (name, *([BarColumn()] if total else []), count, TimeElapsedColumn())
    say = terminal.console(errors=True)
    with Progress(*columns, console=say, transient=True, disable=not say.is_terminal) as progress:
        line = progress.add_task(what, total=total)
        yield lambda done: progress.update(line, completed=done)


def find_files(
    data: Path, dev: Path | None, glue_task: glue.GlueTask | None, columns: Columns = reader.GUESS
) -> tuple[Path, Path | None]:
    """The training and the dev file behind a name: two files of a folder, or a file alone.

    Of parallel text the columns are endings: `train.en` and `train.de` are `train`.
    """
    if not data.is_dir():
        return data, dev
    stems = (data / stem for stem in ("train", *DEV_STEMS))
    side = [stem for stem in stems if parallel.find_sides(stem, columns.texts, columns.label)]
    if side and side[0].name == "train":
        return side[0], dev or (side[1] if len(side) > 1 else None)
    if glue_task is not None:
        named = glue.split_files(data, glue_task)
        train, own = named.get("train"), named.get("dev")
    else:
        train, own = (_find_by_stem(data, stems) for stems in (("train",), (*DEV_STEMS, "testa")))
    if train is None:
        raise TextError(data, "holds no training file", "Name it train.tsv, .csv, .jsonl, .parquet, .conll or .json")
    return train, dev or own


def _find_by_stem(folder: Path, stems: Sequence[str]) -> Path | None:
    """The file of a folder that is named so: train.tsv, eng.train.xz, train-v1.1.json."""
    shown = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    for stem in stems:
        for path in shown:
            if stem in path.name.lower().replace("-", ".").replace("_", ".").split("."):
                return path
    return None


def network_config(model: Path) -> NetworkConfig | None:
    """The shape of a folder's network, where there is a folder."""
    path = model / CONFIG
    return convert.from_config_json(files.read_json(path), path) if path.is_file() else None


def _split_dev(whole: LabelledData, classes: bool) -> tuple[LabelledData, LabelledData]:
    """A tenth of the examples, always the same ones, as a dev set: of classes, a tenth of each."""
    examples: Any = whole.examples
    count = len(examples)
    wanted = min(MAX_DEV_EXAMPLES, max(1, int(DEV_SHARE * count)), count - 1)
    order = permute(np.arange(min(SPLIT_CANDIDATES, count) if classes else wanted), count, 0)
    back = _stratified(order, [examples[number].label for number in order], wanted) if classes else order
    chosen = np.zeros(count, np.bool_)
    chosen[back] = True
    train, dev = (take(examples, np.flatnonzero(part)) for part in (~chosen, chosen))
    found = f"{len(dev):,} of the training examples, held back" + (", of each class its share" if classes else "")
    return replace(whole, examples=train), replace(whole, examples=dev, description=found, dropped={})


def _stratified(numbers: NDArray[np.int64], labels: Sequence[Any], wanted: int) -> NDArray[np.int64]:
    """The first numbers of each class, so many that each has its share, rounded; one that stands alone is never taken.

    What rounding down leaves over goes to the classes that lost most by it (largest remainders).
    """
    _, classes, sizes = np.unique(np.array(labels, np.str_), return_inverse=True, return_counts=True)
    shares = sizes * (wanted / len(labels))
    takes = np.minimum(shares.astype(np.int64), sizes - 1)
    for lost in np.argsort(takes - shares, kind="stable")[: wanted - int(takes.sum())]:
        takes[lost] += takes[lost] < sizes[lost] - 1
    ranks = np.empty(len(numbers), np.int64)  # of each number within its class
    ranks[np.argsort(classes, kind="stable")] = np.arange(len(numbers)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return numbers[ranks < takes[classes]]


def _labels(examples: Iterable[Any], place: Path, kind: type[Task]) -> tuple[str, ...]:
    """The classes by number: in GLUE's order where it is GLUE, so that others mean the same by a number."""
    found = glue.recognise(place)
    if found is not None and found.classes and kind in (TASKS["classify"], TASKS["write"]):
        return found.classes
    return kind.collect_labels(examples)


def build_task(recipe: FineTune, shape: NetworkConfig, data: TaskData) -> Task:
    """The task on a network of this shape, before it has any weights."""
    if recipe.dropout is not None:
        shares = ("dropout", "attention_dropout") if isinstance(shape, TransformerConfig) else ("dropout",)
        changes: dict[str, Any] = dict.fromkeys(shares, recipe.dropout)
        shape = replace(shape, **changes)
    kind, classes = recipe.task.kind, layout_of(shape).architectures
    if shape.decoder_layers and kind != "write":
        fact = f"'{kind}' is for networks that only read, and this one writes"
        raise RecipeError("task.kind", fact, "Use write, or a network such as bert-base")
    if kind == "write" and not shape.decoder_layers:
        fact = "'write' is for networks that write, and this one only reads"
        raise RecipeError("task.kind", fact, "Use another task, or a network such as t5-base")
    if shape.decoder_layers and (recipe.adapt.kind, recipe.adapt.freeze, recipe.adapt.layer_decay) != ("full", 0, 1.0):
        fact = "of a network that reads and one that writes, both learn as wholes"
        raise RecipeError("adapt", fact, "Leave adapt out")
    if kind in LEARNT and kind not in classes:
        fact = f"transformers has no class that learns to {kind} with this network"
        others = [name for name in LEARNT if name in classes]
        raise RecipeError("task.kind", fact, f"Use {' or '.join(others or FEATURE_TASKS)}")
    task = TASKS[kind](build_network(shape), recipe.task.settings, data.labels)
    if isinstance(task, SequenceClassification) and task.config.class_weights == "balanced":
        task.set_class_weights(one.label for one in data.train.examples if isinstance(one, Example))
    return task


def summary_lines(data: TaskData) -> list[str]:
    """What was read, and what was left out."""
    lines = []
    for name, part in (("training", data.train), ("dev", data.dev)):
        lines.append(f"{len(part.examples):,} {name} examples: {part.description}")
        for reason, count in part.dropped.items():
            remedy = " (the file is not UTF-8: save it as UTF-8)" if reason == reader.NOT_UTF8 else ""
            lines += [f"  left out: {count:,} {reason}{remedy}"] if count else []
    return lines


def training_columns(recipe: FineTune, data: TaskData) -> dict[str, Any]:
    """The kind of file and the columns of the training data, which are kept with the model: `predict` reads alike."""
    part, given = data.train, recipe.data
    texts, label = part.texts or given.texts, part.label or given.label
    kind = TASKS[recipe.task.kind].file_kind(recipe.task.settings)
    found = {"kind": kind, "texts": list(texts or ()), "label": label, "joined": part.context_columns}
    found |= {"labels": list(given.labels)} if given.labels else {}
    return found | ({"separator": given.separator} if given.separator else {})


def held_out_file(data: Path, columns: Columns = reader.GUESS) -> Path:
    """The file to measure a taught model on: itself, or of a folder its test file, else its dev file."""
    if not data.is_dir():
        return data
    stems = ("test", "testb", *DEV_STEMS, "testa")
    side = [data / stem for stem in stems if parallel.find_sides(data / stem, columns.texts, columns.label)]
    task = glue.recognise(data)
    # GLUE's test files have no labels.
    found = glue.split_files(data, task).get("dev") if task else side[0] if side else _find_by_stem(data, stems)
    if found is None:
        raise TextError(data, "holds no test file and no dev file", "Name the file itself")
    return found
