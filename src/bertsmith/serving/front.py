"""A front: it accepts connections on a socket of the supervisor, and answers with the help of the model process."""

import asyncio
import contextlib
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import uvicorn

from bertsmith.errors import BertsmithError
from bertsmith.serving.application import Application
from bertsmith.serving.control import Control, Order
from bertsmith.serving.counters import Counters
from bertsmith.serving.model_client import ModelClient
from bertsmith.serving.paths import PATHS
from bertsmith.serving.protocol import protocol
from bertsmith.serving.served import FrontModel, Served
from bertsmith.serving.settings import FrontSettings, Settings

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
        self._switches: set[asyncio.Task[None]] = set()

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
            loop.call_soon_threadsafe(self._start_switch, order)
        self.server.should_exit = True

    def _start_switch(self, order: Order) -> None:
        task = asyncio.get_running_loop().create_task(self._switch(order))
        self._switches.add(task)
        task.add_done_callback(self._switches.discard)

    async def _switch(self, order: Order) -> None:
        """Use another model process: its tokenizers first, then the connection; the last one ends when it is idle."""
        try:
            client, hello = await ModelClient.connect(order.connect)
            loop = asyncio.get_running_loop()
            models = [await loop.run_in_executor(None, FrontModel, served) for served in hello.models]
        except (OSError, BertsmithError) as error:
            self.control.tell("refused", error=str(error), generation=order.generation)
            return
        previous = self.served.client
        self.served.use(client, hello, {model.served.name: model for model in models}, order.generation)
        self.control.tell("connected", generation=order.generation)
        if previous is not None:
            await previous.close()


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
