"""The supervisor: it binds the port, starts the model process and the fronts, and restarts whichever dies.

SIGTERM and Ctrl-C end the server when every accepted request is answered. SIGHUP loads the model folders anew: another
model process is started, and fronts go over to it when it is ready, so that no request is lost.
"""

import asyncio
import signal
import socket
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from bertsmith.errors import RunError
from bertsmith.serving.control import Event, Order
from bertsmith.serving.counters import MODEL_ROWS, Counters
from bertsmith.serving.paths import PATHS
from bertsmith.serving.settings import FrontSettings, ModelSettings, Settings
from bertsmith.terminal import escape_control

COUNTERS = "counters"  # the file of the table
MAX_FAILURES = 5  # in a row, of one child, before the server gives up
STEADY_SECONDS = 30.0  # a child that has lived so long has not failed in a row
KILL_SECONDS = 5.0  # after the time for draining


class Child:
    """A child process: its orders go through its standard input, its events come from its standard output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, module: str, settings: msgspec.Struct, descriptors: tuple[int, ...] = ()) -> "Child":
        """Start a module of this package, with its settings as the first line of its input."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"bertsmith.serving.{module}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=descriptors,
        )
        child = cls(process)
        child.order(settings)
        return child

    def order(self, line: msgspec.Struct) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        if not self.process.stdin.is_closing():
            self.process.stdin.write(msgspec.json.encode(line) + b"\n")

    async def event(self) -> Event | None:
        """Its next event; None when it has ended."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        return msgspec.json.decode(line, type=Event) if line else None

    def finish(self) -> None:
        """Tell it to finish, by closing its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def wait(self, seconds: float) -> None:
        """Wait for its end, and kill it if it takes too long."""
        try:
            await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


class Supervisor:
    """The server as a whole."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sockets: list[socket.socket] = []
        self.fronts: dict[int, Child] = {}
        self.model: Child | None = None
        self._children: set[Child] = set()  # all that may still run
        self.order: Order | None = None  # the newest model process
        self._generation = 0
        self._stop = asyncio.Event()
        self._failure: RunError | None = None
        self._connected = asyncio.Condition()
        self._generations: dict[int, int] = {}  # that each front uses
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reloading = asyncio.Lock()

    async def run(self) -> None:
        """Serve until a signal, or until a child fails for good."""
        self.sockets = bind(self.settings.host, self.settings.port, self.settings.fronts)
        loop = asyncio.get_running_loop()
        for stopping in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(stopping, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._spawn(self._reload()))
        with tempfile.TemporaryDirectory(prefix="bertsmith-serve-") as folder:  # only its owner can open it
            self.folder = Path(folder)
            Counters.create(self.folder / COUNTERS, PATHS, len(self.sockets))
            for number in range(len(self.sockets)):
                self._spawn(self._keep_front(number))
            self._spawn(self._keep_model())
            await self._stop.wait()
            await self._end()
        if self._failure is not None:
            raise self._failure

    @property
    def address(self) -> str:
        host, port = self.sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def _start(self, module: str, settings: msgspec.Struct, descriptors: tuple[int, ...] = ()) -> Child:
        child = await Child.start(module, settings, descriptors)
        self._children = {one for one in self._children if one.process.returncode is None} | {child}
        return child

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error if isinstance(error, RunError) else RunError("server", f"failed with {error!r}"))

    def _fail(self, error: RunError) -> None:
        self._failure = self._failure or error
        self._stop.set()

    async def _keep_front(self, number: int) -> None:
        """Start a front, and another one when it dies; connections wait in its socket meanwhile."""
        loop, failures = asyncio.get_running_loop(), 0
        while not self._stop.is_set():
            began, descriptor = loop.time(), self.sockets[number].fileno()
            counters = str(self.folder / COUNTERS)
            settings = FrontSettings(server=self.settings, descriptor=descriptor, counters=counters, row=number)
            front = await self._start("front", settings, (descriptor,))
            self.fronts[number] = front
            if self.order is not None:
                front.order(self.order)
            while (event := await front.event()) is not None:
                if event.kind == "connected":
                    await self._note(number, event.generation)
                elif event.kind == "refused":
                    log(f"a front cannot use the new models: {event.error}")
            status = await front.process.wait()
            if self._stop.is_set():
                return
            failures = 1 if loop.time() - began > STEADY_SECONDS else failures + 1
            log(f"a front has died ({status}), and is started again")
            if failures >= MAX_FAILURES:
                raise RunError("front", f"has died {failures} times in a row", "Its errors are above")

    async def _note(self, number: int, generation: int) -> None:
        async with self._connected:
            self._generations[number] = generation
            self._connected.notify_all()

    async def _start_model(self) -> tuple[Child, Order]:
        """A model process with all models loaded."""
        self._generation += 1
        order = Order(connect=str(self.folder / f"model-{self._generation}"), generation=self._generation)
        counters, row = str(self.folder / COUNTERS), -1 - self._generation % MODEL_ROWS
        settings = ModelSettings(server=self.settings, path=order.connect, counters=counters, row=row)
        child = await self._start("model_process", settings)
        event = await child.event()
        if event is None or event.kind != "ready":
            status = await child.process.wait()
            location, _, fact = (event.error if event and event.error else f"model: died ({status})").partition(": ")
            raise RunError(location, fact)
        return child, order

    async def _keep_model(self) -> None:
        """Start the model process, and another one when it dies; requests are answered with 503 meanwhile."""
        loop, failures = asyncio.get_running_loop(), 0
        while not self._stop.is_set():
            began = loop.time()
            self.model, self.order = await self._start_model()
            for front in self.fronts.values():
                front.order(self.order)
            if self._generation == 1:
                self._spawn(self._announce())
            while True:
                child = self.model
                status = await child.process.wait()
                if child is self.model:  # else it was replaced
                    break
            if self._stop.is_set():
                return
            failures = 1 if loop.time() - began > STEADY_SECONDS else failures + 1
            log(f"the model process has died ({status}), and is started again")
            if failures >= MAX_FAILURES:
                raise RunError("model", f"has died {failures} times in a row", "Its errors are above")

    async def _announce(self) -> None:
        await self._everywhere(1)
        names = ", ".join(self.settings.models)
        print(f"bertsmith serves {names} at {self.address}", flush=True)

    async def _everywhere(self, generation: int) -> None:
        """Wait until every front uses a model process, or a newer one."""
        async with self._connected:
            await self._connected.wait_for(
                lambda: all(self._generations.get(number, 0) >= generation for number in range(len(self.sockets)))
            )

    async def _reload(self) -> None:
        """Load the folders anew beside the running models, and go over when they are ready."""
        async with self._reloading:
            log("the models are loaded anew")
            try:
                child, order = await self._start_model()
            except RunError as error:
                log(f"the models stay as they are, since they cannot be loaded: {error}")
                return
            previous, self.model, self.order = self.model, child, order
            for front in self.fronts.values():
                front.order(order)
            await self._everywhere(order.generation)
            if previous is not None:
                previous.finish()
            log("the new models are served")

    async def _end(self) -> None:
        """End in order: fronts answer what they have accepted, then the model process has nothing left to do."""
        for front in self.fronts.values():
            front.finish()
        seconds = self.settings.drain_seconds + KILL_SECONDS
        await asyncio.gather(*(front.wait(seconds) for front in self.fronts.values()))
        for task in list(self._tasks):
            task.cancel()
        for child in self._children:
            child.finish()
        await asyncio.gather(*(child.wait(KILL_SECONDS) for child in self._children))


def bind(host: str, port: int, count: int) -> list[socket.socket]:
    """A listening socket for each front, all on one port; the system deals connections out among them.

    The supervisor keeps them open, so that connections wait when a front dies, and are accepted by its successor.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:  # a port that is shared by accident would not fail
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
        sockets = list[socket.socket]()
        for _ in range(count):
            one = socket.socket(family, socket.SOCK_STREAM)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if count > 1:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(address if not sockets else sockets[0].getsockname())
            one.listen(2048)
            sockets.append(one)
    except socket.gaierror as error:
        raise RunError(f"host {host}", f"is not known ({error.strerror})", "Give an address of this machine") from None
    except OSError as error:
        remedy = "Give another one with --port"
        raise RunError(f"port {port}", f"cannot be used on {host} ({error.strerror})", remedy) from None
    return sockets


def log(line: str) -> None:
    """A line on the standard error."""
    print(f"bertsmith serve: {escape_control(line)}", file=sys.stderr, flush=True)
