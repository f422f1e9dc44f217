"""GLUE: nine tasks of language understanding, in their files as published. Wang et al. 2018, table 1.

Classes are in the order in which `transformers` numbers them, so that class 0 of a model is the same in both.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertsmith.data.corpus.sources import COMPRESSIONS
from bertsmith.data.labelled.sources import find_source
from bertsmith.data.labelled.tables import Table, open_table
from bertsmith.errors import TextError

ENDINGS = (".tsv", ".jsonl")
BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """A task of GLUE: the columns of its files, its classes and its metrics."""

    name: str
    texts: tuple[str, ...]  # columns of the TSV file; numbers where it has no header
    label: str
    json_columns: tuple[str, ...]  # the same columns where the file is JSON lines, the label last
    kind: Literal["classify", "number"] = "classify"
    classes: tuple[str, ...] = BINARY  # in the order of their numbers; none where the label is a number
    metrics: tuple[str, ...] = ("accuracy",)
    dev: str = "dev"  # the name of the development file, without its ending
    headline: str = "accuracy"  # the metric that GLUE averages; "mean" is the mean of the metrics


GLUE: dict[str, GlueTask] = {
    task.name: task
    for task in (
        GlueTask(
            name="CoLA",
            texts=("3",),
            label="1",
            json_columns=("sentence", "label"),
            metrics=("matthews",),
            headline="matthews",
        ),
        GlueTask(name="SST-2", texts=("sentence",), label="label", json_columns=("sentence", "label")),
        GlueTask(
            name="MRPC",
            texts=("#1 String", "#2 String"),
            label="Quality",
            json_columns=("sentence1", "sentence2", "label"),
            metrics=("accuracy", "f1"),
            headline="mean",
        ),
        GlueTask(
            name="STS-B",
            texts=("sentence1", "sentence2"),
            label="score",
            json_columns=("sentence1", "sentence2", "label"),
            kind="number",
            classes=(),
            metrics=("spearman", "pearson"),
            headline="spearman",
        ),
        GlueTask(
            name="QQP",
            texts=("question1", "question2"),
            label="is_duplicate",
            json_columns=("question1", "question2", "label"),
            metrics=("accuracy", "f1"),
            headline="mean",
        ),
        GlueTask(
            name="MNLI",
            texts=("sentence1", "sentence2"),
            label="gold_label",
            json_columns=("premise", "hypothesis", "label"),
            classes=("entailment", "neutral", "contradiction"),
            dev="dev_matched",
        ),
        GlueTask(
            name="QNLI",
            texts=("question", "sentence"),
            label="label",
            json_columns=("question", "sentence", "label"),
            classes=ENTAILMENT,
        ),
        GlueTask(
            name="RTE",
            texts=("sentence1", "sentence2"),
            label="label",
            json_columns=("sentence1", "sentence2", "label"),
            classes=ENTAILMENT,
        ),
        GlueTask(
            name="WNLI",
            texts=("sentence1", "sentence2"),
            label="label",
            json_columns=("sentence1", "sentence2", "label"),
        ),
    )
}
HEADINGS = frozenset(name for task in GLUE.values() for name in (*task.texts, task.label) if not name.isdigit())


def recognise(path: Path) -> GlueTask | None:
    """The task that a file or folder belongs to: by the name of the folder, if the columns agree."""
    if path.is_dir():
        task = _named(path.name)
        files = list(split_files(path, task).values()) if task else []
        return recognise(files[0]) if files else None
    task = _named(path.absolute().parent.name)
    if task is None or not path.is_file():
        return None
    try:
        return task if task_columns(open_table(find_source(path), HEADINGS), task) else None
    except TextError:
        return None  # the reader reports it


def split_files(folder: Path, task: GlueTask) -> dict[str, Path]:
    """The files of the splits `train` and `dev`, as far as they exist."""
    splits = {}
    for split, stems in {"train": ("train",), "dev": (task.dev, "dev", "valid", "validation")}.items():
        names = [stem + ending + packing for ending in ENDINGS for stem in stems for packing in ("", *COMPRESSIONS)]
        existing = [folder / name for name in names if (folder / name).is_file()]
        if existing:
            splits[split] = existing[0]
    return splits


def task_columns(table: Table, task: GlueTask) -> tuple[tuple[str, ...], str] | None:
    """The columns of the texts and of the label in one of the task's files; None if it has other columns."""
    if task.name == "CoLA" and table.delimiter and not table.has_header:
        known = [row[task.label] in task.classes for row in table.head if len(table.columns) == 4]
        return (task.texts, task.label) if 2 * sum(known) > len(known) else None
    for *texts, label in ((*task.texts, task.label), task.json_columns):
        if {*texts, label} <= set(table.columns):
            return tuple(texts), label
    return None


def _named(folder: str) -> GlueTask | None:
    plain = re.sub(r"[^a-z0-9]", "", folder.lower())
    return next((task for name, task in GLUE.items() if name.lower().replace("-", "") == plain), None)
