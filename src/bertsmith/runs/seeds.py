"""A task trained once per seed: each run to its end, its scores kept, and the model of the best seed written."""

import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from bertsmith import files
from bertsmith.data.feed import Feed
from bertsmith.errors import RunError
from bertsmith.recipe import FineTune, ImageFineTune
from bertsmith.runs.finetuning_result import RESULT, is_better
from bertsmith.tasks.measure import Evaluations
from bertsmith.terminal import count_of
from bertsmith.train import log
from bertsmith.train.display import Display
from bertsmith.train.processes import Processes
from bertsmith.train.run_state import OTHER_DATA
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed
from bertsmith.train.train_config import TrainConfig
from bertsmith.train.trainer import Trainer

R = TypeVar("R", FineTune, ImageFineTune)
T = TypeVar("T")
FEW_UPDATES = 5  # the first of them has a learning rate of zero where there is a warmup, and the last is near it
NO_TIME_TO_LEARN = "too few to learn from. Give more epochs (train.epochs) or a smaller batch (data.batch_size)"
Trained = tuple[T, dict[str, float], dict[str, Any]]  # a task, its metrics, and the details for the report


def check_data(out: Path, fingerprint: str) -> None:
    """Refuse other data than that of the seeds that have a result."""
    for path in out.glob(f"seed-*/{RESULT}"):
        if files.read_json(path).get("data") != fingerprint:
            raise RunError(out, *OTHER_DATA)


def train_seeds(
    recipe: R,
    processes: Processes,
    fingerprint: str,
    train: Callable[[R], Trained[T]],
    export: Callable[[T, Mapping[str, Any]], None],
) -> list[dict[str, Any]]:
    """Train with every seed that has no result yet. Returns all results, in the main process; elsewhere none."""
    runs: list[dict[str, Any]] = []
    for number in range(recipe.seeds):
        settings = replace(recipe.train, seed=recipe.train.seed + number)
        seeded = replace(recipe, out=recipe.out / f"seed-{number}", train=settings)
        path = seeded.out / RESULT
        if not processes.from_main(path.exists()):
            task, metrics, findings = train(seeded)
            if not processes.main:
                continue
            headline = next(iter(metrics))
            if all(is_better(metrics[headline], other["metrics"][headline]) for other in runs):
                export(task, findings["details"])
            result = {"seed": settings.seed, "data": fingerprint, "headline": headline, "metrics": metrics, **findings}
            files.write_json(path, result)
            shutil.rmtree(seeded.out / "checkpoints", ignore_errors=True)
        runs += [files.read_json(path)] if processes.main else []
    return runs


def fit(
    recipe: FineTune | ImageFineTune,
    step: Step,
    feed: Feed,
    evaluator: Evaluations,
    *,
    title: str,
    flops_per_token: Callable[[float], float],
    evaluate_untrained: bool,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Train with one seed: the metrics of the weights that are kept and, in the main process, their details."""
    began, main = time.monotonic(), step.processes.main
    with Display(f"{title}, seed {recipe.train.seed}:", silent=not main) as display:
        evaluator.progress = display.show_evaluation
        if (updates := expected_updates(feed, recipe.train)) is not None and updates < FEW_UPDATES:
            display.say(f"only {count_of(updates, 'update')}: {NO_TIME_TO_LEARN}")
        trainer = Trainer(
            step,
            feed,
            recipe.schedule,
            recipe.train,
            folder=recipe.out,
            compute_metrics=evaluator,
            metric_name=evaluator.metric_name,
            keep_best="highest",
            evaluate_untrained=evaluate_untrained,
            speed=Speed(None, flops_per_token),
            display=display,
            tensorboard=False,
        )
        metrics = trainer.fit()
        if recipe.keep == "best":
            trainer.load_best()
            metrics = trainer.state.metrics
        details = evaluator.findings(metrics) if main else {}
        findings = {"details": details, "untrained": _untrained_metrics(recipe.out)} if main else {}
    last = metrics.pop("step")
    return {**metrics, "step": last, "seconds": round(time.monotonic() - began, 2)}, findings


def expected_updates(feed: Feed, train: TrainConfig) -> int | None:
    """The number of updates of a run; None where its length is a time."""
    if train.extent.epochs is None:
        return train.extent.steps
    first_batch = feed.epoch(feed.next_position(feed.first_position()))
    return math.ceil(round(train.extent.epochs / first_batch, 6) / train.gradient_accumulation)


def _untrained_metrics(folder: Path) -> dict[str, float] | None:
    """The metrics before the first step, from the log; None if they were not computed."""
    for record in log.read(folder / log.NAME):
        if record.get("kind") == "untrained":
            return {name: float(value) for name, value in record.items() if name not in ("kind", "step")}
    return None
