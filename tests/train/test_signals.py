"""A signal asks; the loop decides when to stop."""

import os
import signal
import threading

import pytest

from bertsmith.train.signals import Signals


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


def test_asking_twice_to_terminate_still_only_asks() -> None:
    with Signals() as signals:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        send(signal.SIGINT)
        assert signals.received == "SIGTERM"


def test_what_listened_before_listens_again() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Signals():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    with pytest.raises(ZeroDivisionError), Signals():
        raise ZeroDivisionError
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_other_threads_do_not_listen() -> None:
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
