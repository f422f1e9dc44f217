"""The model process: it loads the models, and runs everything that is waiting as one batch.

A thread for each front reads jobs; the main thread computes, so that torch's threads belong to it, and sends results.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch

from bertsmith.errors import BertsmithError
from bertsmith.inference.image_model import ImageModel
from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.serving import wire
from bertsmith.serving.batcher import Batcher
from bertsmith.serving.control import Control
from bertsmith.serving.counters import Counters
from bertsmith.serving.faults import log_fault
from bertsmith.serving.image_verbs import IMAGE_VERBS, describe_images
from bertsmith.serving.paths import PATHS
from bertsmith.serving.settings import ModelSettings, Settings
from bertsmith.serving.verbs import VERBS, Values, describe
from bertsmith.serving.wire import FrameBuffer, Hello, Job, Result, ServedModel

BATCH_TOKENS = {"cpu": 4_096, "cuda": 131_072}  # tokens that are taken at once
RECEIVE_BYTES = 1 << 20
DEVICE_FAULTS = ("CUDA error", "device-side assert")  # in messages; nothing runs on the device any more after one
CLOSE_SECONDS = 60.0  # how long fronts may keep their connections after the order to finish


class Connection:
    """A front's connection."""

    def __init__(self, endpoint: socket.socket) -> None:
        self.endpoint = endpoint
        self._lock = threading.Lock()  # of the writing side

    def send(self, *messages: Hello | Result) -> None:
        """Send frames in one call; a front that is gone does not need them."""
        try:
            with self._lock:
                self.endpoint.sendall(b"".join(map(wire.frame, messages)))
        except OSError:
            pass

    def jobs(self) -> Iterator[list[Job]]:
        """Jobs as they arrive, until the front closes the connection."""
        frames = FrameBuffer()
        try:
            while data := self.endpoint.recv(RECEIVE_BYTES):
                if jobs := [wire.JOBS.decode(content) for content in frames.add(data)]:
                    yield jobs
        except ConnectionError:
            pass


@dataclass(frozen=True)
class Waiting:
    """A job, and the connection that waits for its result."""

    job: Job
    connection: Connection
    tokens: int
    group: tuple[str, str, bytes] = field(init=False)  # jobs of one model and verb with equal options run together

    def __post_init__(self) -> None:
        options = msgspec.json.encode(self.job.options, order="deterministic")
        object.__setattr__(self, "group", (self.job.model, self.job.verb, options))


@dataclass(frozen=True)
class Running:
    """Jobs that have been started together: their values, or what waits for them, or why there are none."""

    group: Sequence[Waiting]
    outcome: list[Any] | Values | Exception
    began: float

    def values(self) -> list[Any]:
        """A value for each input of each job."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome if isinstance(self.outcome, list) else self.outcome()


class ModelServer:
    """Models, and the batches that run through them."""

    def __init__(self, models: Mapping[str, Model | ImageModel], device: str, counters: Counters) -> None:
        self.models, self.device, self.counters = models, device, counters
        self.batcher: Batcher[Waiting] = Batcher(BATCH_TOKENS[torch.device(device).type])
        self._open = 0
        self._closed = threading.Condition()

    def hello(self) -> Hello:
        return Hello(models=[describe_any(name, model) for name, model in self.models.items()], device=self.device)

    def attach(self, endpoint: socket.socket) -> None:
        """Serve a front in a thread of its own."""
        with self._closed:
            self._open += 1
        threading.Thread(target=self._receive, args=(Connection(endpoint),), daemon=True).start()

    def _receive(self, connection: Connection) -> None:
        try:
            with connection.endpoint:
                connection.send(self.hello())
                for jobs in connection.jobs():
                    self.batcher.put([Waiting(job, connection, job.tokens) for job in jobs])
        except Exception as error:  # bytes that are no job; the front connects again
            log_fault(error)
        finally:
            with self._closed:
                self._open -= 1
                self._closed.notify_all()

    def finish(self, seconds: float) -> None:
        """Close the batcher when every front has closed its connection."""
        with self._closed:
            self._closed.wait_for(lambda: self._open == 0, seconds)
        self.batcher.close()

    def run(self) -> None:
        """Compute batch after batch, until `finish`. A batch is prepared while the one before it is computed."""
        running: list[Running] = []
        while (batch := self.batcher.take(wait=not running)) or running:
            groups: dict[tuple[str, str, bytes], list[Waiting]] = {}
            for waiting in batch:
                groups.setdefault(waiting.group, []).append(waiting)
            started = [self._start(group) for group in groups.values()]
            for one in running:
                self._finish(one)
            running = started

    def _start(self, group: Sequence[Waiting]) -> "Running":
        """Start jobs that run together."""
        first, inputs = group[0].job, [one for waiting in group for one in waiting.job.inputs]
        began = time.perf_counter()
        try:
            with torch.inference_mode():
                return Running(group, self._run(first, inputs), began)
        except Exception as error:
            return Running(group, error, began)

    def _run(self, job: Job, inputs: list[Any]) -> list[Any] | Values:
        model = self.models[job.model]
        if isinstance(model, ImageModel):
            return IMAGE_VERBS[job.verb](model, inputs, job.options)
        return VERBS[job.verb].run(model, inputs, job.options)

    def _finish(self, running: "Running") -> None:
        """Send the results. If a job has failed, each is run alone, so that only the wrong one is refused."""
        group = running.group
        try:
            values = running.values()
        except Exception as error:
            if breaks_device(error):
                raise
            if len(group) > 1:
                for waiting in group:
                    self._finish(self._start([waiting]))
                return
            result = _failed(group[0].job.id, error)
            self.counters.add("faults", result.fault)
            group[0].connection.send(result)
            return
        self._count(len(group), sum(waiting.tokens for waiting in group), time.perf_counter() - running.began)
        results: dict[Connection, list[Result]] = {}
        start = 0
        for waiting in group:
            stop = start + len(waiting.job.inputs)
            results.setdefault(waiting.connection, []).append(Result(waiting.job.id, values[start:stop]))
            start = stop
        for connection, some in results.items():
            connection.send(*some)

    def _count(self, jobs: int, tokens: int, seconds: float) -> None:
        for name, value in (("batches", 1), ("batch_jobs", jobs), ("batch_tokens", tokens), ("batch_seconds", seconds)):
            self.counters.add(name, value)


def breaks_device(error: Exception) -> bool:
    """Whether the device is of no use any more to this process, which has to be started again."""
    if isinstance(error, torch.AcceleratorError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in DEVICE_FAULTS)


def _failed(number: int, error: Exception) -> Result:
    """The result of a job that could not be done. Of our own faults the log has the place, but no text of the input."""
    if isinstance(error, BertsmithError):
        return Result(number, None, error=error.parts)
    log_fault(error)
    return Result(number, None, error=(type(error).__name__,), fault=True)


def describe_any(name: str, model: Model | ImageModel) -> ServedModel:
    """What fronts need to know of a model of texts or of images."""
    return describe_images(name, model) if isinstance(model, ImageModel) else describe(name, model)


def load_models(settings: Settings) -> dict[str, Model | ImageModel]:
    """The models by name, warmed up."""
    models = {name: load(folder, settings.device, settings.backend) for name, folder in settings.models.items()}
    for model in models.values():
        if isinstance(model, Model) and model.embeds_sentences:
            model.embedder(normalise=False, precision=settings.precision)(["warm up"])
    return models


def main() -> None:
    """Run the process: `python -m bertsmith.serving.model_process`."""
    control = Control()
    settings = control.settings(ModelSettings)
    try:
        models = load_models(settings.server)
        device = str(next(iter(models.values())).device)
        server = ModelServer(models, device, Counters.open(Path(settings.counters), PATHS, settings.row))
    except BertsmithError as error:
        control.tell("failed", error=str(error))
        raise SystemExit(1) from None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(settings.path)
    listener.listen()

    def accept() -> None:
        while True:
            server.attach(listener.accept()[0])

    def obey() -> None:
        for _ in control.lines():
            pass
        server.finish(CLOSE_SECONDS)

    threading.Thread(target=accept, daemon=True).start()
    threading.Thread(target=obey, daemon=True).start()
    control.tell("ready")
    status = 0
    try:
        server.run()
    except Exception as error:  # the supervisor starts another process
        log_fault(error)
        status = 1
    sys.stderr.flush()
    os._exit(status)  # threads of torch and of connections have nothing left to do


if __name__ == "__main__":
    main()
