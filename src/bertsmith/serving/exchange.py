"""A request whose route is known, and an answer that is ready to be sent."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bertsmith.serving.request_error import RequestError
from bertsmith.serving.served import FrontModel, Served
from bertsmith.serving.settings import Limits, Settings

ENCODER = msgspec.json.Encoder()
HTML = "text/html"


@dataclass
class Request:
    """What a route needs to know of a request besides its body."""

    settings: Settings
    served: Served
    path: str
    model: str | None  # that the path names
    uploaded: bool = False  # whether the body is an image and not JSON

    @property
    def limits(self) -> Limits:
        return self.settings.limits

    def find(self, name: str | None, verb: str, task: str = "", *, images: bool = False) -> FrontModel:
        """The model that the path or the body names; one of images only where the route takes them."""
        allowed = (True,) if self.uploaded else (False, True) if images else (False,)
        return self.served.find(self.model or name, verb, task, allowed)


@dataclass(frozen=True)
class Answer:
    """An answer, ready to be sent."""

    content: bytes
    kind: bytes = b"application/json"
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(frozen=True)
class Route:
    """A method and a path, with the function that answers. `body` is the type of the body of a POST."""

    method: str
    path: str
    handle: Callable[[Request, Any], Awaitable[Answer]]
    summary: str
    body: Any = None
    answers: str = "application/json"  # the type of its answers
    images: bool = False  # whether the body may be an image


def as_json(value: Any, status: int = 200) -> Answer:
    """A value as JSON."""
    return Answer(ENCODER.encode(value), status=status)


def html(page: str, *headers: tuple[bytes, bytes]) -> Answer:
    """A page; a browser takes it as nothing else, and sends no address on."""
    safe = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
    return Answer(page.encode(), HTML.encode() + b"; charset=utf-8", headers=[*safe, *headers])


def as_list(inputs: Any, limits: Limits) -> tuple[list[Any], bool]:
    """Inputs as a list, and whether a single one was given; a list that is empty or too long is refused."""
    if not isinstance(inputs, list):
        return [inputs], True
    if not inputs:
        raise RequestError(422, "inputs", "is an empty list", "Give one text at least")
    if len(inputs) > limits.inputs:
        raise RequestError(413, "inputs", f"{len(inputs):,} are more than {limits.inputs:,}", "Send fewer at a time")
    return inputs, False
