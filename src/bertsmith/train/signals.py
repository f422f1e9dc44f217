"""SIGTERM and Ctrl-C: a signal sets a flag, and the training loop saves and stops after its step.

An evaluation, which may take minutes and changes nothing, stops at once.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_HANDLED = (signal.SIGTERM, signal.SIGINT)


class Interrupted(BaseException):
    """A signal that came during an evaluation. No Exception, since a library may catch those."""


class Signals:
    """Handles SIGTERM and Ctrl-C: the first saves and stops, a second Ctrl-C stops at once.

    Only the main thread can handle signals; in others this does nothing.
    """

    def __init__(self) -> None:
        self.received: str | None = None  # the name of the first signal that came
        self._raises = False  # whether a signal raises Interrupted
        self._interrupted = False
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            self._previous_handlers = {number: signal.signal(number, self._handle) for number in _HANDLED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous_handlers.items():
            # None stands for a handler that was not set from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous_handlers = {}

    @contextmanager
    def stop_at_once(self) -> Iterator[None]:
        """A signal that comes inside raises Interrupted; nothing may be written or changed there."""
        try:
            self._raises = True
            yield
        finally:
            self._raises = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = self._interrupted or number == signal.SIGINT
        self.received = self.received or signal.Signals(number).name
        if self._raises:
            self._raises = False
            raise Interrupted
