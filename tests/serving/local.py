"""A server without processes: a front's application and the model process's batches in this one, joined by a socket."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bertsmith.inference.model import Model
from bertsmith.serving.application import Application
from bertsmith.serving.counters import Counters
from bertsmith.serving.model_client import ModelClient
from bertsmith.serving.model_process import ModelServer
from bertsmith.serving.paths import PATHS
from bertsmith.serving.served import FrontModel, Served
from bertsmith.serving.settings import Limits, Settings


@dataclass
class Reply:
    """An answer of the application."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class LocalServer:
    """An application with models, asked by its ASGI interface."""

    def __init__(self, models: dict[str, Model], **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.settings = Settings(models={name: model.path for name, model in models.items()}, **settings)
        self.counters = Counters.private(PATHS)
        self.served = Served(self.settings.limits, self.counters)
        self.application = Application(self.settings, self.served)
        self.server = ModelServer(models, "cpu", self.counters)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        ours, theirs = socket.socketpair()
        self.server.attach(theirs)
        self.loop.run_until_complete(self._connect(ours))
        self.thread.start()

    async def _connect(self, endpoint: socket.socket) -> None:
        _, client = await self.loop.create_unix_connection(ModelClient, sock=endpoint)
        hello = await client.hello
        self.served.use(client, hello, {one.name: FrontModel(one, client) for one in hello.models}, 1)

    def close(self) -> None:
        assert self.served.client is not None
        self.loop.run_until_complete(self.served.client.close())
        self.loop.run_until_complete(asyncio.sleep(0))
        self.server.finish(10)
        self.thread.join(10)
        self.loop.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """One request; bytes are sent as they are, anything else as JSON."""
        return self.loop.run_until_complete(self.request(method, path, body, **headers))

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """The JSON of an answer that must be 200."""
        reply = self.ask("POST", path, body, **headers)
        assert reply.status == 200, reply.content
        return reply.json

    def refusal(self, path: str, body: Any, status: int) -> str:
        """The line of a request that must be refused with this status."""
        reply = self.ask("POST", path, body)
        assert reply.status == status, reply.content
        error = reply.json["error"]
        line = error["message"] if isinstance(error, dict) else error
        assert "\n" not in line
        return str(line)

    async def request(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        named = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
        named.append((b"content-length", str(len(content)).encode()))
        scope = {"type": "http", "method": method, "path": path, "headers": named, "query_string": b""}
        await self.application(scope, receive, send)
        start, end = sent
        answered = {name.decode(): value.decode() for name, value in start["headers"]}
        return Reply(start["status"], answered, end["body"])


@contextmanager
def local(models: dict[str, Model], limits: dict[str, Any] | None = None, **settings: Any) -> Iterator[LocalServer]:
    server = LocalServer(models, limits=Limits(**(limits or {})), **settings)
    try:
        yield server
    finally:
        server.close()
