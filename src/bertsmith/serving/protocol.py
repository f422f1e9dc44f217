"""HTTP on a connection, with deadlines: uvicorn's protocol, which by itself waits for slow clients for ever.

A connection has a time for the headers of a request, a time for its body, and a time between two requests; whoever
exceeds one is closed. A refused upload is closed gently: its sender gets the answer before the end of the connection.
An answer that its client does not read ends the connection too, since a plain close would wait for the client.

While the queue is full, a request is refused when its headers are known: nothing of it is parsed, and no task is
started. The refusal waits a moment, so that clients which ask again at once take little time from the others.
"""

import asyncio

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from bertsmith.serving.application import refused, route_path, split
from bertsmith.serving.served import Served, overloaded
from bertsmith.serving.settings import Limits

MAX_HEADER_BYTES = 65_536
LINGER_SECONDS = 2.0  # in which the rest of a refused upload is read and dropped
LINGER_BYTES = 64 << 20
FLUSH_BYTES = 256 << 10  # of an answer that a client must read in the time of the limits
DRAIN_SECONDS = 0.3  # an idle connection stays open so long when the server ends: a request may be on its way
CONTINUE = b"HTTP/1.1 100 "
SHED_SECONDS = 0.5
LATE_SECONDS = 1.0  # the application's own answer to a late body comes first


class Protocol(HttpToolsProtocol):
    """A connection of a front, whose subclass has what is served."""

    served: Served

    @property
    def limits(self) -> Limits:
        return self.served.limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._deadline: asyncio.TimerHandle | None = None
        self._flushing: asyncio.TimerHandle | None = None  # a look at how much of an answer has been read
        self._reading = False  # a request has begun, and its headers are not complete
        self._receiving = False  # its headers are complete, and its body is not
        self._draining = self._dropping = False
        self._shed: asyncio.TimerHandle | None = None  # a refusal that waits
        self._shedding = False  # the request that is being read is refused already
        self._header_bytes = self._dropped = 0
        self.served.counters.set("connections", len(self.connections))
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "server: has too many connections. Try again in a second.", b"retry-after: 1\r\n")
        else:
            self._expect(self.limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._expect(None)
        if self._flushing is not None:
            self._flushing.cancel()
        self.served.counters.set("connections", len(self.connections))

    def data_received(self, data: bytes) -> None:
        if self._dropping:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self._close()
            return
        if not self._receiving and not self._reading and self._is_idle():
            self._reading, self._header_bytes = True, 0
            self._expect(self.limits.header_seconds)
        if self._reading:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._reading and self._header_bytes > MAX_HEADER_BYTES:
            self._refuse(431, f"headers: are larger than {MAX_HEADER_BYTES:,} bytes. Send fewer.")

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def on_headers_complete(self) -> None:
        self._reading, self._receiving = False, True
        if self._shed is not None:  # a client that does not wait for answers
            self._write_shed()
        if self._is_idle() and not self._draining and self.parser.get_method() == b"POST" and self.served.is_full():
            self._shedding = True
            self._shed = self.loop.call_later(SHED_SECONDS, self._write_shed)
            self._expect(self.limits.body_seconds + LATE_SECONDS)
            return
        super().on_headers_complete()
        self.cycle.transport = _AnswerTransport(self)  # type: ignore[assignment]
        if self._draining:
            self.cycle.keep_alive = False
        self._expect(self.limits.body_seconds + LATE_SECONDS)

    def on_message_complete(self) -> None:
        self._receiving = False
        if self._shedding:
            self._shedding = False
            self._expect(self.limits.idle_seconds)
            return
        self._expect(None)
        super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        if not self._shedding:
            super().on_body(body)

    def _write_shed(self) -> None:
        """Refuse a request that the queue had no room for; the connection stays open."""
        assert self._shed is not None
        self._shed.cancel()
        self._shed = None
        if self.transport.is_closing():
            return
        path, _ = split(self.url.partition(b"?")[0].decode("ascii", "replace"))
        self.transport.write(SHED[path.startswith("/v1/")])
        self.served.counters.count_request(route_path(path), 429, SHED_SECONDS)

    def on_response_complete(self) -> None:
        if isinstance(self.cycle.transport, _AnswerTransport):
            self.cycle.transport.flush()
        super().on_response_complete()

    def close_gently(self) -> None:
        """Close after an answer. If the request has not ended, a plain close would destroy the answer on its way."""
        if not (self._receiving or self._reading) or self.transport.is_closing():
            self._close()
            return
        self._dropping = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._expect(LINGER_SECONDS)

    def _close(self) -> None:
        """Close as soon as the client has read what was written; or without that, if it does not read."""
        self.transport.close()
        self._watch_flush()

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._watch_flush()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_flush()

    def _watch_flush(self) -> None:
        """Look from time to time whether the client reads what was written."""
        if self._flushing is None and (size := self.transport.get_write_buffer_size()):
            self._flushing = self.loop.call_later(self.limits.flush_seconds, self._check_flush, size)

    def _check_flush(self, before: int) -> None:
        self._flushing = None
        size = self.transport.get_write_buffer_size()
        if size > max(0, before - FLUSH_BYTES):
            self.transport.abort()
        else:
            self._watch_flush()

    def shutdown(self) -> None:
        """End the connection when its request is answered; one that is idle, or begins a request, a moment later."""
        self._draining = True
        if self._shed is not None:  # a refusal that waits is an answer that is owed
            self._write_shed()
        if self._is_idle():
            self.loop.call_later(DRAIN_SECONDS, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def _close_if_idle(self) -> None:
        if self._is_idle() and not self._reading and not self.transport.is_closing():
            self.close_gently()

    def _expect(self, seconds: float | None) -> None:
        """Close the connection after some seconds, unless something else is expected before."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._close)

    def _refuse(self, status: int, line: str, headers: bytes = b"") -> None:
        """Answer without the application, and close."""
        body = msgspec.json.encode({"error": line, "error_type": "too_large" if status == 431 else "overloaded"})
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + headers + b"\r\n" + body)
        self.close_gently()


class _AnswerTransport:
    """The transport as the answer to one request sees it: head and body are one write, and it is closed gently."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol, self._transport = protocol, protocol.transport
        self._head: bytes | None = None
        self.is_closing = self._transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head is None and not data.startswith(CONTINUE):
            self._head = data
            return
        self._transport.write((self._head or b"") + data)
        self._head = b"" if self._head is not None else None

    def flush(self) -> None:
        """Write a head that has no body."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        self.flush()
        self._protocol.close_gently()


def _shed_answer(path: str) -> bytes:
    """The whole answer to a request that the queue has no room for."""
    answer = refused(overloaded(), path)
    headers = [(b"content-type", answer.kind), (b"content-length", b"%d" % len(answer.content)), *answer.headers]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return STATUS_LINE[answer.status] + lines + b"\r\n" + answer.content


SHED = {False: _shed_answer("/"), True: _shed_answer("/v1/")}


def protocol(served: Served) -> type[Protocol]:
    """The protocol of a front."""
    return type("FrontProtocol", (Protocol,), {"served": served})
