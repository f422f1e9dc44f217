"""Limits come before work: keys, sizes, numbers, deadlines and room in the queue; on real connections where need be."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from serving.local import LocalServer, local

from bertsmith.inference.model import Model
from bertsmith.serving.front import http_server
from bertsmith.serving.paths import PATHS
from bertsmith.serving.routes import OPEN, ROUTES

SHORT: dict[str, Any] = {
    "header_seconds": 0.3,
    "body_seconds": 0.4,
    "idle_seconds": 0.5,
    "body_bytes": 10_000,
    "connections": 20,
}
SHORT |= {"flush_seconds": 0.5}
BODY = json.dumps({"inputs": "the cat", "model": "plain"}).encode()


@contextmanager
def listening(server: LocalServer) -> Iterator[int]:
    """The port of a server that accepts connections, in a thread."""
    with socket.socket() as endpoint:
        endpoint.bind(("127.0.0.1", 0))
        http = http_server(server.settings, server.served)
        serving = threading.Thread(target=lambda: server.loop.run_until_complete(http.serve([endpoint])))
        serving.start()
        while not http.started:
            time.sleep(0.01)
        try:
            yield endpoint.getsockname()[1]
        finally:
            http.should_exit = True
            serving.join(20)


@pytest.fixture(scope="module")
def port(models: dict[str, Model]) -> Iterator[int]:
    """The port of a server whose deadlines are short."""
    with local({"plain": models["plain"]}, SHORT) as server, listening(server) as found:
        yield found


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def head(length: int, path: str = "/embed", extra: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{extra}\r\n".encode()


def read(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


def one_answer(connection: socket.socket) -> bytes:
    """Head and body of the next answer."""
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += connection.recv(1)
    length = int(answer.lower().partition(b"content-length: ")[2].split()[0])
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return answer + body


def test_every_route_but_health_wants_the_key(models: dict[str, Model]) -> None:
    with local({"plain": models["plain"]}, key="a-long-secret") as server:
        for method, path in [*ROUTES, ("GET", "/nowhere"), ("POST", "/models/plain/fill")]:
            expected = 200 if (method, path) in OPEN else 401
            assert server.ask(method, path).status == expected, path
            assert server.ask(method, path, authorization="Bearer a-long-secre").status == expected
            assert server.ask(method, path, authorization="Bearer ").status == expected
            assert server.ask(method, path, authorization="a-long-secret").status == expected
            assert server.ask(method, path, {}, authorization="bearer a-long-secret").status != 401
        reply = server.ask("POST", "/embed", {"inputs": "x"}, authorization="Bearer wrong")
        assert reply.json["error"] == "key: is not the server's. Send the header Authorization: Bearer KEY."
        assert reply.headers["www-authenticate"] == "Bearer"


def test_the_paths_that_are_counted_are_those_of_the_routes() -> None:
    assert set(PATHS) == {path for _, path in ROUTES}


@pytest.mark.parametrize(
    ("limits", "body", "line"),
    [
        ({"body_bytes": 50}, {"inputs": "x" * 50}, "body: is larger than 50 bytes. Send fewer texts at a time."),
        ({"inputs": 2}, {"inputs": ["x"] * 3}, "inputs: 3 are more than 2. Send fewer at a time."),
        ({"request_tokens": 9}, {"inputs": ["the cat"] * 3}, "inputs: 12 tokens are more than the 9 that a request "),
    ],
)
def test_too_much_is_refused(models: dict[str, Model], limits: dict[str, Any], body: object, line: str) -> None:
    with local({"plain": models["plain"]}, limits) as server:
        assert server.refusal("/embed", body, 413).startswith(line)


def test_a_page_of_another_site_is_refused(server: LocalServer) -> None:
    here = "localhost:1"
    own = server.ask("POST", "/embed", {"inputs": "x", "model": "plain"}, host=here, origin="http://localhost:1")
    other = server.ask("POST", "/embed", {"inputs": "x", "model": "plain"}, host=here, origin="http://b")
    assert (own.status, other.status) == (200, 403)


def test_a_full_queue_refuses_at_once_and_recovers(models: dict[str, Model]) -> None:
    with local({"plain": models["plain"]}, {"queue_requests": 4}) as server:

        async def crowd() -> list[Any]:
            body = {"inputs": ["the cat"] * 50}
            return await asyncio.gather(*(server.request("POST", "/embed", body) for _ in range(40)))

        replies = server.loop.run_until_complete(crowd())
        refused = [reply for reply in replies if reply.status == 429]
        assert len(refused) == 36
        assert refused[0].headers["retry-after"] == "1"
        assert refused[0].json == {"error": "server: is busy. Try again in a second.", "error_type": "overloaded"}
        assert server.ask("POST", "/embed", {"inputs": "x"}).status == 200
        assert server.counters.total("pending_requests") == server.counters.total("pending_tokens") == 0


def test_the_queue_counts_tokens_too(models: dict[str, Model]) -> None:
    with local({"plain": models["plain"]}, {"queue_tokens": 100}) as server:

        async def crowd() -> list[int]:
            body = {"inputs": ["the cat"] * 20}
            return [one.status for one in await asyncio.gather(*(server.request("POST", "/embed", body),) * 1)]

        assert server.loop.run_until_complete(crowd()) == [200]  # alone, it is let in whatever its size
        server.counters.add("pending_requests")
        server.counters.add("pending_tokens", 90)
        assert server.refusal("/embed", {"inputs": ["the cat"] * 20}, 429).startswith("server: is busy.")
        assert server.ask("POST", "/embed", {"inputs": "the cat"}).status == 200


# ------------------------------------------------------------------------------------------- real connections


def test_requests_follow_each_other_on_a_connection(port: int) -> None:
    with connect(port) as connection:
        for _ in range(3):
            connection.sendall(head(len(BODY)) + BODY)
            assert one_answer(connection).startswith(b"HTTP/1.1 200 OK")
        connection.sendall(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK")
        connection.sendall(b"HEAD /embed HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 405 ")
        connection.sendall((head(len(BODY)) + BODY) * 2)  # pipelined
        answer = b""
        while answer.count(b"HTTP/1.1 200 OK") < 2:
            answer += connection.recv(65_536)


SLOW: dict[str, Callable[[int], bytes]] = {
    "silent": lambda turn: b"",
    "headers": lambda turn: b"POST /embed HTTP/1.1\r\n" if turn == 0 else b"X-A: b\r\n",
    "line breaks": lambda turn: b"\r\n",
    "body": lambda turn: head(5000) if turn == 0 else b"x",
    "body of a refused path": lambda turn: head(5000, "/nowhere") if turn == 0 else b"x",
    "body of a chunk": lambda turn: (
        head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"1\r\nx\r\n"
        if turn == 0
        else b"1\r\nx\r\n"
    ),
    "after an answer": lambda turn: head(len(BODY)) + BODY if turn == 0 else b"",
    "after an answer, headers": lambda turn: head(len(BODY)) + BODY if turn == 0 else b"P",
}


@pytest.mark.slow("waits for deadlines")
@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_connection_is_closed(port: int, kind: str) -> None:
    with connect(port) as connection:
        connection.settimeout(0.1)
        began = time.monotonic()
        for turn in range(60):
            try:
                if data := SLOW[kind](turn):
                    connection.sendall(data)
                while connection.recv(65_536):
                    pass
                break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - began < 4, "it was still open"


@pytest.mark.slow("sends a large upload")
@pytest.mark.parametrize("how", ["declared", "chunked"])
def test_a_large_upload_gets_its_answer_and_an_end(port: int, how: str) -> None:
    sent = 0
    with connect(port) as connection:
        if how == "declared":
            connection.sendall(head(1 << 30))
        else:
            connection.sendall(head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        piece = b"x" * 65_536
        frame = piece if how == "declared" else b"10000\r\n" + piece + b"\r\n"
        try:
            while sent < 1 << 30:
                connection.sendall(frame)
                sent += len(frame)
                if sent > 1 << 20:
                    break
        except OSError:
            pass
        answer = read(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()
    assert b"body: is larger than 10,000 bytes" in answer
    assert sent < 1 << 27


def test_an_upload_that_waits_for_permission_gets_none(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(head(1 << 30, extra="Expect: 100-continue\r\n"))
        answer = read(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer


def test_endless_headers_are_refused(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"POST /embed HTTP/1.1\r\n" + b"X-A: b\r\n" * 20_000)
        assert read(connection).startswith(b"HTTP/1.1 431 ")


def test_there_are_no_more_connections_than_the_limit(port: int) -> None:
    connections = [connect(port) for _ in range(30)]
    time.sleep(0.1)
    answers = []
    for connection in connections:
        connection.settimeout(0.05)
        try:
            answers.append(connection.recv(1000))
        except TimeoutError:
            answers.append(b"")
        connection.close()
    assert sum(answer.startswith(b"HTTP/1.1 503 ") for answer in answers) >= 10
    time.sleep(0.2)
    with connect(port) as connection:
        connection.sendall(head(len(BODY)) + BODY)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /embed HTTP/1.1\r\nA\r\n\r\n"]
)
def test_what_is_no_http_is_refused(port: int, data: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(data)
        assert read(connection).startswith(b"HTTP/1.1 400 ")


@pytest.mark.slow("waits")
def test_a_full_server_refuses_before_it_reads_and_keeps_the_connection(models: dict[str, Model]) -> None:
    with local({"plain": models["plain"]}, {"queue_requests": 1}) as server, listening(server) as port:
        with connect(port) as connection:
            server.counters.add("pending_requests")
            for path, error in (
                ("/embed?x", b'"error_type":"overloaded"'),
                ("/v1/embeddings", b'"code":"overloaded"'),
                ("/models/plain/v1/embeddings", b'"code":"overloaded"'),
            ):
                began = time.monotonic()
                connection.sendall(head(5_000, path) + b"{" * 4_999)  # no JSON, and not even whole
                answer = one_answer(connection)
                assert answer.startswith(b"HTTP/1.1 429 ")
                assert b"retry-after: 1" in answer
                assert error in answer
                assert time.monotonic() - began < 2
                connection.sendall(b"{")
            connection.sendall((head(len(BODY)) + BODY) * 3)  # pipelined: three refusals, in order
            for _ in range(3):
                assert one_answer(connection).startswith(b"HTTP/1.1 429 ")
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one_answer(connection).startswith(b"HTTP/1.1 200 OK")
            server.counters.add("pending_requests", -1)
            connection.sendall(head(len(BODY)) + BODY)
            assert one_answer(connection).startswith(b"HTTP/1.1 200 OK")
        assert server.counters.total("/embed 429") == 4


def test_a_refusal_that_waits_is_sent_when_the_server_ends(models: dict[str, Model]) -> None:
    with local({"plain": models["plain"]}, {"queue_requests": 1}) as server:
        server.counters.add("pending_requests")
        with listening(server) as port:
            connection = connect(port)
            connection.sendall(head(len(BODY)) + BODY)
            time.sleep(0.1)
        with connection:
            assert read(connection).startswith(b"HTTP/1.1 429 ")
