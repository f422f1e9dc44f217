"""Runs of several processes on gloo, as torchrun would start them: one crew of processes works through all of them."""

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import scripts
import torch

from bertsmith.errors import BertsmithError


@dataclass(frozen=True)
class Job:
    """A call by the first `size` processes; what they print goes into `output.0`, `output.1` and so on."""

    size: int
    output: Path
    work: Callable[..., Any]
    arguments: tuple[Any, ...]

    def said(self, rank: int = 0) -> str:
        """What a process printed."""
        return self.output.with_name(f"{self.output.name}.{rank}").read_text(encoding="utf-8")


def start(jobs: Sequence[Job]) -> list[BaseProcess]:
    """The processes that do these jobs, one after the other."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in jobs]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in sockets]
    server = scripts.server()
    processes = [
        server.Process(target=_work, args=(rank, jobs, ports)) for rank in range(max(job.size for job in jobs))
    ]
    for process in processes:
        process.start()
    return processes


def end(processes: Sequence[BaseProcess], seconds: float = 600) -> list[int | None]:
    """Their exit codes, when all have ended; None for one that has not in time, which is killed."""
    until = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
    return codes


def _work(rank: int, jobs: Sequence[Job], ports: Sequence[int]) -> None:
    torch.set_num_threads(1)
    for job, port in zip(jobs, ports, strict=True):
        if rank >= job.size:
            continue
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job.size, "MASTER_PORT": port}
        os.environ |= {name: str(value) for name, value in variables.items()} | {"MASTER_ADDR": "127.0.0.1"}
        with job.output.with_name(f"{job.output.name}.{rank}").open("a") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        if rank:
            _wait_for_main(port)
        try:
            job.work(*job.arguments)
        except BertsmithError as error:
            print(error, flush=True)


def _wait_for_main(port: int) -> None:
    """Return when the first process listens: torch would ask for it in vain, and again only after seconds."""
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
