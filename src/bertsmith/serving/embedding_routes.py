"""Routes that embed: /v1/embeddings, /embed, /similarity, /rerank."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.serving import image_routes
from bertsmith.serving.embeddings import embed, tokenise
from bertsmith.serving.exchange import Answer, Request, as_json, as_list
from bertsmith.serving.request_error import RequestError
from bertsmith.serving.schemas import EmbedBody, EmbeddingsBody, RerankBody, SimilarityBody
from bertsmith.serving.served import FrontModel
from bertsmith.serving.settings import Limits
from bertsmith.serving.text_routes import run_texts


async def embeddings(request: Request, body: EmbeddingsBody) -> Answer:
    model = request.find(body.model, "embed")
    rows = await _rows(model, body, request.limits)
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
    given: Any = body.input
    if isinstance(given, list) and given and all(isinstance(one, int) for one in given):
        given = [given]
    inputs, _ = as_list(given, limits)
    if all(isinstance(one, str) for one in inputs):
        return await tokenise(model, inputs, limits)
    if not all(isinstance(one, list) for one in inputs):
        remedy = "Give a text, token ids, or a list of one of them"
        raise RequestError(422, "input", "mixes texts and token ids", remedy)
    vocabulary = model.tokenizer.vocabulary
    if (largest := max((max(row, default=0) for row in inputs), default=0)) >= vocabulary:
        raise RequestError(422, "input", f"there is no token {largest}", f"Ids go from 0 to {vocabulary - 1}")
    return inputs


async def embed_texts(request: Request, body: EmbedBody) -> Answer:
    model = request.find(body.model, "embed", images=True)
    if model.served.images:
        return await image_routes.embed(request, model, body)
    texts, _ = as_list(body.inputs, request.limits)
    embedded = await embed(
        request.served,
        request.settings,
        model,
        await tokenise(model, texts, request.limits),
        normalise=body.normalize,
        dimensions=body.dimensions,
        truncate=body.truncate is not False,
    )
    return as_json(embedded.vectors.tolist())


async def similarity(request: Request, body: SimilarityBody) -> Answer:
    model = request.find(body.model, "embed")
    sentences, _ = as_list(body.inputs.sentences, request.limits)
    return as_json((await _cosines(request, model, body.inputs.source_sentence, sentences)).tolist())


async def rerank(request: Request, body: RerankBody) -> Answer:
    """By a cross-encoder, that is a model fine-tuned on pairs, where it is one; else by the cosine of embeddings."""
    model = request.find(body.model, "rerank")
    texts, _ = as_list(body.texts, request.limits)
    positive = _positive(model, body.positive)
    if model.served.reranks:
        pairs = [[body.query, text] for text in texts]
        scores = np.array((await run_texts(request, model, "rerank", pairs, positive=positive))[0])
    else:
        scores = await _cosines(request, model, body.query, texts)
    order = np.argsort(-scores, kind="stable")[: body.top_n]
    kept = [{"index": int(number), "score": float(scores[number])} for number in order]
    if body.return_text:
        kept = [one | {"text": texts[int(one["index"])]} for one in kept]
    return as_json(kept)


async def _cosines(request: Request, model: FrontModel, first: str, others: list[str]) -> NDArray[np.float32]:
    rows = await tokenise(model, [first, *others], request.limits)
    vectors = (await embed(request.served, request.settings, model, rows, normalise=True)).vectors
    found: NDArray[np.float32] = (vectors[1:] * vectors[0]).sum(1)  # row by row, so that neighbours change no bit
    return np.clip(found, -1, 1)  # float32 rounds some above 1


def _positive(model: FrontModel, asked: str | None) -> str | None:
    """The class whose probability is the relevance of a text; None for a number or a cosine."""
    positives = model.served.positives
    if asked is not None and (not positives or asked not in model.served.labels):
        remedy = f"Give one of: {', '.join(model.served.labels)}" if positives else "Leave it out"
        raise RequestError(422, "positive", f"'{asked[:80]}' is no class by which {model} reranks", remedy)
    if asked is None and len(positives) > 1:
        fact = f"has the classes '{positives[0]}' and '{positives[1]}', and does not know which of them means relevant"
        raise RequestError(422, f"model {model}", fact, f'Name it: "positive": "{positives[0]}"')
    return asked or next(iter(positives), None)
