"""What a child process of the server has from its supervisor: its settings, its orders, and when to end.

A child reads JSON lines from its standard input: first its settings, then orders. It answers with JSON lines on its
standard output. The end of the input is the order to finish, so that no child outlives its supervisor, however that
ended; signals are the supervisor's affair, and children ignore them.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

S = TypeVar("S")


class Event(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line from a child: it is ready, it has failed with an error, or it uses another model process."""

    kind: str
    error: str = ""
    generation: int = 0


class Order(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line to a front: the socket of the model process that it shall use from now on."""

    connect: str
    generation: int


class Control:
    """The child's end."""

    def __init__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # Whatever a library prints goes to the standard error: the standard output is for events.
        self._events = os.dup(1)
        os.dup2(2, 1)

    def settings(self, kind: type[S]) -> S:
        """The first line."""
        return msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)

    def lines(self) -> Iterator[bytes]:
        """The lines after it, until the supervisor closes the pipe."""
        yield from sys.stdin.buffer

    def tell(self, kind: str, **values: Any) -> None:
        """Report an event; nobody may be left to hear it."""
        with suppress(BrokenPipeError):
            os.write(self._events, msgspec.json.encode(Event(kind=kind, **values)) + b"\n")
