"""The loop: step, log, evaluate, save, written out by name. Knows no model and no task."""

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
from bertsmith.data.shuffle import mix
from bertsmith.errors import RecipeError, RunError, StopError
from bertsmith.objectives.base import Objective, Term
from bertsmith.train import checkpoint
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import Clock, Extent, Wall, seconds
from bertsmith.train.display import Display, Progress
from bertsmith.train.evaluate import SHARE, Validation
from bertsmith.train.graphs import Graphs
from bertsmith.train.log import Log
from bertsmith.train.machine import keep_memory
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.schedules import ScheduleConfig, factor
from bertsmith.train.signals import Signals

PATIENCE = 10  # steps in a row whose gradient is not a number, before a run gives up
PENDING = 100  # steps whose figures may wait on the device before they are read
DISK = 5e7  # bytes a second: how fast a checkpoint is written, before one was
RECORD = 3e-5  # seconds that the report takes for each step in the log


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a run is run. Exactly one of steps, epochs and budget says how long."""

    steps: int | None = None
    epochs: float | None = None
    budget: str | None = None  # wall-clock time, as in "10m"
    accumulate: int = 1  # micro-batches in one update
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bfloat16 keeps what layers hand on in full precision; pure does not, and so moves half as much memory.
    # auto: pure in a compiled step, else bfloat16 where the machine is faster by it
    precision: Literal["auto", "float32", "bfloat16", "pure"] = "auto"
    compile: Literal["auto", "never", "always"] = "auto"
    evaluations: int = 10  # over the run, evenly
    saves: int = 10  # over the run, evenly
    keep: int = 2  # checkpoints
    patience: int | None = None  # evaluations without a better score before a run ends early

    def __post_init__(self) -> None:
        given = [value for value in (self.steps, self.epochs, self.budget) if value is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of steps, epochs and budget, as in train.steps=1000")
        if self.budget is not None:
            seconds(self.budget)
        elif not given[0] > 0:  # type: ignore[operator]
            raise ValueError(f"a run of {given[0]} is no run. Give more than 0")
        if self.accumulate < 1 or self.keep < 1:
            raise ValueError("accumulate and keep are at least 1")

    @property
    def extent(self) -> Extent:
        budget = None if self.budget is None else seconds(self.budget)
        return Extent(steps=self.steps, epochs=self.epochs, budget=budget)


@dataclass(frozen=True)
class Speed:
    """How fast the arithmetic could go, so that a run can say how near it is."""

    peak: float | None  # FLOP/s of this device, None where it was not measured
    flops: Callable[[float], float]  # FLOPs a token needs, by the mean length it attends to


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
        measure: Callable[[], dict[str, float]],  # the figures of a validation
        headline: bool = False,  # whether the first figure is a score, whose best weights are kept
        untrained: bool = False,  # whether that score is also measured before the first step, as a baseline
        precision: torch.dtype,
        speed: Speed,
        display: Display,
        graphs: bool = False,  # whether batches come in few shapes, so that a GPU can play steps again
        tensorboard: bool = True,
        wall: Wall | None = None,  # the time of the whole command, where that and not the training is bounded
    ) -> None:
        self.objective, self.feed, self.optimizer = objective, feed, optimizer
        self.schedule, self.config, self.folder = schedule, config, folder
        self.measure, self.headline, self.untrained = measure, headline, untrained
        self.speed, self.display = speed, display
        self.device = next(objective.parameters()).device
        self.precision = precision
        self.compiles = self._compiles()
        half = self.compiles and precision != torch.float32
        self.pure = config.precision == "pure" or (config.precision == "auto" and half)
        self.compute = self._compute()
        self.graphs = Graphs(self._move, self.device) if graphs and self.device.type == "cuda" else None
        self._weights: dict[str, float] = {}  # of the losses by name, in the order of their figures
        self.log = Log(folder, tensorboard=tensorboard)
        self.wall = wall
        self.clock = Clock(config.extent, wall=wall)
        self.evaluating = self.saving = 0.0  # seconds of all evaluations and saves of this start, while the clock runs
        self._evaluation, self._save, self._stride = 0.0, self._bytes() / DISK, 0.0  # seconds of the last of each
        self.step, self.position, self.tokens, self.bad_in_a_row, self.skipped = 0, feed.first(), 0, 0, 0
        self.figures: dict[str, float] = {}
        self.best: dict[str, float] = {}  # the figures of the best validation
        self._best: dict[str, Tensor] = {}  # and its weights
        self.waited = 0  # validations since then
        self._pending: list[tuple[dict[str, Any], Tensor]] = []
        self._lap = _Lap(0.0, 0, 0)

    def fit(self) -> dict[str, float]:
        """Train to the end of the run, going on from the newest checkpoint. Returns the last validation figures."""
        if self.device.type == "cpu":
            keep_memory()
        self._resume()
        with Signals() as signals, self.feed.loader(self.position, pin=self.device.type == "cuda") as loader:
            if self.step == 0 and not self.headline:
                self.evaluate()
            if self.step == 0 and self.untrained:
                figures = self._measured()
                self.log.write({"kind": "untrained", "step": 0, **figures})
                self.display.say(f"before training: {_words(figures)}")
            self.objective.train()
            self._warm_up()
            self.clock.start()
            self.evaluating = self.saving = 0.0
            self._lap = _Lap(time.monotonic(), self.tokens, 0)
            share = self._share()
            while (share < 1 or self.step == 0) and not self._weary():  # a run takes a step, however late it is
                began = time.monotonic()
                batches = [next(loader) for _ in range(self.config.accumulate)]
                self.update([batch for _, batch in batches], factor(share, self.schedule))
                self.position = self.feed.after(batches[-1][0])
                self._stride = time.monotonic() - began
                before, share = share, self._share()
                self._read_pending(share)
                if _passed(before, share, self.config.evaluations) and self._may_evaluate(share):
                    self.evaluate()
                if signals.asked or (_passed(before, share, self.config.saves) and self._may_save(share)):
                    self.save()
                if signals.asked:
                    raise StopError(
                        self.folder, f"stopped at step {self.step}, saved", "The same command goes on from there"
                    )
            if self.figures.get("step") != self.step:
                self.evaluate()
            if self.config.saves:
                self.save()
            self.feed.verify()
        self.log.close()
        return self.figures

    def update(self, batches: Sequence[Batch], rate_factor: float) -> None:
        """One update. Losses are sums; they are divided once, by the counts of all micro-batches together."""
        counts: Counter[str] = Counter()
        for batch in batches:
            counts.update(batch.counts)
        self.optimizer.set_rate(rate_factor)
        if self.graphs is not None and len(batches) == 1:
            self._seed(0)
            figures = self.graphs(batches[0])
        else:
            losses = torch.stack([self._losses(batch, counts, index) for index, batch in enumerate(batches)]).sum(0)
            figures = self._moved(losses)
        self.step += 1
        self.tokens += counts["tokens"]
        record = {"kind": "step", "step": self.step, "terms": self._weights, "tokens": self.tokens}
        record["rate"] = self.optimizer.config.rate * rate_factor
        self._lap.squares += counts["squares"]
        self._pending.append((record, figures))

    def _losses(self, batch: Batch, counts: Mapping[str, Any], index: int) -> Tensor:
        """The share of one micro-batch in each loss, and its gradient added to what there is."""
        self._seed(index)
        return self._backward(self._terms(batch), counts)

    def _move(self, batch: Batch, counts: Mapping[str, Any]) -> Tensor:
        """A whole update by one batch that is on the device already: what can be recorded and played again."""
        return self._moved(self._backward(self._guess(batch), counts))

    def _backward(self, terms: Mapping[str, Term], counts: Mapping[str, Any]) -> Tensor:
        self._weights = {name: term.weight for name, term in terms.items()}
        # Where nothing was asked, as whether texts were swapped where there are no two, nought is a loss of nought.
        asked = {name: torch.as_tensor(counts[name]).clamp(min=1) for name in terms}
        losses = {name: term.total / asked[name] for name, term in terms.items()}
        weighted = torch.stack([self._weights[name] * loss for name, loss in losses.items()])
        weighted.sum().backward()  # type: ignore[no-untyped-call]
        return torch.stack(list(losses.values())).detach()

    def _moved(self, losses: Tensor) -> Tensor:
        """The update itself: losses, the gradient's length, and whether it was no number."""
        norm, bad = self.optimizer.move()
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
        figures = self._measured()
        self.figures = {"step": self.step, **figures}
        self.log.write({"kind": "valid", **self.figures})
        self.display.validated(_validation_line(self.step, figures))
        if self.headline:
            self._keep_best(next(iter(figures)))
        self._evaluation = self.measure.took if isinstance(self.measure, Validation) else time.monotonic() - began
        self.evaluating += self._evaluation
        self._lap = _Lap(time.monotonic(), self.tokens, 0)

    def _measured(self) -> dict[str, float]:
        """The figures of the weights as they are now."""
        was_training = self.objective.training
        self.objective.eval()
        with torch.inference_mode(), self._autocast():
            figures = self.measure()
        self.objective.train(was_training)
        return figures

    def recall(self) -> None:
        """Go back to the weights of the best validation."""
        self.objective.load_state_dict(self._best)
        self.figures = self.best

    def save(self) -> None:
        """A checkpoint of all that the next step depends on."""
        self.feed.verify()
        self._read_pending(0.0, force=True)
        began = time.monotonic()
        self.log.sync()
        tensors = {"model": dict(self.objective.state_dict()), "optimizer": self.optimizer.state()}
        if self._best:
            tensors["best"] = self._best
        state = {
            "position": self.position,
            "tokens": self.tokens,
            "seconds": self.clock.used,
            "bad_in_a_row": self.bad_in_a_row,
            "skipped": self.skipped,
            "figures": self.figures,
            "best": self.best,
            "waited": self.waited,
            "data": self.feed.fingerprint,
        }
        if isinstance(self.measure, Validation):
            state["validation"] = self.measure.count
        if self.wall is not None:
            over = self._share() >= 1
            spent, evaluation = round(self.clock.spent, 3), round(self._evaluation, 3)
            state["wall"] = {"budget": self.wall.budget, "spent": spent, "evaluation": evaluation, "over": over}
        checkpoint.save(self.folder / "checkpoints", Checkpoint(self.step, tensors, state), keep=self.config.keep)
        self._save = time.monotonic() - began
        self.saving += self._save
        self._lap = _Lap(time.monotonic(), self.tokens, 0)

    def _resume(self) -> None:
        found = checkpoint.newest(self.folder / "checkpoints")
        if found is None:
            self.log.rewind(-1)
            return
        saved, broken = found
        for line in broken:
            self.display.say(line)
        if saved.state["data"] != self.feed.fingerprint:
            raise RunError(self.folder, "was begun with other data", "Choose another folder, or give it the same data")
        self.objective.load_state_dict(saved.tensors["model"])
        self.optimizer.restore(saved.tensors["optimizer"])
        self.step, state = saved.step, saved.state
        self.position, self.tokens, self.figures = state["position"], state["tokens"], state["figures"]
        self.bad_in_a_row, self.skipped = state["bad_in_a_row"], state["skipped"]
        self.best, self.waited, self._best = state["best"], state["waited"], saved.tensors.get("best", {})
        if isinstance(self.measure, Validation) and state.get("validation"):
            self.measure.count = state["validation"]
        self._go_on(state)
        if damage := self.log.rewind(self.step, every=True):
            self.display.say(damage)
        self.display.say(f"going on from step {self.step}")

    def _go_on(self, state: Mapping[str, Any]) -> None:
        """The clock of a run that was begun before. One that has ended goes on only if its time was made longer."""
        walled = state.get("wall")
        if self.wall is None or not walled:  # what was trained then is what was spent then, as far as is known
            self.clock = Clock(self.config.extent, state["seconds"], self.wall, spent=state["seconds"])
            return
        self.clock = Clock(self.config.extent, state["seconds"], self.wall, spent=walled["spent"])
        self._evaluation = walled["evaluation"]
        self.clock.over = walled["over"] and self.wall.budget <= walled["budget"]

    def _may_evaluate(self, share: float) -> bool:
        """Whether one more evaluation keeps them to a small share of the time, the last one included.

        Only where time bounds the run: else its length is known in updates, and so is what evaluations cost of it. A
        score by which the best weights are chosen is always taken.
        """
        if self.headline or (self.wall is None and self.config.budget is None):
            return True
        return self.evaluating + 2 * self._evaluation <= SHARE * self.clock.used / share

    def _may_save(self, share: float) -> bool:
        """The same of a save, where a person waits for the end: a kill costs what was done since the last one."""
        return self.wall is None or self.saving + 2 * self._save <= SHARE * self.clock.used / share

    def _bytes(self) -> int:
        """Of a checkpoint, about: weights and two moments."""
        return 3 * sum(parameter.nbytes for parameter in self.objective.parameters())

    def _keep_best(self, headline: str) -> None:
        before = self.best.get(headline, math.nan)
        if not (math.isnan(before) or self.figures[headline] > before):
            self.waited += 1
            return
        self.best, self.waited = dict(self.figures), 0
        self._best = {name: weight.detach().clone() for name, weight in self.objective.state_dict().items()}

    def _weary(self) -> bool:
        return self.config.patience is not None and self.waited >= self.config.patience

    def _warm_up(self) -> None:
        """Compile before the clock starts: one pass whose gradient is thrown away."""
        if self.compiles:
            self.display.say("compiling the step")
            warnings.filterwarnings("ignore", module="torch._inductor")  # notes from one of its authors to another
            sum(term.total for term in self._terms(self.feed(self.position)).values()).backward()
            self.optimizer.forget()
            if self.device.type == "cuda":
                torch.cuda.synchronize()

    def _terms(self, batch: Batch) -> dict[str, Any]:
        # The counts are for the host: a compiled step that saw them would be compiled anew for each.
        return self._guess(replace(batch.to(self.device), counts={}))

    def _guess(self, batch: Batch) -> dict[str, Any]:
        with nullcontext() if self.pure else self._autocast():
            terms: dict[str, Any] = self.compute(batch)
        return terms

    def _compiles(self) -> bool:
        if not recurs(self.objective):
            return compiles(self.config, self.precision, self.device)
        if self.config.compile == "always":
            fact = "recurrent layers have kernels of their own, which the compiler cannot look into"
            raise RecipeError("train.compile", fact, "Use auto or never")
        return False

    def _compute(self) -> Callable[[Batch], Any]:
        compute: Callable[[Batch], Any] = self._rounded if self.pure else self.objective
        return torch.compile(compute, fullgraph=True, dynamic=False) if self.compiles else compute

    def _rounded(self, batch: Batch) -> Any:
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

    def _share(self) -> float:
        if self.wall is not None:
            # After the last step: an evaluation, a save, a model folder of about half its size, and the report. Beside
            # other work each may take longer than the last time.
            after = 1.3 * self._evaluation + 2.0 * self._save + RECORD * self.step + self._stride
            self.clock.reserve = self.wall.reserve + after
        return self.clock.share(self.step, self.feed.epoch(self.position))

    def _read_pending(self, share: float, *, force: bool = False) -> None:
        """Bring the figures of the last steps to the host, now and then, and show and log them."""
        now = time.monotonic()
        if not self._pending or not (force or len(self._pending) >= PENDING or now - self._lap.began > 0.5):
            return
        rows = torch.stack([figures for _, figures in self._pending]).tolist()  # here alone the host waits
        now, longest = time.monotonic(), 0
        rate = (self.tokens - self._lap.tokens) / max(now - self._lap.began, 1e-9)
        timing = {"seconds": round(self.clock.used, 3), "speed": round(rate)}
        for number, ((record, _), row) in enumerate(zip(self._pending, rows, strict=True), 1):
            *losses, norm, bad = row
            terms = dict(zip(record["terms"], losses, strict=True))
            self.bad_in_a_row = self.bad_in_a_row + 1 if bad else 0
            longest = max(longest, self.bad_in_a_row)
            self.skipped += bool(bad)
            loss = sum(weight * terms[name] for name, weight in record["terms"].items())
            self.log.write(
                {**record, "loss": loss, "terms": terms, "norm": norm, "skipped": self.skipped} | timing,
                curves=number == len(rows),  # a point now and then is curve enough
            )
        attended = self._lap.squares / max(self.tokens - self._lap.tokens, 1)
        used = None if self.speed.peak is None else rate * self.speed.flops(attended) / self.speed.peak
        self._pending.clear()
        self._lap = _Lap(now, self.tokens, 0)
        if not force:
            left = self.clock.left(share)
            self.display.update(
                Progress(
                    step=self.step,
                    share=share,
                    loss=loss,
                    rate=record["rate"],
                    tokens_per_second=rate,
                    mfu=used,
                    seconds_left=left,
                )
            )
        if longest >= PATIENCE:
            raise RunError(
                self.folder,
                f"the gradient was not a number {longest} steps in a row, up to step {self.step}",
                "The last checkpoint is whole; lower optimizer.rate and run again",
            )


def compiles(config: TrainConfig, precision: torch.dtype, device: torch.device) -> bool:
    """Whether steps are compiled, of networks that can be."""
    # In full precision attention looks at the bounds on the host, which cannot be compiled into one graph.
    fits = device.type == "cuda" and precision != torch.float32
    return config.compile == "always" or (config.compile == "auto" and fits)


def records(objective: Objective, config: TrainConfig, precision: torch.dtype, device: torch.device) -> bool:
    """Whether pretraining is played on a GPU, and not told step by step: then kernels follow each other at once.

    Micro-batches are told one by one, and so are steps that wait for the host.
    """
    whole = recurs(objective) or compiles(config, precision, device)
    return device.type == "cuda" and config.accumulate == 1 and whole


def recurs(objective: Objective) -> bool:
    """Whether it has recurrent layers: on a GPU such steps are not compiled, but recorded."""
    return any(isinstance(part, nn.RNNBase) for part in objective.modules())


def _passed(before: float, now: float, times: int) -> bool:
    """Whether one of so many evenly spaced marks lies between two shares of the run. The end is no mark."""
    return now < 1 and math.floor(now * times) > math.floor(before * times)


@dataclass
class _Lap:
    """The stretch of steps over which the speed is measured."""

    began: float
    tokens: int
    squares: int


def _validation_line(step: int, figures: dict[str, float]) -> str:
    return f"step {step}: validation {_words(figures)}"


def _words(figures: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in figures.items())
