"""A closed-loop load on an HTTP server: every client sends its next request when it has the answer to the last one.

    python bench/load.py PORT PATH CLIENTS SECONDS < bodies.jsonl

The clients share one process and one core, each with a connection of its own that is kept open. A client that gets 429
waits for the time of Retry-After, unless --impatient is given. Prints a JSON object with requests per second and
latencies in milliseconds.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

try:
    import uvloop
except ImportError:
    uvloop = None


@dataclass
class Figures:
    """What the clients saw."""

    latencies: list[float] = field(default_factory=list)  # of answers with status 200, in seconds
    statuses: Counter[str] = field(default_factory=Counter)


class Client(asyncio.Protocol):
    """One connection; `ask` sends a request and waits for the whole answer."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[tuple[int, dict[bytes, bytes]]] | None = None
        self._head = b""
        self._headers: dict[bytes, bytes] = {}
        self._status, self._missing, self.closed = 0, -1, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._missing < 0:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            lines = self._head[:end].split(b"\r\n")
            self._status = int(lines[0].split()[1])
            self._headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
            self._missing = int(self._headers.get(b"content-length", 0)) - (len(self._head) - end - 4)
            self._head = b""
        else:
            self._missing -= len(data)
        if self._missing <= 0 and self.answer is not None and not self.answer.done():
            self._missing = -1
            self.answer.set_result((self._status, self._headers))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(exc or ConnectionResetError())

    async def ask(self, request: bytes) -> tuple[int, dict[bytes, bytes]]:
        self.answer = asyncio.get_running_loop().create_future()
        assert self.transport is not None
        self.transport.write(request)
        return await self.answer


async def client(port: int, requests: list[bytes], seed: int, end: float, patient: bool, figures: Figures) -> None:
    """Requests one after the other, in an order of its own, until the end."""
    loop, dice, connection = asyncio.get_running_loop(), random.Random(seed), None
    while time.perf_counter() < end:
        try:
            if connection is None or connection.closed:
                _, connection = await loop.create_connection(Client, "127.0.0.1", port)
            began = time.perf_counter()
            status, headers = await connection.ask(dice.choice(requests))
        except OSError as error:
            figures.statuses[type(error).__name__] += 1
            connection = None
            await asyncio.sleep(0.1)
            continue
        figures.statuses[str(status)] += 1
        if status == 200:
            figures.latencies.append(time.perf_counter() - began)
        elif patient and b"retry-after" in headers:
            await asyncio.sleep(float(headers[b"retry-after"]))


async def load(port: int, path: str, bodies: list[bytes], clients: int, seconds: float, patient: bool) -> Figures:
    """The figures of `clients` for some seconds."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
    figures, end = Figures(), time.perf_counter() + seconds
    await asyncio.gather(*(client(port, requests, seed, end, patient, figures) for seed in range(clients)))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("clients", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--impatient", action="store_true", help="ask again at once after 429")
    options = parser.parse_args()
    bodies = [line.strip() for line in sys.stdin.buffer if line.strip()]
    work = load(options.port, options.path, bodies, options.clients, options.seconds, not options.impatient)
    began = time.perf_counter()
    figures = uvloop.run(work) if uvloop else asyncio.run(work)
    taken, found = time.perf_counter() - began, sorted(figures.latencies)

    def quantile(share: float) -> float | None:
        return round(1000 * found[min(len(found) - 1, int(share * len(found)))], 2) if found else None

    result = {"requests_per_second": round(len(found) / taken, 2), "p50_ms": quantile(0.5), "p99_ms": quantile(0.99)}
    print(json.dumps(result | {"statuses": dict(figures.statuses)}))


if __name__ == "__main__":
    main()
