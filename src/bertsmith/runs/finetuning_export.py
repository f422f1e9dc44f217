"""The export of a fine-tuned model: a folder that transformers, or sentence-transformers, opens."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import sentence_transformers
from bertsmith.models.hf.finetuned import SETTINGS, FinetunedTask
from bertsmith.models.hf.folder import SECOND_SEGMENT, TRAINED_ON
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.hf.sentence_transformers import SentenceConfig
from bertsmith.recipe import FineTune
from bertsmith.runs import task_data
from bertsmith.runs.task_data import TaskData
from bertsmith.tasks.base import Task
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.findings import Prior
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import Tokenizer


def export(recipe: FineTune, task: Task, tokenizer: Tokenizer, data: TaskData, details: Mapping[str, Any]) -> None:
    """Write the model folder: weights, config, labels, tokenizer, and the training data's columns and label counts.

    `predict` reads files by the same columns, and `evaluate` compares scores with the same baselines.
    """
    shape, kind = task.trunk.config, recipe.task.kind
    if kind in task_data.FEATURE_TASKS:
        return  # no library has a class for a Bi-LSTM on frozen features
    finetuned = None
    extra: dict[str, Any] = dict(tokenizer.special_ids(layout_of(shape).special_tokens))
    if isinstance(task, TextToText):  # it has no head by which the task could be recognised
        extra["bertsmith"] = {"task": kind, "labels": task.labels, **asdict(task.config)}
    elif kind != "embed":
        finetuned = FinetunedTask(task=kind, labels=task.labels)
        if isinstance(task, SequenceClassification):
            finetuned = replace(finetuned, problem=task.config.problem, pooling=task.pooling)
    settings = {name: getattr(recipe.task.settings, name) for name in SETTINGS.get(kind, ())}
    if settings := {name: value for name, value in settings.items() if value is not None}:
        extra["bertsmith"] = {"settings": settings}
    source = task_data.training_columns(recipe, data) | {
        "max_length": recipe.data.max_length,
        **Prior.of(data.train.examples).to_dict(),
    }
    if shape.segments > 1 and not tokenizer.marks_pairs:
        source[SECOND_SEGMENT] = 0
    if "calibration" in details:
        # For information only: predictions are not scaled.
        source["temperature"] = details["calibration"]["temperature"]
    extra["bertsmith"] = {**extra.get("bertsmith", {}), TRAINED_ON: source}
    with folders.atomic_folder(recipe.out / "model") as folder:
        folders.write(folder, shape, task.state_dict(), extra, finetuned)
        tokenizer.save(folder, max_length=shape.max_length, segments=shape.segments > 1 and tokenizer.marks_pairs)
        if kind == "embed":
            pooling = recipe.task.settings.pooling
            sentence_transformers.write(
                folder, SentenceConfig(pooling=pooling, length=recipe.data.max_length), shape.width
            )
