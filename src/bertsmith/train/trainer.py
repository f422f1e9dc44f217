"""The training loop: step, log, evaluate, save, written out by name. Knows no model and no task.

Gradient accumulation over micro-batches, mixed precision (bfloat16 products, float32 weights), early stopping by
patience, and checkpoints from which a killed run continues exactly.
"""

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bertsmith.data.batch import Batch
from bertsmith.data.feed import Feed
from bertsmith.errors import RecipeError, RunError, StopError
from bertsmith.objectives.base import Objective, Term
from bertsmith.random_bits import mix
from bertsmith.train import checkpoint
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import Clock, Extent, WallBudget, parse_duration
from bertsmith.train.cuda_graphs import CudaGraphs
from bertsmith.train.display import Display, Progress
from bertsmith.train.evaluate import EVALUATION_SHARE, Validation
from bertsmith.train.hardware import keep_freed_memory
from bertsmith.train.log import Log
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.schedules import ScheduleConfig, learning_rate_factor
from bertsmith.train.signals import Signals

MAX_SKIPPED_IN_A_ROW = 10  # steps in a row whose gradient is not a number, before a run gives up
MAX_PENDING = 100  # steps whose figures may wait on the device before they are read
DISK_BYTES_PER_SECOND = 5e7  # bytes a second: how fast a checkpoint is written, before one was
REPORT_SECONDS_PER_STEP = 3e-5  # seconds that the report takes for each step in the log


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a run is run. Exactly one of steps, epochs and budget says how long."""

    steps: int | None = None
    epochs: float | None = None
    budget: str | None = None  # wall-clock time, as in "10m"
    gradient_accumulation: int = 1  # micro-batches in one update
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bfloat16 keeps what layers hand on in full precision; pure does not, and so moves half as much memory.
    # auto: pure in a compiled step, else bfloat16 where the machine is faster by it
    precision: Literal["auto", "float32", "bfloat16", "pure"] = "auto"
    compile: Literal["auto", "never", "always"] = "auto"
    evaluations: int = 10  # over the run, evenly
    checkpoints: int = 10  # over the run, evenly
    keep_checkpoints: int = 2  # checkpoints
    patience: int | None = None  # evaluations without a better score before a run ends early

    def __post_init__(self) -> None:
        given = [value for value in (self.steps, self.epochs, self.budget) if value is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of steps, epochs and budget, as in train.steps=1000")
        if self.budget is not None:
            parse_duration(self.budget)
        elif not given[0] > 0:  # type: ignore[operator]
            raise ValueError(f"a run of {given[0]} is no run. Give more than 0")
        if self.gradient_accumulation < 1 or self.keep_checkpoints < 1:
            raise ValueError("gradient_accumulation and keep_checkpoints are at least 1")

    @property
    def extent(self) -> Extent:
        budget = None if self.budget is None else parse_duration(self.budget)
        return Extent(steps=self.steps, epochs=self.epochs, budget=budget)


@dataclass(frozen=True)
class Speed:
    """How fast the arithmetic could go, so that a run can say how near it is."""

    peak_flops: float | None  # FLOP/s of this device, None where it was not measured
    flops_per_token: Callable[[float], float]  # FLOPs a token needs, by the mean length it attends to


class Trainer:
    """One run: a state, and the one step that moves it on. What is random is keyed by (seed, step)."""

    def __init__(
        self,
        objective: Objective,
        feed: Feed,
        optimizer: Optimizer,
        schedule: ScheduleConfig,
        config: TrainConfig,
        *,
        folder: Path,
        compute_metrics: Callable[[], dict[str, float]],  # the figures of a validation
        metric_name: Callable[[str], str] = lambda key: key.replace("_", " "),  # how the console calls a metric
        keep_best: bool = False,  # whether the first figure is a score, whose best weights are kept
        evaluate_untrained: bool = False,  # whether that score is also measured before the first step, as a baseline
        precision: torch.dtype,
        speed: Speed,
        display: Display,
        graphs: bool = False,  # whether batches come in few shapes, so that a GPU can play steps again
        tensorboard: bool = True,
        wall: WallBudget | None = None,  # the time of the whole command, where that and not the training is bounded
    ) -> None:
        self.objective, self.feed, self.optimizer = objective, feed, optimizer
        self.schedule, self.config, self.folder = schedule, config, folder
        self.compute_metrics, self.keep_best, self.evaluate_untrained = compute_metrics, keep_best, evaluate_untrained
        self.speed, self.display, self.metric_name = speed, display, metric_name
        self.device = next(objective.parameters()).device
        self.precision = precision
        self.compiles = self._compiles()
        half = self.compiles and precision != torch.float32
        self.casts_weights = config.precision == "pure" or (config.precision == "auto" and half)
        self.forward = self._make_forward()
        self.graphs = CudaGraphs(self._training_step, self.device) if graphs and self.device.type == "cuda" else None
        self._loss_weights: dict[str, float] = {}  # of the losses by name, in the order of their figures
        self.log = Log(folder, tensorboard=tensorboard)
        self.wall = wall
        self.clock = Clock(config.extent, wall=wall)
        # Seconds of all evaluations and saves of this start, while the clock runs; and of the last of each.
        self.evaluation_seconds = self.checkpoint_seconds = 0.0
        self._last_evaluation_seconds, self._last_checkpoint_seconds, self._last_step_seconds = (
            0.0,
            self._checkpoint_bytes() / DISK_BYTES_PER_SECOND,
            0.0,
        )
        self.step, self.position, self.tokens, self.skipped_in_a_row, self.skipped = 0, feed.first_position(), 0, 0, 0
        self.metrics: dict[str, float] = {}
        self.best_metrics: dict[str, float] = {}  # the figures of the best validation
        self._best_weights: dict[str, Tensor] = {}  # and its weights
        self.evaluations_since_best = 0  # validations since then
        self._pending: list[tuple[dict[str, Any], Tensor]] = []
        self._lap = _Lap(0.0, 0, 0)

    def fit(self) -> dict[str, float]:
        """Train to the end of the run, going on from the newest checkpoint. Returns the last validation figures."""
        if self.device.type == "cpu":
            keep_freed_memory()
        self._resume()
        with Signals() as signals, self.feed.loader(self.position, pin_memory=self.device.type == "cuda") as loader:
            if self.step == 0 and not self.keep_best:
                self.evaluate()
            if self.step == 0 and self.evaluate_untrained:
                figures = self._evaluate()
                self.log.write({"kind": "untrained", "step": 0, **figures})
                self.display.say(f"before training: {self._format_metrics(figures)}")
            self.objective.train()
            self._warm_up()
            self.clock.start()
            self.evaluation_seconds = self.checkpoint_seconds = 0.0
            self._lap = _Lap(time.monotonic(), self.tokens, 0)
            share = self._progress()
            while (share < 1 or self.step == 0) and not self._should_stop():  # a run takes a step, however late it is
                began = time.monotonic()
                batches = [next(loader) for _ in range(self.config.gradient_accumulation)]
                self.update([batch for _, batch in batches], learning_rate_factor(share, self.schedule))
                self.position = self.feed.next_position(batches[-1][0])
                self._last_step_seconds = time.monotonic() - began
                before, share = share, self._progress()
                self._read_pending(share)
                if _crossed_mark(before, share, self.config.evaluations) and self._may_evaluate(share):
                    self.evaluate()
                if signals.received or (
                    _crossed_mark(before, share, self.config.checkpoints) and self._may_save(share)
                ):
                    self.save()
                if signals.received:
                    raise StopError(
                        self.folder, f"stopped at step {self.step}, saved", "The same command goes on from there"
                    )
            if self.metrics.get("step") != self.step:
                self.evaluate()
            if self.config.checkpoints:
                self.save()
            self.feed.verify()
        self.log.close()
        return self.metrics

    def update(self, batches: Sequence[Batch], rate_factor: float) -> None:
        """One update. Losses are sums; they are divided once, by the counts of all micro-batches together."""
        counts: Counter[str] = Counter()
        for batch in batches:
            counts.update(batch.counts)
        self.optimizer.set_learning_rate(rate_factor)
        if self.graphs is not None and len(batches) == 1:
            self._seed(0)
            figures = self.graphs(batches[0])
        else:
            losses = torch.stack(
                [self._micro_batch_losses(batch, counts, index) for index, batch in enumerate(batches)]
            ).sum(0)
            figures = self._optimizer_step(losses)
        self.step += 1
        self.tokens += counts["tokens"]
        record = {"kind": "step", "step": self.step, "terms": self._loss_weights, "tokens": self.tokens}
        record["learning_rate"] = self.optimizer.config.learning_rate * rate_factor
        self._lap.squares += counts["squares"]
        self._pending.append((record, figures))

    def _micro_batch_losses(self, batch: Batch, counts: Mapping[str, Any], index: int) -> Tensor:
        """The share of one micro-batch in each loss, and its gradient added to what there is."""
        self._seed(index)
        return self._backward(self._terms(batch), counts)

    def _training_step(self, batch: Batch, counts: Mapping[str, Any]) -> Tensor:
        """A whole update by one batch that is on the device already: what can be recorded and played again."""
        return self._optimizer_step(self._backward(self._forward(batch), counts))

    def _backward(self, terms: Mapping[str, Term], counts: Mapping[str, Any]) -> Tensor:
        self._loss_weights = {name: term.weight for name, term in terms.items()}
        # Where nothing was asked, as whether texts were swapped where there are no two, nought is a loss of nought.
        asked = {name: torch.as_tensor(counts[name]).clamp(min=1) for name in terms}
        losses = {name: term.total / asked[name] for name, term in terms.items()}
        weighted = torch.stack([self._loss_weights[name] * loss for name, loss in losses.items()])
        weighted.sum().backward()  # type: ignore[no-untyped-call]
        return torch.stack(list(losses.values())).detach()

    def _optimizer_step(self, losses: Tensor) -> Tensor:
        """The update itself: losses, the gradient's length, and whether it was no number."""
        norm, bad = self.optimizer.step()
        return torch.cat([losses, torch.stack([norm, bad.float()])])

    def _seed(self, index: int) -> None:
        seed = int(mix(self.config.seed, self.step, index)) >> 1
        if self.device.type == "cpu":  # for a GPU that is not there torch would note down who has asked
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def evaluate(self) -> None:
        """Measure on the validation batches, and write it down."""
        self._read_pending(0.0, force=True)
        began = time.monotonic()
        figures = self._evaluate()
        self.metrics = {"step": self.step, **figures}
        self.log.write({"kind": "validation", **self.metrics})
        self.display.show_validation(f"step {self.step}: validation {self._format_metrics(figures)}")
        if self.keep_best:
            self._keep_best(next(iter(figures)))
        self._last_evaluation_seconds = (
            self.compute_metrics.last_seconds
            if isinstance(self.compute_metrics, Validation)
            else time.monotonic() - began
        )
        self.evaluation_seconds += self._last_evaluation_seconds
        self._lap = _Lap(time.monotonic(), self.tokens, 0)

    def _evaluate(self) -> dict[str, float]:
        """The figures of the weights as they are now."""
        was_training = self.objective.training
        self.objective.eval()
        with torch.inference_mode(), self._autocast():
            figures = self.compute_metrics()
        self.objective.train(was_training)
        return figures

    def _format_metrics(self, metrics: dict[str, float]) -> str:
        return ", ".join(f"{self.metric_name(key)} {value:.3f}" for key, value in metrics.items())

    def load_best(self) -> None:
        """Go back to the weights of the best validation."""
        self.objective.load_state_dict(self._best_weights)
        self.metrics = self.best_metrics

    def save(self) -> None:
        """A checkpoint of all that the next step depends on."""
        self.feed.verify()
        self._read_pending(0.0, force=True)
        began = time.monotonic()
        self.log.sync()
        tensors = {"model": dict(self.objective.state_dict()), "optimizer": self.optimizer.state_dict()}
        if self._best_weights:
            tensors["best_model"] = self._best_weights
        state = {
            "position": self.position,
            "tokens": self.tokens,
            "training_seconds": self.clock.training_seconds,
            "skipped_in_a_row": self.skipped_in_a_row,
            "skipped": self.skipped,
            "metrics": self.metrics,
            "best_metrics": self.best_metrics,
            "evaluations_since_best": self.evaluations_since_best,
            "data_fingerprint": self.feed.fingerprint,
        }
        if isinstance(self.compute_metrics, Validation):
            state["validation_batches"] = self.compute_metrics.count
        if self.wall is not None:
            state["wall_budget"] = {
                "budget": self.wall.budget,
                "total_seconds": round(self.clock.total_seconds, 3),
                "evaluation_seconds": round(self._last_evaluation_seconds, 3),
                "finished": self._progress() >= 1,
            }
        checkpoint.save(
            self.folder / "checkpoints", Checkpoint(self.step, tensors, state), keep=self.config.keep_checkpoints
        )
        self._last_checkpoint_seconds = time.monotonic() - began
        self.checkpoint_seconds += self._last_checkpoint_seconds
        self._lap = _Lap(time.monotonic(), self.tokens, 0)

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
        self.step, state = saved.step, saved.state
        self.position, self.tokens, self.metrics = state["position"], state["tokens"], state["metrics"]
        self.skipped_in_a_row, self.skipped = state["skipped_in_a_row"], state["skipped"]
        self.best_metrics, self._best_weights = state["best_metrics"], saved.tensors.get("best_model", {})
        self.evaluations_since_best = state["evaluations_since_best"]
        if isinstance(self.compute_metrics, Validation) and state.get("validation_batches"):
            self.compute_metrics.count = state["validation_batches"]
        self._restore_clock(state)
        if damage := self.log.rewind(self.step, every_step=True):
            self.display.say(damage)
        self.display.say(f"going on from step {self.step}")

    def _restore_clock(self, state: Mapping[str, Any]) -> None:
        """The clock of a run that was begun before. One that has ended goes on only if its time was made longer."""
        seconds, saved = state["training_seconds"], state.get("wall_budget")
        # A run that had no wall budget before is charged for its training alone: nothing else was recorded.
        total = saved["total_seconds"] if self.wall is not None and saved else seconds
        self.clock = Clock(self.config.extent, seconds, self.wall, total_seconds=total)
        if self.wall is not None and saved:
            self._last_evaluation_seconds = saved["evaluation_seconds"]
            self.clock.finished = saved["finished"] and self.wall.budget <= saved["budget"]

    def _may_evaluate(self, progress: float) -> bool:
        """Whether one more evaluation keeps them to a small share of the time, the last one included.

        Only where time bounds the run: else its length is known in updates, and so is what evaluations cost of it. A
        score by which the best weights are chosen is always taken.
        """
        if self.keep_best or (self.wall is None and self.config.budget is None):
            return True
        return (
            self.evaluation_seconds + 2 * self._last_evaluation_seconds
            <= EVALUATION_SHARE * self.clock.training_seconds / progress
        )

    def _may_save(self, progress: float) -> bool:
        """The same of a save, where a person waits for the end: a kill costs what was done since the last one."""
        return (
            self.wall is None
            or self.checkpoint_seconds + 2 * self._last_checkpoint_seconds
            <= EVALUATION_SHARE * self.clock.training_seconds / progress
        )

    def _checkpoint_bytes(self) -> int:
        """Of a checkpoint, about: weights and two moments."""
        return 3 * sum(parameter.nbytes for parameter in self.objective.parameters())

    def _keep_best(self, headline: str) -> None:
        before = self.best_metrics.get(headline, math.nan)
        if not (math.isnan(before) or self.metrics[headline] > before):
            self.evaluations_since_best += 1
            return
        self.best_metrics, self.evaluations_since_best = dict(self.metrics), 0
        self._best_weights = {name: weight.detach().clone() for name, weight in self.objective.state_dict().items()}

    def _should_stop(self) -> bool:
        return self.config.patience is not None and self.evaluations_since_best >= self.config.patience

    def _warm_up(self) -> None:
        """Compile before the clock starts: one pass whose gradient is thrown away."""
        if self.compiles:
            self.display.say("compiling the step")
            warnings.filterwarnings("ignore", module="torch._inductor")  # notes from one of its authors to another
            sum(term.total for term in self._terms(self.feed(self.position)).values()).backward()
            self.optimizer.zero_grad()
            if self.device.type == "cuda":
                torch.cuda.synchronize()

    def _terms(self, batch: Batch) -> dict[str, Any]:
        # The counts are for the host: a compiled step that saw them would be compiled anew for each.
        return self._forward(replace(batch.to(self.device), counts={}))

    def _forward(self, batch: Batch) -> dict[str, Any]:
        with nullcontext() if self.casts_weights else self._autocast():
            terms: dict[str, Any] = self.forward(batch)
        return terms

    def _compiles(self) -> bool:
        if not is_recurrent(self.objective):
            return should_compile(self.config, self.precision, self.device)
        if self.config.compile == "always":
            fact = "recurrent layers have kernels of their own, which the compiler cannot look into"
            raise RecipeError("train.compile", fact, "Use auto or never")
        return False

    def _make_forward(self) -> Callable[[Batch], Any]:
        compute: Callable[[Batch], Any] = self._cast_weights if self.casts_weights else self.objective
        return torch.compile(compute, fullgraph=True, dynamic=False) if self.compiles else compute

    def _cast_weights(self, batch: Batch) -> Any:
        """The objective with every weight rounded once for the whole step; the weights themselves stay as they are."""
        weights = {**dict(self.objective.named_parameters()), **dict(self.objective.named_buffers())}
        rounded = {name: one.to(self.precision) if one.is_floating_point() else one for name, one in weights.items()}
        # What two networks share is a module of both, and is exchanged in both at once: to exchange it by each of its
        # names, as `tie_weights` would, leaves the rounded weight behind in the place of the true one.
        return functional_call(self.objective, rounded, (batch,), tie_weights=False)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)

    def _progress(self) -> float:
        if self.wall is not None:
            # After the last step: an evaluation, a save, a model folder of about half its size, and the report. Beside
            # other work each may take longer than the last time.
            after = (
                1.3 * self._last_evaluation_seconds
                + 2.0 * self._last_checkpoint_seconds
                + REPORT_SECONDS_PER_STEP * self.step
                + self._last_step_seconds
            )
            self.clock.reserve = self.wall.reserve + after
        return self.clock.progress(self.step, self.feed.epoch(self.position))

    def _read_pending(self, progress: float, *, force: bool = False) -> None:
        """Bring the figures of the last steps to the host, now and then, and show and log them."""
        now = time.monotonic()
        if not self._pending or not (force or len(self._pending) >= MAX_PENDING or now - self._lap.started > 0.5):
            return
        rows = torch.stack([figures for _, figures in self._pending]).tolist()  # here alone the host waits
        now, longest = time.monotonic(), 0
        rate = (self.tokens - self._lap.tokens) / max(now - self._lap.started, 1e-9)
        timing = {"seconds": round(self.clock.training_seconds, 3), "tokens_per_second": round(rate)}
        for number, ((record, _), row) in enumerate(zip(self._pending, rows, strict=True), 1):
            *losses, norm, bad = row
            terms = dict(zip(record["terms"], losses, strict=True))
            self.skipped_in_a_row = self.skipped_in_a_row + 1 if bad else 0
            longest = max(longest, self.skipped_in_a_row)
            self.skipped += bool(bad)
            loss = sum(weight * terms[name] for name, weight in record["terms"].items())
            self.log.write(
                {**record, "loss": loss, "terms": terms, "gradient_norm": norm, "skipped": self.skipped} | timing,
                scalars=number == len(rows),  # a point now and then is curve enough
            )
        attended = self._lap.squares / max(self.tokens - self._lap.tokens, 1)
        used = (
            None
            if self.speed.peak_flops is None
            else rate * self.speed.flops_per_token(attended) / self.speed.peak_flops
        )
        self._pending.clear()
        self._lap = _Lap(now, self.tokens, 0)
        if not force:
            left = self.clock.remaining(progress)
            self.display.update(
                Progress(
                    step=self.step,
                    fraction=progress,
                    loss=loss,
                    learning_rate=record["learning_rate"],
                    tokens_per_second=rate,
                    mfu=used,
                    seconds_left=left,
                )
            )
        if longest >= MAX_SKIPPED_IN_A_ROW:
            raise RunError(
                self.folder,
                f"the gradient was not a number {longest} steps in a row, up to step {self.step}",
                "The last checkpoint is whole; lower optimizer.learning_rate and run again",
            )


def should_compile(config: TrainConfig, precision: torch.dtype, device: torch.device) -> bool:
    """Whether steps are compiled, of networks that can be."""
    # In full precision attention looks at the bounds on the host, which cannot be compiled into one graph.
    fits = device.type == "cuda" and precision != torch.float32
    return config.compile == "always" or (config.compile == "auto" and fits)


def should_capture(objective: Objective, config: TrainConfig, precision: torch.dtype, device: torch.device) -> bool:
    """Whether pretraining is played on a GPU, and not told step by step: then kernels follow each other at once.

    Micro-batches are told one by one, and so are steps that wait for the host.
    """
    whole = is_recurrent(objective) or should_compile(config, precision, device)
    return device.type == "cuda" and config.gradient_accumulation == 1 and whole


def is_recurrent(objective: Objective) -> bool:
    """Whether it has recurrent layers: on a GPU such steps are not compiled, but recorded."""
    return any(isinstance(part, nn.RNNBase) for part in objective.modules())


def _crossed_mark(before: float, now: float, times: int) -> bool:
    """Whether one of so many evenly spaced marks lies between two shares of the run. The end is no mark."""
    return now < 1 and math.floor(now * times) > math.floor(before * times)


@dataclass
class _Lap:
    """The stretch of steps over which the speed is measured."""

    started: float
    tokens: int
    squares: int
