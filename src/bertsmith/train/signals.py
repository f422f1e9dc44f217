"""Being asked to stop: a signal only sets a flag, and the loop saves and stops when it next looks."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_HEARD = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Listens for SIGTERM and Ctrl-C. The first asks to save and stop; a second Ctrl-C stops at once.

    Only the main thread may listen; anywhere else this does nothing.
    """

    def __init__(self) -> None:
        self.received: str | None = None  # the name of the first signal that came
        self._impatient = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._hear) for number in _HEARD}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None stands for a handler that was not set from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._impatient:
            raise KeyboardInterrupt
        self._impatient = self._impatient or number == signal.SIGINT
        self.received = self.received or signal.Signals(number).name
