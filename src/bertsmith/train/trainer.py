"""The training loop: update, log, evaluate, save, written out by name. It knows no network and no task.

What an update does is the `step`'s. The loop gives it batches and a learning rate, ends by steps, epochs or time, or
early by patience (early stopping), and writes checkpoints from which a killed run resumes exactly.

Of several processes the main one alone keeps the time, evaluates, logs and saves; the others follow its decisions.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

from torch import Tensor

from bertsmith.data.batch import Batch
from bertsmith.data.feed import Feed
from bertsmith.errors import RunError, StopError
from bertsmith.train import resume
from bertsmith.train.average import tied_alike
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.checkpoint_writer import CheckpointWriter
from bertsmith.train.clock import Clock, WallBudget, crossed_mark
from bertsmith.train.display import Display
from bertsmith.train.evaluate import Validation
from bertsmith.train.hardware import keep_freed_memory
from bertsmith.train.log import Log
from bertsmith.train.overhead import Overhead
from bertsmith.train.run_state import OTHER_DATA, RunState
from bertsmith.train.schedules import ScheduleConfig, learning_rate_factor
from bertsmith.train.signals import Interrupted, Signals
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed, StepMetrics
from bertsmith.train.train_config import TrainConfig

MAX_SKIPPED_IN_A_ROW = 10  # updates skipped for a non-finite gradient before the run ends


class Trainer:
    """One training run: its state, and the loop. Everything random is keyed by (seed, step)."""

    def __init__(
        self,
        train_step: Step,
        feed: Feed,
        schedule: ScheduleConfig,
        config: TrainConfig,
        *,
        folder: Path,
        compute_metrics: Callable[[], dict[str, float]],  # the validation
        metric_name: Callable[[str], str] = lambda key: key.replace("_", " "),  # how the console calls a metric
        keep_best: Literal["highest", "lowest"] | None = None,  # keep the weights that are best by the first metric
        evaluate_untrained: bool = False,  # whether the score is also measured before the first step, as a baseline
        speed: Speed,
        display: Display,
        tensorboard: bool = True,
        wall: WallBudget | None = None,  # the time budget of the whole command, if that is bounded
    ) -> None:
        self.train_step, self.feed, self.schedule, self.config = train_step, feed, schedule, config
        self.objective, self.device = train_step.objective, train_step.device
        self.processes = train_step.processes
        self.compute_metrics, self.keep_best, self.evaluate_untrained = compute_metrics, keep_best, evaluate_untrained
        self.validation = compute_metrics if isinstance(compute_metrics, Validation) else None
        self.folder, self.display, self.metric_name = folder, display, metric_name
        self.state = RunState(position=feed.first_position(), data_fingerprint=feed.fingerprint)
        self.best_weights: dict[str, Tensor] = {}  # of the best validation
        self.clock, self.signals = Clock(config.extent, wall=wall), Signals()
        self.overhead = Overhead(self.objective, self.clock)
        how: dict[str, Any] = {"keep": config.keep_checkpoints, "processes": self.processes}
        self.writer = CheckpointWriter(folder / "checkpoints", tell_seconds=self.overhead.checkpoint_written, **how)
        self.log = Log(folder, tensorboard=tensorboard)
        self.step_metrics = StepMetrics(self.log, speed, self.processes.size)

    def fit(self) -> dict[str, float]:
        """Train to the end of the run, resuming from the newest checkpoint. Returns the last validation metrics."""
        if self.device.type == "cpu":
            keep_freed_memory()
        self._resume()
        update, part = self.config.gradient_accumulation, self.train_step.part
        loader = self.feed.loader(self.state.position, pin_memory=self.device.type == "cuda", update=update, part=part)
        with self.signals, loader, self.writer:
            self._begin()
            progress = self._progress()
            while (progress < 1 or self.state.step == 0) and not self._should_stop():  # at least one, however late
                began = time.monotonic()
                batches = [batch for _, batch in (next(loader) for _ in part)]
                self.update(batches, learning_rate_factor(progress, self.schedule))
                self.state.position = self.feed.after(self.state.position, update)
                self.overhead.last_step = time.monotonic() - began
                before, progress = progress, self._progress()
                self.train_step.average.update(progress)
                self._read_step_metrics(progress)
                if crossed_mark(before, progress, self.config.evaluations) and self._may_evaluate(progress):
                    self.evaluate()
                self._stop_if_asked()
                if crossed_mark(before, progress, self.config.checkpoints) and self._may_save(progress):
                    self.save()
            if self._should_stop():
                self.display.say(f"stopped early: {self.config.patience} evaluations brought nothing better")
            if self.state.metrics.get("step") != self.state.step:
                self.evaluate()
            if self.config.checkpoints:
                self.save()
            self.feed.verify()
        self.log.close()
        self.train_step.average.apply()
        return self.state.metrics

    def _begin(self) -> None:
        """Start from the main process's weights; evaluate before the first update, compile, and start the clock."""
        self.processes.share(list(self.objective.state_dict().values()))
        if (self.state.step == 0 and self.keep_best != "highest") or self.state.evaluation_due:
            self.evaluate()
        if self.state.step == 0 and self.evaluate_untrained:
            metrics = self._compute_metrics()
            self._log({"kind": "untrained", "step": 0, **metrics})
            self.display.say(f"before training: {self._format_metrics(metrics)}")
        self.objective.train()
        if self.train_step.forward.compiles:
            self.display.say("compiling the step")
            self.train_step.warm_up(self.feed(self.state.position))
        self.clock.start()
        self.overhead.restart()
        self.step_metrics.start_lap(self.state.tokens)

    def update(self, batches: Sequence[Batch], rate_factor: float) -> None:
        """One update by these micro-batches, at this factor of the peak learning rate."""
        result = self.train_step(batches, self.state.step, rate_factor)
        self.state.step += 1
        self.state.tokens += result.counts["tokens"]
        if self.processes.main:
            self.step_metrics.add(self.state, result)

    def evaluate(self) -> None:
        """Evaluate on the validation data, log the metrics, and keep the weights if they are the best."""
        self._read_step_metrics(0.0, force=True)
        began = time.monotonic()
        metrics = self._compute_metrics()
        self.state.metrics = {"step": self.state.step, **metrics}
        self._log({"kind": "validation", **self.state.metrics})
        self.display.show_validation(f"step {self.state.step}: validation {self._format_metrics(metrics)}")
        if self.keep_best:
            self._keep_best(next(iter(metrics)))
        # The validation's own seconds are without the trial batches before the first evaluation.
        took = time.monotonic() - began if self.validation is None else self.validation.last_seconds
        self.overhead.add_evaluation(took)
        self.step_metrics.start_lap(self.state.tokens)

    def save(self) -> None:
        """Write a checkpoint in the background: weights, optimizer state, position in the data, clock and metrics."""
        began = time.monotonic()
        if self.processes.main:
            self.feed.verify()
            self._read_step_metrics(0.0, force=True)
            began = time.monotonic()
            self.log.sync()
        self.writer.save(self._checkpoint(), self.train_step.divided_tables)
        self.overhead.add_checkpoint(time.monotonic() - began)
        self.step_metrics.start_lap(self.state.tokens)

    def load_best(self) -> None:
        """Restore the weights of the best validation."""
        self.objective.load_state_dict(tied_alike(self.objective, self.best_weights))
        self.state.metrics = self.state.best_metrics

    def _checkpoint(self) -> Checkpoint:
        """The run as it is now."""
        wall, used = self.clock.wall, None
        if wall is not None:
            used = {
                "budget": wall.budget,
                "total_seconds": round(self.clock.total_seconds, 3),
                "evaluation_seconds": round(self.overhead.last_evaluation, 3),
                "finished": self._own_progress() >= 1 or self._should_stop(),
                "stopped_early": self._should_stop(),
            }
        state = replace(
            self.state,
            training_seconds=self.clock.training_seconds,
            averaged_updates=self.train_step.average.count,
            validation_batches=None if self.validation is None else self.validation.count,
            wall_budget=used,
        )
        best = {"best_model": self.best_weights} if self.best_weights else {}
        return Checkpoint(state.step, self.train_step.state_dict() | best, state.to_json())

    def _restore(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint."""
        state = RunState.from_checkpoint(saved)
        if state.data_fingerprint != self.feed.fingerprint:
            raise RunError(self.folder, *OTHER_DATA)
        self.state = state
        self.train_step.load_state_dict(saved.tensors, state.averaged_updates)
        self.best_weights = saved.tensors.get("best_model", {})
        self.clock.resume(state.training_seconds, state.wall_budget)
        if self.clock.wall is not None and state.wall_budget:
            self.overhead.last_evaluation = state.wall_budget["evaluation_seconds"]
            if self.clock.wall.budget > state.wall_budget["budget"]:  # a run that stopped early goes on
                state.evaluations_since_best = 0
        if self.validation is not None and state.validation_batches:
            self.validation.count = state.validation_batches

    def _resume(self) -> None:
        """Go on from the newest checkpoint, if there is one, with the log up to it."""
        saved, broken = resume.load_newest(self.folder / "checkpoints", self.processes)
        for line in broken:
            self.display.say(line)
        if saved is not None:
            self._restore(saved)
        begins = -1 if saved is None else self.state.step
        if self.processes.main and (damage := self.log.rewind(begins, every_step=begins >= 0)):
            self.display.say(damage)
        if saved is not None:
            self.display.say(f"resuming from step {self.state.step}")

    def _log(self, record: dict[str, Any]) -> None:
        """Log a record, in the main process."""
        if self.processes.main:
            self.log.write(record)

    def _compute_metrics(self) -> dict[str, float]:
        """The metrics of the current weights, or of their average once it has begun. A signal stops it at once."""
        metrics: dict[str, float] | None = None
        if self.processes.main:
            with suppress(Interrupted), self.train_step.evaluating(), self.signals.stop_at_once():
                metrics = self.compute_metrics()
        metrics = self.processes.from_main(metrics)
        self.state.evaluation_due = metrics is None
        if metrics is None:
            self._save_and_stop(" during an evaluation")
        return metrics

    def _format_metrics(self, metrics: dict[str, float]) -> str:
        return ", ".join(f"{self.metric_name(key)} {value:.3f}" for key, value in metrics.items())

    def _save_and_stop(self, moment: str = "") -> NoReturn:
        """What a signal asks for."""
        if self.state.step == 0:
            raise StopError(self.folder, "stopped before the first step", "The same command begins again") from None
        self.save()
        self.writer.wait()
        fact = f"stopped at step {self.state.step}{moment}, saved"
        raise StopError(self.folder, fact, "The same command resumes it") from None

    def _may_evaluate(self, progress: float) -> bool:
        """Whether an evaluation is within its share of the time. A score that chooses weights is always measured."""
        return self.keep_best == "highest" or self.processes.from_main(self.overhead.may_evaluate(progress))

    def _may_save(self, progress: float) -> bool:
        """Whether a checkpoint is within its share of the time."""
        return bool(self.processes.from_main(self.overhead.may_save(progress)))

    def _keep_best(self, headline: str) -> None:
        before = self.state.best_metrics.get(headline, math.nan)
        sign = 1 if self.keep_best == "highest" else -1
        if not (math.isnan(before) or sign * self.state.metrics[headline] > sign * before):
            self.state.evaluations_since_best += 1
            return
        self.state.best_metrics, self.state.evaluations_since_best = dict(self.state.metrics), 0
        weights = self.train_step.average.state_dict()
        self.best_weights = {name: weight.detach().clone() for name, weight in weights.items()}

    def _should_stop(self) -> bool:
        """Early stopping: whether the patience is exhausted."""
        return self.config.patience is not None and self.state.evaluations_since_best >= self.config.patience

    def _stop_if_asked(self) -> None:
        """Stop where any process got a signal, or could not write the last checkpoint."""
        own = {"signals": bool(self.signals.received), "failures": self.writer.failed}
        asked = self.processes.sum_numbers(own)
        if asked["failures"]:
            self.writer.wait()  # raises the error, which other processes may not have heard of yet
        if asked["signals"]:
            self._save_and_stop()

    def _progress(self) -> float:
        """The fraction of the run that is done, by the main process's clock."""
        own = self._own_progress() if self.processes.main else 0.0
        return self.processes.sum_numbers({"progress": own})["progress"]

    def _own_progress(self) -> float:
        """The same by this process's clock."""
        if self.clock.wall is not None:
            self.clock.reserve = self.clock.wall.reserve + self.overhead.final_seconds(self.state.step)
        return self.clock.progress(self.state.step, self.feed.epoch(self.state.position))

    def _read_step_metrics(self, fraction: float, *, force: bool = False) -> None:
        """Log and show the metrics of the last steps, now and then."""
        if not self.processes.main or not self.step_metrics.is_due(force=force):
            return
        progress = self.step_metrics.read(self.state, self.clock, fraction)
        if not force:
            self.display.update(progress)
        if (most := self.step_metrics.most_skipped_in_a_row) >= MAX_SKIPPED_IN_A_ROW:
            fact = f"the gradient was not finite {most} steps in a row, up to step {self.state.step}"
            remedy = "The last checkpoint is whole; lower optimizer.learning_rate and run again"
            raise RunError(self.folder, fact, remedy)
