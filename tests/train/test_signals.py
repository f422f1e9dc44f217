"""A signal asks; the loop decides when to stop."""

import os
import signal
import threading

import pytest

from bertsmith.train.signals import Interrupted, Signals


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


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_stops_an_evaluation_at_once(name: str) -> None:
    with Signals() as signals:
        with pytest.raises(Interrupted), signals.stop_at_once():
            send(getattr(signal, name))
        assert signals.received == name


def test_after_an_evaluation_a_signal_only_sets_a_flag() -> None:
    seen = list[str]()
    with Signals() as signals:
        with signals.stop_at_once():
            seen.append("evaluated")
        send(signal.SIGTERM)
        assert signals.received == "SIGTERM"
        with signals.stop_at_once():
            seen.append("evaluated again")
    with signals.stop_at_once():
        seen.append("evaluated where no signals are handled")
    assert len(seen) == 3
