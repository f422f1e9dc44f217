"""The connection between a front and the model process: it may break, and is made again."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertsmith.inference.model import Model
from bertsmith.serving.control import Control, Order
from bertsmith.serving.counters import Counters
from bertsmith.serving.front import Front
from bertsmith.serving.model_client import ModelClient
from bertsmith.serving.model_process import ModelServer
from bertsmith.serving.paths import PATHS
from bertsmith.serving.settings import FrontSettings, Settings
from bertsmith.serving.wire import LENGTH


class Events(Control):
    """What a front has told; the signals of this process stay as they are."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def tell(self, kind: str, **values: Any) -> None:
        self.kinds.append(kind)


@pytest.fixture
def front(models: dict[str, Model], tmp_path: Path) -> Front:
    Counters.create(tmp_path / "counters", PATHS, 1)
    settings = Settings(models={"plain": models["plain"].path})
    return Front(FrontSettings(server=settings, descriptor=-1, counters=str(tmp_path / "counters"), row=0), Events())


@pytest.fixture
def process(models: dict[str, Model], tmp_path: Path) -> Iterator[ModelServer]:
    """A model process in threads, that listens on a socket."""
    server = ModelServer({"plain": models["plain"]}, "cpu", Counters.private(PATHS))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "socket"))
    listener.listen()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                server.attach(listener.accept()[0])

    threads = [threading.Thread(target=target, daemon=True) for target in (accept, server.run)]
    for thread in threads:
        thread.start()
    yield server
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    server.finish(5)
    for thread in threads:
        thread.join(10)


async def connected(front: Front, other: ModelClient | None = None) -> ModelClient:
    """The client of a front, when it is ready and another one."""
    async with asyncio.timeout(10):
        while not front.served.ready or front.served.client is other:
            await asyncio.sleep(0.01)
    assert front.served.client is not None
    return front.served.client


@pytest.mark.parametrize("how", ["closed", "no job", "no result"])
def test_a_broken_connection_is_made_again(
    front: Front, process: ModelServer, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def check() -> None:
        front._spawn(front._follow(Order(connect=str(tmp_path / "socket"), generation=1)))
        client = await connected(front)
        tokenizer = front.served.models["plain"].tokenizer
        assert client._transport is not None
        if how == "closed":
            client._transport.abort()
        elif how == "no job":
            client._transport.write(LENGTH.pack(1) + b"\xc1")  # a byte that msgpack does not use
        else:
            client.data_received(LENGTH.pack(2**32 - 1))
        second = await connected(front, client)
        assert front.served.models["plain"].tokenizer is tokenizer  # the folder may have another one by now
        assert (await second.run("plain", "fill", ["the [MASK]"], {}, 3)).values is not None
        front._order = None
        await second.close()
        async with asyncio.timeout(5):
            while process._open:
                await asyncio.sleep(0.01)

    asyncio.run(check())
    assert front.control.kinds == ["connected", "connected"]  # type: ignore[attr-defined]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (0 if how == "closed" else 1)


@pytest.mark.parametrize("fault", [ValueError("what"), OSError("what")])
def test_a_front_keeps_its_models_if_it_cannot_load_others(
    front: Front, process: ModelServer, tmp_path: Path, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise fault

    async def check() -> None:
        order = Order(connect=str(tmp_path / "socket"), generation=1)
        front._spawn(front._follow(order))
        client = await connected(front)
        with monkeypatch.context() as patch:
            patch.setattr("bertsmith.serving.front.FrontModel", broken)
            front._spawn(front._follow(Order(connect=order.connect, generation=2)))
            async with asyncio.timeout(5):
                while front.control.kinds[-1] != "refused":  # type: ignore[attr-defined]
                    await asyncio.sleep(0.01)
        assert front.served.client is client
        assert front.served.generation == 1
        assert client._transport is not None
        client._transport.abort()
        await (await connected(front, client)).close()
        assert front.served.generation == 2
        front._order = None
        await asyncio.sleep(0.05)

    asyncio.run(check())


def test_token_ids_go_to_the_process_of_their_tokenizer(
    front: Front, process: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[ModelClient]()
    run = ModelClient.run

    async def record(self: ModelClient, *arguments: Any) -> Any:
        asked.append(self)
        return await run(self, *arguments)

    monkeypatch.setattr(ModelClient, "run", record)

    async def check() -> None:
        front._spawn(front._follow(Order(connect=str(tmp_path / "socket"), generation=1)))
        old = await connected(front)
        with front.served.using():
            model = front.served.find("plain", "fill")
            front._spawn(front._follow(Order(connect=str(tmp_path / "socket"), generation=2)))
            new = await connected(front, old)
            await asyncio.sleep(0.2)  # in which the old connection would be closed, were it not in use
            assert (await front.served.run(model, "fill", ["the [MASK]"], 3)).values is not None
        await asyncio.wait_for(old.lost.wait(), 5)
        front._order = None
        await new.close()
        await asyncio.sleep(0.05)
        assert asked == [old]

    asyncio.run(check())
