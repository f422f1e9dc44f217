"""The training loop: step, log, evaluate, save, written out by name. It knows no model and no task.

Gradient accumulation over micro-batches, mixed precision (bfloat16 products, float32 weights), early stopping by
patience, and checkpoints from which a killed run resumes exactly.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from bertsmith.data.batch import Batch
from bertsmith.data.feed import Feed
from bertsmith.errors import RunError, StopError
from bertsmith.objectives.base import Objective
from bertsmith.train import checkpoint
from bertsmith.train.average import WeightAverage
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import Clock, WallBudget, crossed_mark
from bertsmith.train.display import Display
from bertsmith.train.evaluate import Validation
from bertsmith.train.forward import ForwardPass
from bertsmith.train.hardware import keep_freed_memory
from bertsmith.train.log import Log
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.overhead import Overhead
from bertsmith.train.schedules import ScheduleConfig, learning_rate_factor
from bertsmith.train.signals import Signals, stop_at_once
from bertsmith.train.step_metrics import Speed, StepMetrics
from bertsmith.train.train_config import TrainConfig
from bertsmith.train.update import Update

MAX_SKIPPED_IN_A_ROW = 10  # updates skipped for a non-finite gradient before the run ends


class Trainer:
    """One training run: its state, and the loop. Everything random is keyed by (seed, step)."""

    def __init__(
        self,
        objective: Objective,
        feed: Feed,
        optimizer: Optimizer,
        schedule: ScheduleConfig,
        config: TrainConfig,
        *,
        folder: Path,
        compute_metrics: Callable[[], dict[str, float]],  # the validation
        metric_name: Callable[[str], str] = lambda key: key.replace("_", " "),  # how the console calls a metric
        keep_best: Literal["highest", "lowest"] | None = None,  # keep the weights that are best by the first metric
        evaluate_untrained: bool = False,  # whether the score is also measured before the first step, as a baseline
        precision: torch.dtype,
        speed: Speed,
        display: Display,
        graphs: bool = False,  # whether batches come in few shapes, so that a GPU can replay CUDA graphs
        tensorboard: bool = True,
        wall: WallBudget | None = None,  # the time budget of the whole command, if that is bounded
    ) -> None:
        self.objective, self.feed, self.optimizer = objective, feed, optimizer
        self.schedule, self.config, self.folder = schedule, config, folder
        self.compute_metrics, self.keep_best, self.evaluate_untrained = compute_metrics, keep_best, evaluate_untrained
        self.speed, self.display, self.metric_name = speed, display, metric_name
        self.device = next(objective.parameters()).device
        self.forward = ForwardPass(objective, config, precision)
        self.optimizer_update = Update(objective, optimizer, self.forward, seed=config.seed, capture=graphs)
        self.average = WeightAverage(objective, config.average, config.average_decay)
        self.log = Log(folder, tensorboard=tensorboard)
        self.wall = wall
        self.clock = Clock(config.extent, wall=wall)
        self.step_metrics, self.overhead = StepMetrics(self.log, speed), Overhead(objective)
        self.step, self.position, self.tokens = 0, feed.first_position(), 0
        self.metrics: dict[str, float] = {}
        self.best_metrics: dict[str, float] = {}  # of the best validation
        self._best_weights: dict[str, Tensor] = {}
        self.evaluations_since_best, self.evaluation_due = 0, False

    @property
    def skipped(self) -> int:
        """Updates that were skipped for a non-finite gradient."""
        return self.step_metrics.skipped

    def fit(self) -> dict[str, float]:
        """Train to the end of the run, resuming from the newest checkpoint. Returns the last validation metrics."""
        if self.device.type == "cpu":
            keep_freed_memory()
        self._resume()
        with Signals() as signals, self.feed.loader(self.position, pin_memory=self.device.type == "cuda") as loader:
            if (self.step == 0 and self.keep_best != "highest") or self.evaluation_due:
                self.evaluate()
            if self.step == 0 and self.evaluate_untrained:
                metrics = self._compute_metrics()
                self.log.write({"kind": "untrained", "step": 0, **metrics})
                self.display.say(f"before training: {self._format_metrics(metrics)}")
            self.objective.train()
            if self.forward.compiles:
                self.display.say("compiling the step")
                self.optimizer_update.warm_up(self.feed(self.position))
            self.clock.start()
            self.overhead.restart()
            self.step_metrics.start_lap(self.tokens)
            progress = self._progress()
            while (progress < 1 or self.step == 0) and not self._should_stop():  # at least one step, however late
                began = time.monotonic()
                batches = [next(loader) for _ in range(self.config.gradient_accumulation)]
                self.update([batch for _, batch in batches], learning_rate_factor(progress, self.schedule))
                self.position = self.feed.next_position(batches[-1][0])
                self.overhead.last_step = time.monotonic() - began
                before, progress = progress, self._progress()
                self.average.update(progress)
                self._read_step_metrics(progress)
                if crossed_mark(before, progress, self.config.evaluations) and self._may_evaluate(progress):
                    self.evaluate()
                if signals.received or (
                    crossed_mark(before, progress, self.config.checkpoints) and self._may_save(progress)
                ):
                    self.save()
                if signals.received:
                    raise StopError(self.folder, f"stopped at step {self.step}, saved", "The same command resumes it")
            if self.metrics.get("step") != self.step:
                self.evaluate()
            if self.config.checkpoints:
                self.save()
            self.feed.verify()
        self.log.close()
        self.average.apply()
        return self.metrics

    def update(self, batches: Sequence[Batch], rate_factor: float) -> None:
        """One update, with gradient accumulation: losses are sums, divided once by the counts of all micro-batches."""
        counts: Counter[str] = Counter()
        for batch in batches:
            counts.update(batch.counts)
        self.optimizer.set_learning_rate(rate_factor)
        values = self.optimizer_update(batches, counts, self.step)
        self.step += 1
        self.tokens += counts["tokens"]
        record = {"kind": "step", "step": self.step, "terms": self.optimizer_update.loss_weights, "tokens": self.tokens}
        record["learning_rate"] = self.optimizer.config.learning_rate * rate_factor
        self.step_metrics.add(record, values, counts["squares"])

    def evaluate(self) -> None:
        """Evaluate on the validation data, and log the metrics."""
        self._read_step_metrics(0.0, force=True)
        began = time.monotonic()
        metrics = self._compute_metrics()
        self.metrics = {"step": self.step, **metrics}
        self.log.write({"kind": "validation", **self.metrics})
        self.display.show_validation(f"step {self.step}: validation {self._format_metrics(metrics)}")
        if self.keep_best:
            self._keep_best(next(iter(metrics)))
        took = time.monotonic() - began
        if isinstance(self.compute_metrics, Validation):
            took = self.compute_metrics.last_seconds  # without the trial batches before the first evaluation
        self.overhead.add_evaluation(took)
        self.step_metrics.start_lap(self.tokens)

    @stop_at_once
    def _compute_metrics(self) -> dict[str, float]:
        """The metrics of the current weights, or of their average once it has begun."""
        was_training = self.objective.training
        self.objective.eval()
        with self.average.applied(), torch.inference_mode(), self.forward.autocast():
            metrics = self.compute_metrics()
        self.objective.train(was_training)
        return metrics

    def _format_metrics(self, metrics: dict[str, float]) -> str:
        return ", ".join(f"{self.metric_name(key)} {value:.3f}" for key, value in metrics.items())

    def load_best(self) -> None:
        """Restore the weights of the best validation."""
        self.objective.load_state_dict(self._best_weights)
        self.metrics = self.best_metrics

    def save(self) -> None:
        """Write a checkpoint: weights, optimizer state, position in the data, clock and metrics."""
        self.feed.verify()
        self._read_step_metrics(0.0, force=True)
        began = time.monotonic()
        self.log.sync()
        tensors = {"model": dict(self.objective.state_dict()), "optimizer": self.optimizer.state_dict()}
        tensors |= self.average.tables()
        if self._best_weights:
            tensors["best_model"] = self._best_weights
        state = {
            "position": self.position,
            "tokens": self.tokens,
            "averaged_updates": self.average.count,
            "training_seconds": self.clock.training_seconds,
            "skipped_in_a_row": self.step_metrics.skipped_in_a_row,
            "skipped": self.step_metrics.skipped,
            "metrics": self.metrics,
            "best_metrics": self.best_metrics,
            "evaluations_since_best": self.evaluations_since_best,
            "evaluation_due": self.evaluation_due,
            "data_fingerprint": self.feed.fingerprint,
        }
        if isinstance(self.compute_metrics, Validation):
            state["validation_batches"] = self.compute_metrics.count
        if self.wall is not None:
            state["wall_budget"] = {
                "budget": self.wall.budget,
                "total_seconds": round(self.clock.total_seconds, 3),
                "evaluation_seconds": round(self.overhead.last_evaluation, 3),
                "finished": self._progress() >= 1,
            }
        checkpoint.save(
            self.folder / "checkpoints", Checkpoint(self.step, tensors, state), keep=self.config.keep_checkpoints
        )
        self.overhead.add_checkpoint(time.monotonic() - began)
        self.step_metrics.start_lap(self.tokens)

    def _resume(self) -> None:
        found = checkpoint.load_newest(self.folder / "checkpoints")
        if found is None:
            self.log.rewind(-1)
            return
        saved, broken = found
        for line in broken:
            self.display.say(line)
        if saved.state["data_fingerprint"] != self.feed.fingerprint:
            raise RunError(self.folder, "was begun with other data", "Choose another folder, or give it the same data")
        self.objective.load_state_dict(saved.tensors["model"])
        self.optimizer.load_state_dict(saved.tensors["optimizer"])
        self.step, state, self.evaluation_due = saved.step, saved.state, saved.state.get("evaluation_due", False)
        self.average.load(saved.tensors.get("average", {}), state.get("averaged_updates", 0))
        self.position, self.tokens, self.metrics = state["position"], state["tokens"], state["metrics"]
        steps = self.step_metrics
        steps.skipped_in_a_row, steps.skipped = state["skipped_in_a_row"], state["skipped"]
        self.best_metrics, self._best_weights = state["best_metrics"], saved.tensors.get("best_model", {})
        self.evaluations_since_best = state["evaluations_since_best"]
        if isinstance(self.compute_metrics, Validation) and state.get("validation_batches"):
            self.compute_metrics.count = state["validation_batches"]
        self._restore_clock(state)
        if damage := self.log.rewind(self.step, every_step=True):
            self.display.say(damage)
        self.display.say(f"resuming from step {self.step}")

    def _restore_clock(self, state: Mapping[str, Any]) -> None:
        """Restore the clock. A finished run resumes only if its time budget was raised."""
        seconds, saved = state["training_seconds"], state.get("wall_budget")
        # A run that had no wall budget before is charged for its training alone: nothing else was recorded.
        total = saved["total_seconds"] if self.wall is not None and saved else seconds
        self.clock = Clock(self.config.extent, seconds, self.wall, total_seconds=total)
        if self.wall is not None and saved:
            self.overhead.last_evaluation = saved["evaluation_seconds"]
            self.clock.finished = saved["finished"] and self.wall.budget <= saved["budget"]

    def _may_evaluate(self, progress: float) -> bool:
        """Whether an evaluation is within its share of the time, if time bounds the run.

        A score by which the best weights are chosen is always measured.
        """
        untimed = self.wall is None and self.config.budget is None
        if untimed or self.keep_best == "highest":
            return True
        return self.overhead.may_evaluate(self.clock.training_seconds / progress)

    def _may_save(self, progress: float) -> bool:
        """Whether a checkpoint is within its share of the time, if a command is bounded by wall-clock time."""
        return self.wall is None or self.overhead.may_save(self.clock.training_seconds / progress)

    def _keep_best(self, headline: str) -> None:
        before = self.best_metrics.get(headline, math.nan)
        sign = 1 if self.keep_best == "highest" else -1
        if not (math.isnan(before) or sign * self.metrics[headline] > sign * before):
            self.evaluations_since_best += 1
            return
        self.best_metrics, self.evaluations_since_best = dict(self.metrics), 0
        weights = self.objective.state_dict() | self.average.weights
        self._best_weights = {name: weight.detach().clone() for name, weight in weights.items()}

    def _should_stop(self) -> bool:
        """Early stopping: whether the patience is exhausted."""
        return self.config.patience is not None and self.evaluations_since_best >= self.config.patience

    def _progress(self) -> float:
        """The fraction of the run that is done."""
        if self.wall is not None:
            self.clock.reserve = self.wall.reserve + self.overhead.final_seconds(self.step)
        return self.clock.progress(self.step, self.feed.epoch(self.position))

    def _read_step_metrics(self, progress: float, *, force: bool = False) -> None:
        """Log and show the metrics of the last steps, now and then."""
        if not self.step_metrics.is_due(force=force):
            return
        reading = self.step_metrics.read(self.tokens, self.clock)
        if not force:
            self.display.update(reading.progress(self.step, progress, self.clock.remaining(progress)))
        if reading.most_skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise RunError(
                self.folder,
                f"the gradient was not finite {reading.most_skipped_in_a_row} steps in a row, up to step {self.step}",
                "The last checkpoint is whole; lower optimizer.learning_rate and run again",
            )
