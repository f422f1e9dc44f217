"""Metrics of training steps: losses and gradient norms, which stay on the device until they are read together."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bertsmith.train.clock import Clock
from bertsmith.train.display import Progress
from bertsmith.train.log import Log
from bertsmith.train.run_state import RunState
from bertsmith.train.step import StepResult

MAX_PENDING = 100  # steps whose metrics may wait on the device
SECONDS_BETWEEN_READS = 0.5


@dataclass(frozen=True)
class Speed:
    """What the speed of a run is compared with, for its model FLOPs utilisation (MFU)."""

    peak_flops: float | None  # FLOP/s of one device, None if it was not measured
    flops_per_token: Callable[[float], float]  # FLOPs per token, by the mean length that it attends to


class StepMetrics:
    """Collects the metrics of steps, and writes them to the log when they are read."""

    def __init__(self, log: Log, speed: Speed, devices: int = 1) -> None:
        self.log, self.speed, self.devices = log, speed, devices  # tokens are counted over all devices
        self.most_skipped_in_a_row = 0  # updates, among those of the last reading and right before
        self._pending: list[tuple[dict[str, Any], Tensor]] = []
        self.start_lap(0)

    def start_lap(self, tokens: int) -> None:
        """Measure the speed from now on."""
        self._lap_started, self._lap_tokens = time.monotonic(), tokens
        self._lap_squares = self._lap_images = 0

    def add(self, state: RunState, result: StepResult) -> None:
        """Take what the newest step has computed."""
        record = {"kind": "step", "step": state.step, "terms": result.loss_weights, "tokens": state.tokens}
        self._pending.append((record | {"learning_rate": result.learning_rate}, result.values))
        self._lap_squares += result.counts["squares"]
        self._lap_images += result.counts.get("images", 0)

    def is_due(self, *, force: bool) -> bool:
        late = time.monotonic() - self._lap_started > SECONDS_BETWEEN_READS
        return bool(self._pending) and (force or len(self._pending) >= MAX_PENDING or late)

    def read(self, state: RunState, clock: Clock, fraction: float) -> Progress:
        """Bring the pending metrics to the host and log them; the state counts the updates that were skipped.

        Returns the newest ones for the console, at this fraction of the run.
        """
        rows = torch.stack([values for _, values in self._pending]).tolist()  # only here does the host wait
        tokens, seconds = state.tokens - self._lap_tokens, time.monotonic() - self._lap_started
        speed, self.most_skipped_in_a_row = tokens / max(seconds, 1e-9), 0
        timing = {"seconds": round(clock.training_seconds, 3), "tokens_per_second": round(speed)}
        for number, ((record, _), row) in enumerate(zip(self._pending, rows, strict=True), 1):
            *losses, norm, bad = row
            terms = dict(zip(record["terms"], losses, strict=True))
            state.skipped_in_a_row = state.skipped_in_a_row + 1 if bad else 0
            self.most_skipped_in_a_row = max(self.most_skipped_in_a_row, state.skipped_in_a_row)
            state.skipped += bool(bad)
            loss = sum(weight * terms[name] for name, weight in record["terms"].items())
            self.log.write(
                {**record, "loss": loss, "terms": terms, "gradient_norm": norm, "skipped": state.skipped} | timing,
                scalars=number == len(rows),  # TensorBoard's curves need no more points
            )
        attended = self._lap_squares / max(tokens, 1)
        images = self._lap_images / max(seconds, 1e-9) if self._lap_images else None
        peak = self.speed.peak_flops
        mfu = None if peak is None else speed * self.speed.flops_per_token(attended) / (self.devices * peak)
        self._pending.clear()
        self.start_lap(state.tokens)
        return Progress(
            step=state.step,
            fraction=fraction,
            loss=loss,
            learning_rate=record["learning_rate"],
            tokens_per_second=speed,
            images_per_second=images,
            mfu=mfu,
            seconds_left=clock.remaining(fraction),
        )
