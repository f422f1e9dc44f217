"""A signal asks; the loop decides when to stop."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bertsmith.errors import StopError
from bertsmith.train.signals import Signals, stop_at_once


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_only_sets_a_flag(name: str) -> None:
    with Signals() as signals:
        assert signals.received is None
        send(getattr(signal, name))
        assert signals.received == name


def test_a_second_interrupt_stops_at_once() -> None:
    with Signals() as signals:
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        assert signals.received == "SIGINT"


def test_a_second_sigterm_still_saves_and_stops() -> None:
    with Signals() as signals:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        send(signal.SIGINT)
        assert signals.received == "SIGTERM"


def test_earlier_signal_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Signals():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    with pytest.raises(ZeroDivisionError), Signals():
        raise ZeroDivisionError
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_other_threads_handle_no_signals() -> None:
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def listen() -> None:
        with Signals() as signals:
            found.append((signals.received, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [(None, before)]
    assert signal.getsignal(signal.SIGTERM) == before


class Run:
    """A run that evaluates by a function."""

    def __init__(self, step: int, evaluation: Callable[[], None]) -> None:
        self.folder, self.step, self.evaluation_due, self.saved = Path("run"), step, False, False
        self.evaluation = evaluation

    def save(self) -> None:
        self.saved = True

    @stop_at_once
    def evaluate(self) -> str:
        self.evaluation()
        return "evaluated"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("step", [0, 7])
def test_a_signal_stops_an_evaluation_at_once(name: str, step: int) -> None:
    seen = list[str]()

    def evaluation() -> None:
        send(getattr(signal, name))
        seen.append("after the signal")

    run = Run(step, evaluation)
    with Signals() as signals, pytest.raises(StopError) as caught:
        run.evaluate()
    assert not seen
    assert signals.received == name
    assert (run.saved, run.evaluation_due) == (step > 0, step > 0)
    fact = "stopped at step 7 during an evaluation, saved" if step else "stopped before the first step"
    assert str(caught.value).startswith(f"run: {fact}. The same command ")


def test_after_an_evaluation_a_signal_only_sets_a_flag() -> None:
    run = Run(7, lambda: None)
    run.evaluation_due = True
    with Signals() as signals:
        assert run.evaluate() == "evaluated"
        assert not run.evaluation_due
        send(signal.SIGTERM)
        assert signals.received == "SIGTERM"
        assert run.evaluate() == "evaluated"
    assert not run.saved
    assert Run(7, lambda: None).evaluate() == "evaluated"  # where no signals are handled
