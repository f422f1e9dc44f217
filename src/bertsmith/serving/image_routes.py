"""Routes whose inputs are images: /predict, /embed and /inspect of models of images.

An image comes as the body itself, in a form (`uploads.py`), or in JSON as base64, with or without the beginning of a
data: address. It is decoded in the model process, within the limits of `data/images/decoding.py`.
"""

import base64
import binascii
from typing import Any

from bertsmith.serving.embeddings import as_vectors, check_dimensions
from bertsmith.serving.exchange import Answer, Request, as_json, as_list, html
from bertsmith.serving.request_error import RequestError
from bertsmith.serving.schemas import EmbedBody, InspectBody, PredictBody
from bertsmith.serving.served import FrontModel

TOP_K = 5  # classes, by default
ATTRIBUTION_PASSES = 200  # about as many as integrated gradients take
REMEDY = "Send an image as the body, in a form, or as base64 in JSON"


async def predict(request: Request, model: FrontModel, body: PredictBody) -> Answer:
    values, one = await classify(request, model, body.inputs, body.top_k or TOP_K)
    return as_json(values[0] if one else values)


async def classify(request: Request, model: FrontModel, inputs: Any, top_k: int) -> tuple[list[Any], bool]:
    """The most probable classes of each image, and whether a single one was given."""
    images, one = as_bytes(request, inputs)
    return await _run(request, model, "predict", images, top_k=top_k), one


async def embed(request: Request, model: FrontModel, body: EmbedBody) -> Answer:
    check_dimensions(model, body.dimensions)
    images, _ = as_bytes(request, body.inputs)
    found = await _run(request, model, "embed", images, precision=request.settings.precision)
    return as_json(as_vectors(model, found, body.dimensions, body.normalize).tolist())


async def inspect(request: Request, model: FrontModel, body: InspectBody) -> Answer:
    """The page is one file and loads nothing."""
    images, one = as_bytes(request, body.inputs)
    if not one:
        raise RequestError(422, "inputs", "are several images", "Give one")
    passes = 2 + body.attributions * ATTRIBUTION_PASSES
    [page] = await _run(request, model, "inspect", images, factor=passes, attribute=body.attributions)
    return html(page)


def as_bytes(request: Request, inputs: Any) -> tuple[list[bytes], bool]:
    """The files in base64, and whether a single one was given."""
    given, one = as_list(inputs, request.limits)
    return [_decode(value, number) for number, value in enumerate(given, 1)], one


def _decode(value: Any, number: int) -> bytes:
    if not isinstance(value, str):
        raise RequestError(422, f"inputs {number}", "is no image in base64", REMEDY)
    held = value.partition(",")[2] if value.startswith("data:") else value
    try:
        return base64.b64decode(held, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(422, f"inputs {number}", "is no image in base64", REMEDY) from None


async def _run(
    request: Request, model: FrontModel, verb: str, images: list[bytes], *, factor: int = 1, **options: Any
) -> list[Any]:
    """A value for each image, which counts as many tokens as it has patches."""
    tokens = model.served.max_length * len(images)
    result = await request.served.run(model, verb, list(images), tokens, work=tokens * factor, **options)
    assert result.values is not None
    return result.values
