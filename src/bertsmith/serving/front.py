"""A front: it accepts connections on a socket of the supervisor, and answers with the help of the model process."""

import asyncio
import contextlib
import os
import resource
import socket
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from bertsmith.errors import BertsmithError
from bertsmith.serving.application import Application
from bertsmith.serving.control import Control, Order
from bertsmith.serving.counters import Counters
from bertsmith.serving.faults import log_fault
from bertsmith.serving.model_client import ModelClient
from bertsmith.serving.paths import PATHS
from bertsmith.serving.protocol import protocol
from bertsmith.serving.served import FrontModel, Served
from bertsmith.serving.settings import FrontSettings, Settings
from bertsmith.serving.wire import Hello

RETRY_SECONDS = 0.3  # between two attempts to connect; while the model process is started again there is nobody
KEPT = 2  # generations of models whose tokenizers are kept: fronts go back if one of them cannot use new ones
BACKLOG = 2_048  # connections that the system keeps until they are accepted


class Server(uvicorn.Server):
    """uvicorn's server without signals: the supervisor says when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(settings: Settings, served: Served) -> Server:
    """The HTTP server of a front."""
    limits = settings.limits
    config = uvicorn.Config(
        Application(settings, served),
        http=protocol(served),
        loop="uvloop",
        lifespan="off",
        ws="none",
        log_level="critical",  # its lines may quote requests
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]  # any number of seconds will do
        timeout_graceful_shutdown=settings.drain_seconds,  # type: ignore[arg-type]
    )
    config.load()
    return Server(config)


class Front:
    """The event loop's part of a front."""

    def __init__(self, settings: FrontSettings, control: Control) -> None:
        self.settings, self.control = settings, control
        counters = Counters.open(Path(settings.counters), PATHS, settings.row)
        self.served = Served(settings.server.limits, counters)
        self.server = http_server(settings.server, self.served)
        self._order: Order | None = None  # the newest
        self._loaded: dict[
            int, list[FrontModel]
        ] = {}  # of the last generations, whose folders may have other files now
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        """Serve until the supervisor closes the pipe."""
        with asyncio.Runner(loop_factory=self.server.config.get_loop_factory()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._obey, args=(loop,), daemon=True).start()
        endpoint = socket.socket(fileno=self.settings.descriptor)
        self.control.tell("listening")
        await self.server.serve([endpoint])

    def _obey(self, loop: asyncio.AbstractEventLoop) -> None:
        """Orders of the supervisor, read in a thread, until there are no more."""
        for line in self.control.lines():
            order = msgspec.json.decode(line, type=Order)
            loop.call_soon_threadsafe(self._spawn, self._follow(order))
        self.server.should_exit = True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, order: Order) -> None:
        """Use the model process of an order until there is another order, and connect again if the connection breaks.

        A process whose tokenizers cannot be loaded is refused; the front goes on with the one that it has. A front
        that has none ends, and is started again.
        """
        self._order = order
        while order is self._order:
            try:
                client, hello = await ModelClient.connect(order.connect)
            except OSError:  # it has died, and the order for the next one is on its way
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                models = await self._load(order, client, hello)
            except Exception as error:
                self._spawn(client.close())
                self._refuse(order, error)
            else:
                if order is not self._order:
                    self._spawn(client.close())
                    return
                self._use(order, client, hello, models)
            assert self.served.client is not None
            await self.served.client.lost.wait()

    async def _load(self, order: Order, client: ModelClient, hello: Hello) -> list[FrontModel]:
        """The models of a process with their tokenizers, which belong to its weights: they are loaded once."""
        if order.generation in self._loaded:
            return [model.with_client(client) for model in self._loaded[order.generation]]
        loop = asyncio.get_running_loop()
        return [await loop.run_in_executor(None, FrontModel, served, client) for served in hello.models]

    def _use(self, order: Order, client: ModelClient, hello: Hello, models: list[FrontModel]) -> None:
        """Send requests to another model process; the connection to the last one ends when it is idle."""
        previous = self.served.client
        self.served.use(client, hello, {model.served.name: model for model in models}, order.generation)
        self._loaded.pop(order.generation, None)
        self._loaded = dict([*self._loaded.items(), (order.generation, models)][-KEPT:])
        self.control.tell("connected", generation=order.generation)
        if previous is not None:
            self._spawn(previous.close())

    def _refuse(self, order: Order, error: Exception) -> None:
        if not isinstance(error, BertsmithError):
            log_fault(error)
        fact = str(error) if isinstance(error, BertsmithError) else type(error).__name__
        self.control.tell("refused", error=fact, generation=order.generation)
        if not self.served.ready:
            os._exit(1)


def main() -> None:
    """Run the process: `python -m bertsmith.serving.front`."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # fronts are as many as the cores allow
    control = Control()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection is an open file
    Front(control.settings(FrontSettings), control).run()
    os._exit(0)  # a thread may still wait for orders


if __name__ == "__main__":
    main()
