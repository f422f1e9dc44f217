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
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bertsmith.errors import RunError
from bertsmith.serving.child import Child
from bertsmith.serving.control import Order
from bertsmith.serving.counters import MODEL_ROWS, Counters
from bertsmith.serving.paths import PATHS
from bertsmith.serving.settings import FrontSettings, ModelSettings, Settings
from bertsmith.terminal import escape_control

COUNTERS = "counters"  # the file of the table
MAX_FAILURES = 5  # in a row, of one child, before the server gives up
STEADY_SECONDS = 30.0  # a child that has lived so long has not failed in a row
KILL_SECONDS = 5.0  # after the time for draining
SWITCH_SECONDS = 60.0  # for all fronts to go over to new models
RETRY_SECONDS = 1.0  # before models that could not be loaded are loaded again; twice as long each time


class Supervisor:
    """The server as a whole."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sockets: list[socket.socket] = []
        self.fronts: dict[int, Child] = {}
        self._children: set[Child] = set()  # all that may still run
        self.order: Order | None = None  # the newest model process
        self._generation = 0
        self._stop = asyncio.Event()
        self._failure: RunError | None = None
        self._connected = asyncio.Condition()
        self._generations: dict[int, int] = {}  # that each front uses
        self._refused: dict[int, str] = {}  # why a front could not use a generation
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reload = asyncio.Event()  # that is asked for

    async def run(self) -> None:
        """Serve until a signal, or until a child fails for good."""
        self.sockets = bind(self.settings.host, self.settings.port, self.settings.fronts)
        loop = asyncio.get_running_loop()
        for stopping in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(stopping, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
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
                    await self._refuse(event.generation, event.error)
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

    async def _refuse(self, generation: int, error: str) -> None:
        async with self._connected:
            self._refused[generation] = error
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
            try:
                child, order = await self._start_model()
            except RunError as error:
                if self.order is None or failures + 1 >= MAX_FAILURES:  # they have never been loaded, or not for long
                    raise
                failures += 1
                log(f"the models cannot be loaded, which is tried again: {error}")
                await asyncio.sleep(RETRY_SECONDS * 2 ** (failures - 1))
                continue
            if self.order is None:
                self._spawn(self._announce())
            self._send(order)
            child, began = await self._keep_loading(child, began)
            status = await child.process.wait()
            if self._stop.is_set():
                return
            failures = 1 if loop.time() - began > STEADY_SECONDS else failures + 1
            log(f"the model process has died ({status}), and is started again")
            if failures >= MAX_FAILURES:
                raise RunError("model", f"has died {failures} times in a row", "Its errors are above")

    async def _keep_loading(self, child: Child, began: float) -> tuple[Child, float]:
        """Load the models anew whenever that is asked for, until the process that has them dies; and when it began."""
        loop = asyncio.get_running_loop()
        dying, asked = loop.create_task(child.process.wait()), loop.create_task(self._reload.wait())
        try:
            while True:
                await asyncio.wait((dying, asked), return_when=asyncio.FIRST_COMPLETED)
                if dying.done():
                    return child, began
                self._reload.clear()
                started = loop.time()
                if (other := await self._replace(child)) is not child:
                    dying.cancel()
                    child, began, dying = other, started, loop.create_task(other.process.wait())
                asked = loop.create_task(self._reload.wait())
        finally:
            dying.cancel()
            asked.cancel()

    async def _replace(self, child: Child) -> Child:
        """Load the folders anew beside the running models, and go over when they are ready: all fronts, or none."""
        log("the models are loaded anew")
        try:
            other, order = await self._start_model()
        except RunError as error:
            log(f"the models stay as they are, since they cannot be loaded: {error}")
            return child
        previous = self.order
        assert previous is not None
        self._send(order)
        if why := await self._everywhere(order.generation, other):
            log(f"the models stay as they are, since {why}")
            self._send(previous)
            other.finish()
            return child
        child.finish()
        log("the new models are served")
        return other

    def _send(self, order: Order) -> None:
        """Tell the fronts which model process they shall use, and those that are started later."""
        self.order = order
        for front in self.fronts.values():
            front.order(order)

    async def _announce(self) -> None:
        async with self._connected:
            await self._connected.wait_for(lambda: self._reached(1))
        names = ", ".join(self.settings.models)
        print(f"bertsmith serves {names} at {self.address}", flush=True)

    def _reached(self, generation: int) -> bool:
        """Whether every front uses a model process, or a newer one."""
        return all(self._generations.get(number, 0) >= generation for number in range(len(self.sockets)))

    async def _everywhere(self, generation: int, child: Child) -> str:
        """Wait until every front uses a model process; why it is of no use, if one does not."""
        end = asyncio.get_running_loop().time() + SWITCH_SECONDS
        while True:
            async with self._connected:
                with suppress(TimeoutError):  # now and then: nobody tells of a process that has died
                    await asyncio.wait_for(
                        self._connected.wait_for(lambda: generation in self._refused or self._reached(generation)), 1
                    )
            if generation in self._refused:
                return f"a front cannot use them: {self._refused[generation]}"
            if self._reached(generation):
                return ""
            if child.process.returncode is not None:
                return f"their process has died ({child.process.returncode})"
            if asyncio.get_running_loop().time() > end:
                return f"fronts have not gone over in {SWITCH_SECONDS:.0f} seconds"

    async def _end(self) -> None:
        """End in order: fronts answer what they have accepted, then the model process has nothing left to do.

        The sockets are closed first, so that new clients are turned away at once, and do not wait for fronts that end.
        """
        for one in self.sockets:
            one.close()
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
