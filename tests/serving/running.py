"""`bertsmith serve` in processes of its own, as a person starts it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

SOURCE = Path(__file__).resolve().parents[2] / "src"
START_SECONDS = 90


class RunningServer:
    """A server that answers, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self.process, self._errors = process, errors
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"at (http://\S+)", line)
        if found is None:
            process.wait(10)
            raise RuntimeError(f"{line}{self.errors}")
        self.url = found[1]

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def children(self, module: str) -> list[psutil.Process]:
        """The processes of a module of the server, the oldest first."""
        found = psutil.Process(self.process.pid).children()
        return [one for one in found if f"bertsmith.serving.{module}" in one.cmdline()]

    def ask(self, path: str, body: Any = None, key: str = "", timeout: float = 60) -> tuple[int, Any]:
        """Status and JSON of one request, on a connection of its own."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        request = urllib.request.Request(self.url + path, content, headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_for(self, what: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until something is so."""
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, self.errors
            time.sleep(0.05)


@contextmanager
def running(folder: Path, *arguments: str, **environment: str) -> Iterator[RunningServer]:
    """A server with these arguments, on a free port; its errors go into a file of the folder."""
    errors = folder / "errors.txt"
    known = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **environment}
    with errors.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "bertsmith", "serve", *arguments, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            env=known,
        )
    with process:
        try:
            yield RunningServer(process, errors)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
