"""A front's end of the connection to the model process: many jobs on their way, each awaited by its request."""

import asyncio
from typing import Any, cast

from bertsmith.serving import wire
from bertsmith.serving.faults import log_fault
from bertsmith.serving.request_error import RequestError
from bertsmith.serving.wire import FrameBuffer, Hello, Job, Result

CLOSE_SECONDS = 0.05  # between two looks whether a connection is of use


class ModelClient(asyncio.Protocol):
    """One connection. When it is lost, every job on its way is refused with 503."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.hello: asyncio.Future[Hello] = self.loop.create_future()
        self.lost = asyncio.Event()
        self._frames = FrameBuffer()
        self._transport: asyncio.WriteTransport | None = None
        self._jobs: dict[int, asyncio.Future[Result]] = {}
        self._last = 0
        self.users = 0  # requests that may still send jobs

    @classmethod
    async def connect(cls, path: str) -> tuple["ModelClient", Hello]:
        """Connect to a socket, and hear which models there are."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_unix_connection(cls, path)
        return client, await client.hello

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is none of asyncio's classes

    def data_received(self, data: bytes) -> None:
        try:
            self._receive(data)
        except Exception as error:  # bytes were lost: nothing after them can be understood
            log_fault(error)
            assert self._transport is not None
            self._transport.abort()

    def _receive(self, data: bytes) -> None:
        for content in self._frames.add(data):
            if not self.hello.done():
                self.hello.set_result(wire.HELLOS.decode(content))
                continue
            result = wire.RESULTS.decode(content)
            future = self._jobs.pop(result.id, None)
            if future is not None and not future.done():
                future.set_result(result)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        if not self.hello.done():
            self.hello.set_exception(ConnectionError("the model process has closed the connection"))
        for future in self._jobs.values():
            if not future.done():
                future.set_exception(unavailable())
        self._jobs.clear()

    async def run(self, model: str, verb: str, inputs: list[Any], options: dict[str, Any], tokens: int) -> Result:
        """The result of a job; a job that cannot be done is refused with the reason."""
        if self.lost.is_set() or self._transport is None:
            raise unavailable()
        self._last += 1
        job, future = Job(self._last, model, verb, inputs, options, tokens), self.loop.create_future()
        self._jobs[job.id] = future
        self._transport.write(wire.frame(job))
        result: Result = await future
        if result.values is None:
            if result.fault:
                fact = f"{result.error[0]} in the model process, a fault of the server"
                raise RequestError(500, verb, fact, "Its log has the place")
            raise RequestError.of(result.error)
        return result

    async def close(self) -> None:
        """Close the connection when no job is on its way, and no request is left that may send one."""
        while (self._jobs or self.users) and not self.lost.is_set():
            await asyncio.sleep(CLOSE_SECONDS)
        if self._transport is not None:
            self._transport.close()


def unavailable() -> RequestError:
    """The refusal while there is no model process, or when it has died with the request."""
    return RequestError(503, "model", "is being loaded", "Try again in a few seconds", retry_after=2)
