"""Worker processes that work on text on all cores, in order, with a bounded number of blocks in flight.

Plain programs on two pipes: they need nothing of the caller's main module, get no Ctrl-C (they are a process group of
their own) and end by themselves when the caller is gone, because then their input ends.
"""

import json
import os
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from bertsmith.errors import RecipeError, RunError

Item = TypeVar("Item")
Task = TypeVar("Task")
Result = TypeVar("Result")
W = TypeVar("W", bound="Worker")
SPARE_WORKERS = 4  # workers, of three pipes each, that are stopped where a process may open no more files
MAX_WORKERS = 1_024
FEWER_WORKERS = "Give fewer workers (--workers 0: none), or allow more open files with: ulimit -n 4096"
PREFETCH = 3  # blocks in flight for each worker: one in work, one waiting, one done


class Worker:
    """A process that runs one line of Python, which serves its standard input: JSON in, bytes out."""

    def __init__(self, verb: str, program: str) -> None:
        self.verb = verb  # of the command line, for messages
        environment = os.environ | {
            "TOKENIZERS_PARALLELISM": "false",  # the cores are taken by the workers
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            process_group=0,
        )

    def ask(self, question: Any, receive: Callable[[IO[bytes]], Result]) -> Result:
        """Send a message, and receive its answer; `receive` raises an EOFError where that ends too soon."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            message = json.dumps(question, ensure_ascii=False).encode()
            process.stdin.write(b"%d\n" % len(message))
            process.stdin.write(message)
            process.stdin.flush()
            return receive(process.stdout)
        except (BrokenPipeError, EOFError):
            raise self._exit_error() from None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):  # half a message that the dead worker never took
                pipe.close()

    def _exit_error(self) -> RunError:
        """The error for a worker that has ended."""
        code = self._process.wait()
        if code < 0:
            fact = f"a worker process was killed by signal {-code}; memory may have run out"
            return RunError(self.verb, fact, "Run the same command again, with fewer workers")
        assert self._process.stderr is not None
        last = self._process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        return RunError(self.verb, f"a worker process failed ({last or f'exit code {code}'})")


def check_workers(workers: int | None) -> None:
    """Refuse a number of worker processes that is none."""
    if workers is not None and not 0 <= workers <= MAX_WORKERS:
        raise RecipeError("workers", f"is {workers:,}", f"Give a number of processes from 0 to {MAX_WORKERS:,}")


def messages() -> Iterator[Any]:
    """In a worker: the messages of its caller, until its input ends."""
    while line := sys.stdin.buffer.readline():
        yield json.loads(sys.stdin.buffer.read(int(line)))


def map_in_order(
    items: Iterable[tuple[Item, Task]],
    start: Callable[[], W],
    work: Callable[[W, Task], Result],
    workers: int,
    verb: str,
) -> Generator[tuple[Item, Result], None, None]:
    """The work of each item, done by worker processes; the items are returned in order."""
    processes = _start_workers(start, workers, verb)
    idle: queue.SimpleQueue[W] = queue.SimpleQueue()
    for worker in processes:
        idle.put(worker)

    def run(task: Task) -> Result:
        worker = idle.get()
        try:
            return work(worker, task)
        finally:
            idle.put(worker)  # even a dead one: its next use raises the error

    threads = ThreadPoolExecutor(len(processes))  # each waits for one worker
    try:
        yield from _in_order(items, run, threads, PREFETCH * len(processes))
    finally:
        for worker in processes:
            worker.kill()  # so that no thread waits any longer
        threads.shutdown(cancel_futures=True)
        for worker in processes:
            worker.close()


def _start_workers(start: Callable[[], W], workers: int, verb: str) -> list[W]:
    """The workers: as many as were asked for, or as the limit on open files allows."""
    processes: list[W] = []
    try:
        for _ in range(workers):
            processes.append(start())
    except OSError as error:
        # The last ones free the file descriptors that reading the text needs.
        for worker in processes[-SPARE_WORKERS:]:
            worker.kill()
            worker.close()
        del processes[-SPARE_WORKERS:]
        if not processes:
            raise RunError(verb, f"no worker process can be started ({error.strerror})", FEWER_WORKERS) from None
    return processes


def _in_order(
    items: Iterable[tuple[Item, Task]],
    run: Callable[[Task], Result],
    threads: ThreadPoolExecutor,
    max_waiting: int,
) -> Iterator[tuple[Item, Result]]:
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    for item, task in items:
        waiting.append((item, threads.submit(run, task)))
        if len(waiting) >= max_waiting:
            item, future = waiting.popleft()
            yield item, future.result()
    for item, future in waiting:
        yield item, future.result()
