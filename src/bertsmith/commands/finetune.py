"""`finetune`: fine-tune a model on labelled texts or images, and show its scores next to baselines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from bertsmith import terminal
from bertsmith.errors import RecipeError
from bertsmith.insight import evaluation
from bertsmith.runs import finetuning, image_finetuning, image_recipe, task_recipe
from bertsmith.runs.finetuning_result import RESULT
from bertsmith.tasks.findings import name_of

CONSOLE = terminal.console()
NO_MODEL = "A head on frozen features is measured and not kept: there is no model folder."


def finetune(
    model: Path,
    data: Path,
    out: Path,
    *,
    dev: Path | None,
    task: str | None,
    seeds: int | None,
    overrides: Sequence[str],
) -> None:
    """Fine-tune once per seed, and show the scores."""
    show(run(model, data, out, dev=dev, task=task, seeds=seeds, overrides=overrides), out)


def run(
    model: Path,
    data: Path,
    out: Path,
    *,
    dev: Path | None,
    task: str | None,
    seeds: int | None,
    overrides: Sequence[str],
) -> dict[str, Any]:
    """The result of a run on text or, for a network of images, on images."""
    if image_recipe.reads_images(model):
        if task not in (None, image_recipe.TASK):
            raise RecipeError("task", f"'{task}' is for text, and '{model}' reads images", f"Use {image_recipe.TASK}")
        options: dict[str, Any] = {"dev": dev, "seeds": seeds, "overrides": overrides}
        return image_finetuning.finetune(image_recipe.build_recipe(model, data, out, **options))
    task_recipe.check(model, task)
    image_recipe.refuse_images(model, data)
    return finetuning.finetune(
        task_recipe.build_recipe(model, data, out, dev=dev, task=task, seeds=seeds, overrides=overrides)
    )


def show(result: Mapping[str, Any], out: Path) -> None:
    """Print the scores of a run, with intervals over several seeds, and compare them with baselines."""
    details = result.get("details") or {}
    several = any(statistics["low"] is not None for statistics in result["summary"].values())  # several seeds
    table = Table("", *(("mean", "95 % interval", "deviation") if several else ("score",)), box=None)
    for name, statistics in result["summary"].items():
        interval = "" if statistics["low"] is None else f"{statistics['low']:.4f} to {statistics['high']:.4f}"
        spread = (interval, f"{statistics['deviation']:.4f}") if several else ()
        table.add_row(evaluation.plain_text(name_of(name, details)), f"{statistics['mean']:.4f}", *spread)
    CONSOLE.print(table)
    for line in evaluation.comparison_lines(result):
        CONSOLE.print(line, markup=False)
    written = f"scores {out / RESULT}, report {out / evaluation.PAGE}"
    if (out / "model").is_dir():
        CONSOLE.print(f"model {out / 'model'}, {written}", markup=False)
    else:
        CONSOLE.print(f"{written}. {NO_MODEL}", markup=False)
