"""A client that does not read its answer does not keep a connection and the answer for ever; a slow one gets it."""

import json
import socket
import time
from collections.abc import Iterator

import pytest
from serving.local import LocalServer, local
from serving.test_limits import head, listening

from bertsmith.inference.model import Model

pytestmark = pytest.mark.slow("waits for deadlines")
COUNT = 10_000
LIMITS = {"flush_seconds": 0.5, "idle_seconds": 0.5, "inputs": COUNT}
BODY = json.dumps({"inputs": ["the cat"] * COUNT}).encode()
REQUEST = head(len(BODY)) + BODY  # 7 MB of numbers are its answer, more than systems keep for a connection


@pytest.fixture
def server(models: dict[str, Model]) -> Iterator[LocalServer]:
    with local({"plain": models["plain"]}, LIMITS) as running:
        yield running


def narrow(port: int) -> socket.socket:
    """A connection whose client keeps little of what is sent to it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", port))
    return connection


def connections(server: LocalServer) -> float:
    return server.counters.total("connections")


@pytest.mark.parametrize("requests", [1, 4])
def test_a_client_that_does_not_read_is_left(server: LocalServer, requests: int) -> None:
    """Also if it goes on to ask."""
    with listening(server) as port, narrow(port) as connection:
        connection.sendall(REQUEST * requests)
        end = time.monotonic() + 10
        while connections(server) == 0:
            time.sleep(0.01)
        while connections(server):
            assert time.monotonic() < end, "it is still open"
            time.sleep(0.05)


def test_a_client_that_reads_slowly_gets_its_answer(server: LocalServer) -> None:
    with listening(server) as port, narrow(port) as connection:
        connection.sendall(REQUEST)
        began, size, answer = time.monotonic(), 0, b""
        while part := connection.recv(65_536):
            answer += part
            if len(answer) - size > 1_000_000:
                size = len(answer)
                time.sleep(0.25)
        assert time.monotonic() - began > 1  # longer than both limits together
        content = answer.partition(b"\r\n\r\n")[2]
        assert len(json.loads(content)) == COUNT
