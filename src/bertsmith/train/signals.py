"""SIGTERM and Ctrl-C: a signal sets a flag, and the training loop saves and stops after its step.

An evaluation, which may take minutes and changes nothing, stops at once.
"""

import signal
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol, TypeVar, runtime_checkable

from bertsmith.errors import StopError

_HANDLED = (signal.SIGTERM, signal.SIGINT)
_active: list["Signals"] = []  # the innermost last


class Interrupted(BaseException):
    """A signal that came during an evaluation. No Exception, since a library may catch those."""


class Signals:
    """Handles SIGTERM and Ctrl-C: the first saves and stops, a second Ctrl-C stops at once.

    Only the main thread can handle signals; in others this does nothing.
    """

    def __init__(self) -> None:
        self.received: str | None = None  # the name of the first signal that came
        self.raises = False  # whether the first signal raises Interrupted
        self._interrupted = False
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            self._previous_handlers = {number: signal.signal(number, self._handle) for number in _HANDLED}
            _active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self in _active:
            _active.remove(self)
        for number, handler in self._previous_handlers.items():
            # None stands for a handler that was not set from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous_handlers = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = self._interrupted or number == signal.SIGINT
        self.received = self.received or signal.Signals(number).name
        if self.raises:
            self.raises = False
            raise Interrupted


@runtime_checkable
class Stoppable(Protocol):
    """A training run, as far as stopping it needs to know it."""

    folder: Path
    step: int
    evaluation_due: bool  # whether the evaluation at this step is still to be done, by the run that resumes

    def save(self) -> None: ...


Run = TypeVar("Run", bound=Stoppable)
Result = TypeVar("Result")


def stop_at_once(evaluate: Callable[[Run], Result]) -> Callable[[Run], Result]:
    """A method of a run that a signal interrupts. The run is saved as it was before, and does it when it resumes."""

    @wraps(evaluate)
    def interruptible(run: Run) -> Result:
        active = _active[-1] if _active and threading.current_thread() is threading.main_thread() else None
        try:
            try:
                if active is not None:
                    active.raises = True
                result = evaluate(run)
            finally:
                if active is not None:
                    active.raises = False
        except Interrupted:
            _stop(run)
        run.evaluation_due = False
        return result

    return interruptible


def _stop(run: Stoppable) -> NoReturn:
    if run.step == 0:
        raise StopError(run.folder, "stopped before the first step", "The same command begins again") from None
    run.evaluation_due = True
    run.save()
    fact = f"stopped at step {run.step} during an evaluation, saved"
    raise StopError(run.folder, fact, "The same command resumes it") from None
