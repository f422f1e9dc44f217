"""The routes of a front, and what each of them answers."""

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bertsmith.serving.embeddings import embed, tokenise
from bertsmith.serving.request_error import RequestError
from bertsmith.serving.schemas import EmbedBody, EmbeddingsBody, decode
from bertsmith.serving.served import FrontModel, Served
from bertsmith.serving.settings import Limits, Settings

OPEN = ("/health",)  # needs no key


@dataclass
class Request:
    """A request whose route is known."""

    settings: Settings
    served: Served
    path: str
    model: str | None  # that the path names
    content: bytes = b""

    def find(self, name: str | None, verb: str, task: str = "") -> FrontModel:
        """The model that the path or the body names."""
        return self.served.find(self.model or name, verb, task)


@dataclass(frozen=True)
class Answer:
    """An answer, ready to be sent."""

    content: bytes
    kind: bytes = b"application/json"
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(frozen=True)
class Route:
    """A method and a path with the function that answers."""

    method: str
    path: str
    handle: Callable[[Request], Awaitable[Answer]]
    summary: str
    body: type[msgspec.Struct] | None = None


ENCODER = msgspec.json.Encoder()


def as_json(value: Any, status: int = 200) -> Answer:
    """A value as JSON."""
    return Answer(ENCODER.encode(value), status=status)


def as_list(inputs: Any, limits: Limits) -> tuple[list[Any], bool]:
    """Inputs as a list, and whether a single one was given; a list that is empty or too long is refused."""
    if not isinstance(inputs, list):
        return [inputs], True
    if not inputs:
        raise RequestError(422, "inputs", "is an empty list", "Give one text at least")
    if len(inputs) > limits.inputs:
        raise RequestError(413, "inputs", f"{len(inputs):,} are more than {limits.inputs:,}", "Send fewer at a time")
    return inputs, False


async def health(request: Request) -> Answer:
    return as_json({"status": "ok"})


async def ready(request: Request) -> Answer:
    if not request.served.ready:
        raise RequestError(503, "model", "is being loaded", "Try again in a few seconds", retry_after=2)
    return as_json({"status": "ready", "models": list(request.served.models)})


def describe(model: FrontModel) -> dict[str, Any]:
    """A model in the form of OpenAI's list, with what else is known of it."""
    served = model.served
    known = {"verbs": served.verbs, "task": served.task, "labels": served.labels, "max_length": served.max_length}
    openai = {"id": served.name, "object": "model", "created": served.created, "owned_by": "bertsmith"}
    return openai | known | {"dimensions": served.width, "description": served.description}


async def models(request: Request) -> Answer:
    if not request.served.ready:
        raise RequestError(503, "model", "is being loaded", "Try again in a few seconds", retry_after=2)
    return as_json({"object": "list", "data": [describe(model) for model in request.served.models.values()]})


async def one_model(request: Request) -> Answer:
    return as_json(describe(request.served.find(request.path.removeprefix("/v1/models/"))))


async def embeddings(request: Request) -> Answer:
    body = decode(request.content, EmbeddingsBody)
    model = request.find(body.model, "embed")
    rows = await _rows(model, body, request.settings.limits)
    embedded = await embed(request.served, request.settings, model, rows, dimensions=body.dimensions)
    as_text = body.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": number,
            "embedding": base64.b64encode(vector.tobytes()).decode() if as_text else vector.tolist(),
        }
        for number, vector in enumerate(embedded.vectors)
    ]
    usage = {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens}
    return as_json({"object": "list", "data": data, "model": model.served.name, "usage": usage})


async def _rows(model: FrontModel, body: EmbeddingsBody, limits: Limits) -> list[list[int]]:
    """The token ids of OpenAI's four forms of `input`: a text, texts, token ids, or lists of these."""
    given = body.input
    if isinstance(given, list) and given and all(isinstance(one, int) for one in given):
        given = [given]  # type: ignore[list-item]
    inputs, _ = as_list(given, limits)
    if all(isinstance(one, str) for one in inputs):
        return await tokenise(model, inputs)
    if not all(isinstance(one, list) for one in inputs):
        raise RequestError(
            422, "input", "mixes texts and token ids", "Give a text, token ids, or a list of one of them"
        )
    vocabulary = model.tokenizer.vocabulary
    if (largest := max((max(row, default=0) for row in inputs), default=0)) >= vocabulary:
        raise RequestError(422, "input", f"there is no token {largest}", f"Ids go from 0 to {vocabulary - 1}")
    return inputs


async def embed_texts(request: Request) -> Answer:
    body = decode(request.content, EmbedBody)
    model = request.find(body.model, "embed")
    texts, one = as_list(body.inputs, request.settings.limits)
    embedded = await embed(
        request.served,
        request.settings,
        model,
        await tokenise(model, texts),
        normalise=body.normalize,
        dimensions=body.dimensions,
        truncate=body.truncate is not False,
    )
    vectors = embedded.vectors.tolist()
    return as_json(vectors[0] if one else vectors)


ROUTES: dict[tuple[str, str], Route] = {
    (route.method, route.path): route
    for route in (
        Route("GET", "/health", health, "Whether the server is alive; needs no key"),
        Route("GET", "/ready", ready, "Whether the models are loaded"),
        Route("GET", "/v1/models", models, "The models, as OpenAI lists them"),
        Route("GET", "/v1/models/", one_model, "One model"),
        Route("POST", "/v1/embeddings", embeddings, "Embeddings, as OpenAI defines them", EmbeddingsBody),
        Route("POST", "/embed", embed_texts, "Embeddings as lists of numbers", EmbedBody),
    )
}
