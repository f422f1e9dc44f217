"""Routes about the server and its models: /health, /ready, /metrics, /v1/models."""

from typing import Any

from bertsmith.serving import metrics
from bertsmith.serving.exchange import Answer, Request, as_json
from bertsmith.serving.model_client import unavailable
from bertsmith.serving.paths import PATHS
from bertsmith.serving.served import FrontModel


async def health(request: Request, _: None) -> Answer:
    return as_json({"status": "ok"})


async def ready(request: Request, _: None) -> Answer:
    if not request.served.ready:
        raise unavailable()
    return as_json({"status": "ready", "device": request.served.device, "models": list(request.served.models)})


def describe(model: FrontModel) -> dict[str, Any]:
    """A model in the form of OpenAI's list, with what else is known of it."""
    served = model.served
    known = {"verbs": served.verbs, "task": served.task, "labels": served.labels, "max_length": served.max_length}
    known |= {"columns": served.columns, "mask": model.mask}
    known |= {"images": served.images, "positives": served.positives}
    known |= {"reranks": served.reranks and len(served.positives) < 2}  # without a class in the request
    openai = {"id": served.name, "object": "model", "created": served.created, "owned_by": "bertsmith"}
    return openai | known | {"dimensions": served.width, "description": served.description}


async def models(request: Request, _: None) -> Answer:
    if not request.served.ready:
        raise unavailable()
    return as_json({"object": "list", "data": [describe(model) for model in request.served.models.values()]})


async def one_model(request: Request, _: None) -> Answer:
    return as_json(describe(request.served.find(request.path.removeprefix("/v1/models/"))))


async def show_metrics(request: Request, _: None) -> Answer:
    page = metrics.text(request.served.counters, PATHS, request.served.ready)
    return Answer(page.encode(), b"text/plain; version=0.0.4; charset=utf-8")
