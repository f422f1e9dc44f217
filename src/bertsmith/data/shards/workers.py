"""Worker processes that encode text on all cores, in order, with a bounded number of blocks in flight.

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
from typing import IO, TypeVar

from bertsmith.data.shards.encode import Encoder
from bertsmith.data.shards.encoded import EncodedDocuments
from bertsmith.errors import RunError

Documents = list[list[str]]
Item = TypeVar("Item")
SPARE_WORKERS = 4  # workers, of three pipes each, that are stopped where a process may open no more files
FEWER_WORKERS = "Give fewer workers (--workers 0: none), or allow more open files with: ulimit -n 4096"
PREFETCH = 3  # blocks in flight for each worker: one in work, one waiting, one done


def encode_all(
    items: Iterable[tuple[Item, list[Documents]]], folder: Path, dtype: str, workers: int
) -> Generator[tuple[Item, list[EncodedDocuments]], None, None]:
    """Encode each item's documents with the tokenizer of a folder; the items are returned in order.

    With no workers this process does the work.
    """
    if workers == 0:
        encoder = Encoder(folder, dtype)
        for item, groups in items:
            yield item, [encoder.encode(documents) for documents in groups]
        return
    processes = _start_workers(folder, dtype, workers)
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for worker in processes:
        idle.put(worker)

    def encode(groups: list[Documents]) -> list[EncodedDocuments]:
        worker = idle.get()
        try:
            return worker.encode(groups)
        finally:
            idle.put(worker)  # even a dead one: its next use raises the error

    threads = ThreadPoolExecutor(len(processes))  # each waits for one worker
    try:
        yield from _in_order(items, encode, threads, PREFETCH * len(processes))
    finally:
        for worker in processes:
            worker.kill()  # so that no thread waits any longer
        threads.shutdown(cancel_futures=True)
        for worker in processes:
            worker.close()


def _start_workers(folder: Path, dtype: str, workers: int) -> list["Worker"]:
    """The workers: as many as were asked for, or as the limit on open files allows."""
    processes: list[Worker] = []
    try:
        for _ in range(workers):
            processes.append(Worker(folder, dtype))
    except OSError as error:
        # The last ones free the file descriptors that reading the text needs.
        for worker in processes[-SPARE_WORKERS:]:
            worker.kill()
            worker.close()
        del processes[-SPARE_WORKERS:]
        if not processes:
            raise RunError("prepare", f"no worker process can be started ({error.strerror})", FEWER_WORKERS) from None
    return processes


def _in_order(
    items: Iterable[tuple[Item, list[Documents]]],
    encode: Callable[[list[Documents]], list[EncodedDocuments]],
    threads: ThreadPoolExecutor,
    max_waiting: int,
) -> Iterator[tuple[Item, list[EncodedDocuments]]]:
    waiting: deque[tuple[Item, Future[list[EncodedDocuments]]]] = deque()
    for item, groups in items:
        waiting.append((item, threads.submit(encode, groups)))
        if len(waiting) >= max_waiting:
            item, future = waiting.popleft()
            yield item, future.result()
    for item, future in waiting:
        yield item, future.result()


class Worker:
    """A process that encodes: JSON in; a line of sizes and the raw integers out."""

    def __init__(self, folder: Path, dtype: str) -> None:
        program = f"from bertsmith.data.shards.workers import serve; serve({os.fspath(folder)!r}, {dtype!r})"
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

    def encode(self, groups: list[Documents]) -> list[EncodedDocuments]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            message = json.dumps(groups, ensure_ascii=False).encode()
            process.stdin.write(b"%d\n" % len(message))
            process.stdin.write(message)
            process.stdin.flush()
            return [_receive(process.stdout) for _ in groups]
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
            return RunError("prepare", fact, "Run the same command again, with fewer workers")
        assert self._process.stderr is not None
        last = self._process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        return RunError("prepare", f"a worker process failed ({last or f'exit code {code}'})")


def serve(folder: str, dtype: str) -> None:
    """The worker's main function: encode documents until the input ends."""
    encoder = Encoder(Path(folder), dtype)
    while line := sys.stdin.buffer.readline():
        for documents in json.loads(sys.stdin.buffer.read(int(line))):
            _send(sys.stdout.buffer, encoder.encode(documents))
        sys.stdout.buffer.flush()


def _send(pipe: IO[bytes], block: EncodedDocuments) -> None:
    buffers, counts = block.pack()
    pipe.write(json.dumps([[len(buffer) for buffer in buffers], counts]).encode() + b"\n")
    for buffer in buffers:
        pipe.write(buffer)


def _receive(pipe: IO[bytes]) -> EncodedDocuments:
    line = pipe.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    sizes, (dropped, empty) = json.loads(line)
    tokens, lengths, documents = (pipe.read(size) for size in sizes)
    if [len(tokens), len(lengths), len(documents)] != sizes:
        raise EOFError
    return EncodedDocuments.unpack((tokens, lengths, documents), (dropped, empty))
