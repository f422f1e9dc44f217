"""The ASGI application of a front: it finds the route, checks key and limits, and turns refusals into answers.

Whatever a client gets wrong is an answer of one line in the 400s; texts of requests never reach a log.
"""

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import msgspec

from bertsmith.errors import BertsmithError
from bertsmith.serving import huggingface, uploads
from bertsmith.serving.counters import OTHER
from bertsmith.serving.exchange import Answer, Request, Route
from bertsmith.serving.faults import log_fault
from bertsmith.serving.huggingface import PIPELINE
from bertsmith.serving.paths import PATHS
from bertsmith.serving.request_error import RequestError
from bertsmith.serving.routes import OPEN, ROUTES
from bertsmith.serving.schemas import decode
from bertsmith.serving.served import Served
from bertsmith.serving.settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = b"application/json"
MODELS = "/models/"  # a route under the name of a model: /models/mine/fill


class DisconnectedError(Exception):
    """The client has left: nobody waits for an answer."""


class Application:
    """All requests of a front."""

    def __init__(self, settings: Settings, served: Served) -> None:
        self.settings, self.served = settings, served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began, route = time.perf_counter(), OTHER
        path, model = split(scope["path"])
        try:
            route = route_path(path)
            answer = await self._answer(scope, receive, path, model)
        except RequestError as refusal:
            answer = refused(refusal, path)
        except DisconnectedError:
            return
        except BertsmithError as error:  # a text that the tokenizer cannot read
            answer = refused(RequestError.of(error.parts), path)
        except Exception as error:
            log_fault(error)
            fact = f"{type(error).__name__}, a fault of the server"
            answer = refused(RequestError(500, "server", fact, "Its log has the place"), path)
        self.served.counters.count_request(route, answer.status, time.perf_counter() - began)
        headers = [(b"content-type", answer.kind), (b"content-length", str(len(answer.content)).encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": [*headers, *answer.headers]})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.content})

    async def _answer(self, scope: Scope, receive: Receive, path: str, model: str | None) -> Answer:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if self.settings.key and (method, path) not in OPEN:
            authorise(headers.get(b"authorization", b""), self.settings.key)
        if not self.settings.key:
            check_host(headers, self.settings.host)
        check_origin(headers)
        if model and "/" in model and self.served.models and model not in self.served.models:
            raise no_route(scope["path"])  # what follows the name of the model is none
        route = find(method, path)
        request = Request(self.settings, self.served, path, model)
        if route.body is None:
            return await route.handle(request, None)
        self.served.check_room()
        content, kind = await self._body(headers, receive), headers.get(b"content-type", b"").decode("latin-1")
        if (upload := uploads.read(kind, content)) is None:
            body = decode(content, route.body)
        elif route.images:
            request.uploaded, body = True, huggingface.convert(upload, route.body)
        else:
            raise RequestError(415, "body", "is no JSON", "This route takes no images: send application/json")
        with self.served.using():
            return await route.handle(request, body)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The body, refused as soon as it is known to be too long, and if it does not arrive in time."""
        limits = self.settings.limits
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > limits.body_bytes:
            raise too_long(limits.body_bytes)
        parts, size = [], 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise DisconnectedError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limits.body_bytes:
                        raise too_long(limits.body_bytes)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            fact = f"has not arrived in {limits.body_seconds:.0f} seconds"
            raise RequestError(408, "body", fact, "Send it faster", close=True) from None


def too_long(limit: int) -> RequestError:
    """The refusal of a body above the limit; the connection ends, since the rest of the body is not read."""
    return RequestError(413, "body", f"is larger than {limit:,} bytes", "Send fewer texts at a time", close=True)


def authorise(given: bytes, key: str) -> None:
    """Compare the key of a request with the server's, in a time that says nothing about either."""
    scheme, _, token = given.partition(b" ")
    same = hmac.compare_digest(token.strip(), key.encode())
    if scheme.lower() != b"bearer" or not same:
        fact = "is not the server's" if token else "is missing"
        raise RequestError(401, "key", fact, "Send the header Authorization: Bearer KEY")


def check_origin(headers: dict[bytes, bytes]) -> None:
    """Refuse requests that a page of another site makes a browser send: a server without a key trusts its machine."""
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != headers.get(b"host", b""):
        raise RequestError(403, "origin", "is another site", "Ask the server from its own page, or from a program")


def check_host(headers: dict[bytes, bytes], own: str) -> None:
    """Refuse a name that is not this machine's, where no key is asked for.

    A page can give its own name the address of this machine, and is then no other site any more: DNS rebinding. It
    cannot do so with an address, or with localhost. Programs may leave the header out; browsers never do.
    """
    if (given := headers.get(b"host")) is None:
        return
    host = given.decode("latin-1").lower()
    name, _, port = host.rpartition(":")
    name = (name if port.isdigit() and not name.endswith(":") else host).strip("[]")
    if name in ("localhost", own.lower()):
        return
    with suppress(ValueError):
        if ipaddress.ip_address(name).is_loopback:
            return
    remedy = "Ask for 127.0.0.1 or localhost, or give the server a key and ask with it"
    raise RequestError(403, "host", f"'{name[:80]}' is no name of this server", remedy)


def split(path: str) -> tuple[str, str | None]:
    """A path without the name of a model before it, and that name: `/models/mine/fill` is `/fill` of `mine`.

    A name may have slashes: the route is the longest that the path ends with.
    """
    if not path.startswith(MODELS):
        return path, None
    name = path.removeprefix(MODELS).split("/")
    for parts in (3, 2, 1):
        route = "/" + "/".join(name[-parts:])
        if len(name) > parts and route_path(route) in PATHS:
            return route, "/".join(name[:-parts])
    return "/", "/".join(name)


def route_path(path: str) -> str:
    """The path of the route of a path: the same, without the value that some end with."""
    return next((start for start in (PIPELINE, "/v1/models/") if path.startswith(start)), path)


def find(method: str, path: str) -> Route:
    """The route of a method and a path."""
    if (route := ROUTES.get((method, route_path(path)))) is not None:
        return route
    if methods := [known for known, start in ROUTES if start == route_path(path)]:
        raise RequestError(405, path[:80], f"does not answer {method}", f"Use {' or '.join(methods)}", allow=methods)
    raise no_route(path)


def no_route(path: str) -> RequestError:
    return RequestError(404, path[:80], "is no route of this server", "GET /openapi.json lists them")


def refused(refusal: RequestError, path: str) -> Answer:
    """A refusal as an answer: in OpenAI's form under /v1, else in that of text-embeddings-inference."""
    line = str(refusal)
    if path.startswith("/v1/"):
        kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
        body: dict[str, Any] = {"error": {"message": line, "type": kind, "param": None, "code": refusal.kind}}
    else:
        body = {"error": line, "error_type": refusal.kind}
    headers = []
    if refusal.retry_after:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    if refusal.close:
        headers.append((b"connection", b"close"))
    if refusal.allow:
        headers.append((b"allow", ", ".join(refusal.allow).encode()))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return Answer(msgspec.json.encode(body), JSON, refusal.status, headers)
