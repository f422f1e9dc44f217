"""What the console shows of steps: their speed, and how much of the devices' arithmetic it is."""

import time
from pathlib import Path

import pytest
import torch

from bertsmith.train.clock import Clock, Extent
from bertsmith.train.log import Log
from bertsmith.train.run_state import RunState
from bertsmith.train.step import StepResult
from bertsmith.train.step_metrics import Speed, StepMetrics


@pytest.mark.parametrize("devices", [1, 4])
def test_utilisation_is_of_all_devices_whose_tokens_are_counted(
    devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = StepMetrics(Log(tmp_path, tensorboard=False), Speed(1e6, lambda attended: 100.0), devices)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    metrics.start_lap(0)
    state = RunState(position=0, data_fingerprint="", step=1, tokens=devices * 2_000)
    values = torch.tensor([1.0, 0.5, 0.0])
    metrics.add(state, StepResult(values, {"loss": 1.0}, 0.1, {"tokens": state.tokens, "squares": 0}))
    now += 1.0
    shown = metrics.read(state, Clock(Extent(steps=2)), 0.5)
    assert shown.tokens_per_second == pytest.approx(devices * 2_000)
    assert shown.mfu == pytest.approx(0.2)
