"""A clock for runs with a budget of time."""

from types import SimpleNamespace

import pytest

from bertsmith.train import clock


def tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step takes a twentieth of a second by the clock, however busy the machine is."""
    now, share = [0.0], clock.Clock.progress

    def passing(self: clock.Clock, step: int, epoch: float) -> float:
        now[0] += 0.05
        return share(self, step, epoch)

    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(clock.Clock, "progress", passing)
