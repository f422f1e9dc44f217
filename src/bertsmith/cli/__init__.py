"""The command line: one file of verbs per panel of the help, and no logic.

Heavy imports (torch, numpy) are inside the verbs, so that `bertsmith --help` answers at once.
"""

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from bertsmith.cli import finetuning, inference, inspection, pretraining, serving, word_vectors
from bertsmith.cli.application import PANELS, app
from bertsmith.errors import BertsmithError, RecipeError, RunError, StopError

__all__ = ["PANELS", "app", "finetuning", "inference", "inspection", "main", "pretraining", "serving", "word_vectors"]

SHARED = ("pretrain", "finetune")  # verbs that several processes may work on


def main() -> None:
    """Run the command line. Wrong input and exhausted resources are reported in one line, without a traceback."""
    try:
        with _stopped_by_signals():
            _check_processes(sys.argv[1:])
            app()
    except Stopped as stopped:
        remedy = "The same command goes on from what it has saved, or begins again"
        print(f"bertsmith: stopped by {stopped.number.name}. {remedy}.", file=sys.stderr)
        sys.exit(128 + stopped.number)
    except BertsmithError as error:
        from bertsmith.terminal import escape_control

        rank = os.environ.get("RANK", "0")  # torchrun's number of this process
        if rank == "0" or not isinstance(error, StopError):  # which the first process says for all of them
            own = "" if rank == "0" else f" process {rank}:"
            print(f"bertsmith:{own} {escape_control(error)}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stderr.close()
        sys.exit(1)
    except (MemoryError, OSError, RuntimeError) as error:
        if (line := resource_error(error)) is None:
            raise
        print(f"bertsmith: {line}", file=sys.stderr)
        sys.exit(1)


def _check_processes(arguments: list[str]) -> None:
    """Refuse several processes, which torchrun starts, for a verb that works in one."""
    count, verb = os.environ.get("WORLD_SIZE", "1"), next(iter(arguments), "bertsmith")
    if count != "1" and verb not in SHARED:
        raise RecipeError(verb, f"works in one process, and here are {count}", "Start it without torchrun")


class Stopped(BaseException):
    """SIGTERM or Ctrl-C while no training loop handles them. No Exception, since a library may catch those."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Within it SIGTERM and Ctrl-C end the command in one line; signals that are ignored stay so, as with nohup."""

    def stop(number: int, frame: Any) -> NoReturn:
        raise Stopped(number)

    handled = [number for number in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(number) != signal.SIG_IGN]
    handled = handled if threading.current_thread() is threading.main_thread() else []  # others cannot handle any
    before = {number: signal.signal(number, stop) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def resource_error(error: BaseException) -> RunError | None:
    """The error for memory or open files that have run out; None for any other error, which is a bug of ours."""
    message, files = str(error).lower(), isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
    if files or "too many open files" in message:
        remedy = "Use fewer workers (--workers, data.workers=0), or raise the limit with: ulimit -n 4096"
        return RunError("files", "more are open than this system allows", remedy)
    memory = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    gpu = type(error).__name__ == "OutOfMemoryError" or "cuda error: out of memory" in message  # torch's own
    if not (memory or gpu or "can't allocate memory" in message or "out of memory" in message):
        return None
    kind = "GPU memory" if gpu or "cuda" in message else "memory"
    remedy = "Use smaller batches (data.batch_tokens=, data.batch_size=), shorter sequences (data.max_length=) "
    remedy += "or a smaller model"
    return RunError(kind, "not enough", remedy)
