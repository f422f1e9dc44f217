"""`finetune`: teach a model a task from labelled examples, and show how good it is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from bertsmith import terminal
from bertsmith.insight import evaluation
from bertsmith.runs import finetuning, task_recipe
from bertsmith.tasks.findings import name_of

CONSOLE = terminal.console()


def finetune(
    model: Path, data: Path, out: Path, *, dev: Path | None, task: str | None, seeds: int, overrides: Sequence[str]
) -> None:
    """Fine-tune once for each seed, and show the scores."""
    task_recipe.check(model, task)
    recipe = task_recipe.build_recipe(model, data, out, dev=dev, task=task, seeds=seeds, overrides=overrides)
    show(finetuning.finetune(recipe), out)


def show(result: Mapping[str, Any], out: Path) -> None:
    """The figures of a run, on the terminal."""
    details = result.get("details") or {}
    several = any(found["low"] is not None for found in result["summary"].values())  # seeds
    table = Table("", *(("mean", "95 % interval", "deviation") if several else ("score",)), box=None)
    for name, found in result["summary"].items():
        ends = "" if found["low"] is None else f"{found['low']:.4f} to {found['high']:.4f}"
        spread = (ends, f"{found['deviation']:.4f}") if several else ()
        table.add_row(evaluation.plain_text(name_of(name, details)), f"{found['mean']:.4f}", *spread)
    CONSOLE.print(table)
    for line in evaluation.comparison_lines(result):
        CONSOLE.print(line, markup=False)
    CONSOLE.print(
        f"model {out / 'model'}, result {out / finetuning.RESULT}, page {out / evaluation.PAGE}", markup=False
    )
