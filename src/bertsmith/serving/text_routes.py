"""Routes whose inputs are texts: /predict, /tag, /answer, /fill, /score, /generate, /translate, /inspect,
/tokenize."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from bertsmith.serving import image_routes
from bertsmith.serving.embeddings import check_characters, in_thread, tokenise
from bertsmith.serving.entities import tagged, words_of
from bertsmith.serving.exchange import Answer, Request, as_json, as_list, html
from bertsmith.serving.request_error import RequestError
from bertsmith.serving.schemas import (
    AnswerBody,
    FillBody,
    GenerateBody,
    InspectBody,
    PredictBody,
    ScoreBody,
    TagBody,
    TokenizeBody,
    TranslateBody,
)
from bertsmith.serving.served import FrontModel
from bertsmith.text.special_tokens import Template

MAX_WORDS = 262_144  # that /fill answers, for all masks of a request together
MAX_SEQUENCE_CHARACTERS = 1 << 24  # of the texts that Hugging Face's form of it repeats for every word
ATTRIBUTION_PASSES = 200  # about as many as integrated gradients take


async def run_texts(
    request: Request,
    model: FrontModel,
    verb: str,
    inputs: list[Any],
    *,
    factor: int = 1,
    new_tokens: int = 0,
    **options: Any,
) -> tuple[list[Any], int]:
    """The values of a verb for inputs that hold texts, and the number of their tokens.

    The tokens are counted here, so that requests above a limit never reach the model. `factor` is how often the network
    reads each of them, and `new_tokens` how many it writes at most, for the queue.
    """
    tokens = await _count_tokens(request, model, inputs)
    result = await request.served.run(model, verb, inputs, tokens, work=tokens * factor + new_tokens, **options)
    assert result.values is not None
    return result.values, tokens


async def _count_tokens(request: Request, model: FrontModel, inputs: list[Any]) -> int:
    """The tokens of inputs that hold texts. A text that is in many of them, such as a query, is tokenised once."""
    times = Counter(text for one in inputs for text in _strings(one))
    check_characters(sum(len(text) * count for text, count in times.items()), request.limits)
    rows = await tokenise(model, list(times), request.limits)
    tokens = sum(len(row) * count for row, count in zip(rows, times.values(), strict=True))
    return tokens + model.special_tokens * len(inputs)


def _strings(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


def _whole(values: Sequence[Any], one: bool) -> Answer:
    """A value for a single input, a list for a list."""
    return as_json(values[0] if one else values)


async def predict(request: Request, body: PredictBody) -> Answer:
    model = request.find(body.model, "predict", images=True)
    if model.served.images:
        return await image_routes.predict(request, model, body)
    if body.top_k is not None:
        raise RequestError(422, "top_k", "is for models of images", "Leave it out: all classes are answered")
    return await _predictions(request, model, body.inputs)


async def _predictions(request: Request, model: FrontModel, given: Any) -> Answer:
    inputs, one = as_list(given, request.limits)
    if model.served.task == "answer":  # questions get a number as their name, which must not depend on the batch
        inputs = [{"id": str(n)} | value if isinstance(value, dict) else value for n, value in enumerate(inputs, 1)]
    values, _ = await run_texts(request, model, "predict", inputs)
    return _whole(values, one)


async def tag(request: Request, body: TagBody) -> Answer:
    model = request.find(body.model, "predict", "tag")
    inputs, one = as_list(body.inputs, request.limits)
    split = [words_of(value) for value in inputs]
    values, _ = await run_texts(request, model, "predict", [[word for word, *_ in words] for words in split])
    return _whole([tagged(value, words) for value, words in zip(values, split, strict=True)], one)


async def answer(request: Request, body: AnswerBody) -> Answer:
    model = request.find(body.model, "predict", "answer")
    return await _predictions(request, model, msgspec.to_builtins(body.inputs))


async def fill(request: Request, body: FillBody) -> Answer:
    model = request.find(body.model, "fill")
    texts, one = as_list(body.inputs, request.limits)
    return _whole(await fill_texts(request, model, texts, body.top_k), one)


async def fill_texts(
    request: Request, model: FrontModel, texts: list[str], top_k: int, *, sequences: bool = False
) -> list[Any]:
    """Words for each mask. `sequences`: the answer will have the whole text for every word."""
    rows = await tokenise(model, texts, request.limits)
    words = [top_k * row.count(model.tokenizer.mask_id) for row in rows]
    characters = sum(count * len(text) for count, text in zip(words, texts, strict=True)) if sequences else 0
    if sum(words) > MAX_WORDS or characters > MAX_SEQUENCE_CHARACTERS:
        fact = f"asks for {sum(words):,} words, which are too many for an answer"
        raise RequestError(413, "inputs", fact, "Send fewer masks at a time, or a smaller top_k")
    values, _ = await run_texts(request, model, "fill", texts, new_tokens=sum(words), top_k=top_k)
    return values


async def score(request: Request, body: ScoreBody) -> Answer:
    """A masked model reads a text once for each of its tokens."""
    model = request.find(body.model, "score")
    texts, one = as_list(body.inputs, request.limits)
    longest = max(map(len, await tokenise(model, texts, request.limits)), default=0)
    factor = max(1, min(longest, model.served.max_length)) if "fill" in model.served.verbs else 1
    values, _ = await run_texts(request, model, "score", texts, factor=factor, pll_form=body.pll_form)
    return _whole(values, one)


async def generate(request: Request, body: GenerateBody) -> Answer:
    model = request.find(body.model, "generate")
    texts, one = as_list(body.inputs, request.limits)
    return _whole(await generate_texts(request, model, texts, body), one)


async def generate_texts(request: Request, model: FrontModel, texts: list[str], body: GenerateBody) -> list[Any]:
    """Continuations of each text. The network reads a prompt once, and then each new token of each sample or beam."""
    options = msgspec.to_builtins(body)
    for name in ("inputs", "model"):
        del options[name]
    length = min(body.max_new_tokens, model.served.max_length)
    new_tokens = len(texts) * length * body.samples * body.num_beams
    values, _ = await run_texts(request, model, "generate", texts, new_tokens=new_tokens, **options)
    return values


async def translate(request: Request, body: TranslateBody) -> Answer:
    model = request.find(body.model, "translate")
    texts, one = as_list(body.inputs, request.limits)
    options: dict[str, Any] = {"num_beams": body.num_beams, "length_penalty": body.length_penalty}
    values, _ = await run_texts(request, model, "translate", texts, factor=1 + body.num_beams, **options)
    return _whole(values, one)


async def inspect(request: Request, body: InspectBody) -> Answer:
    """The page is one file and loads nothing. A masked model reads the text once for each of its tokens."""
    model = request.find(body.model, "inspect", images=True)
    if model.served.images:
        return await image_routes.inspect(request, model, body)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    tokens = sum(map(len, await tokenise(model, texts, request.limits)))
    most = request.limits.inspect_tokens
    if tokens > most:
        raise RequestError(413, "inputs", f"has {tokens:,} tokens, and a page shows {most}", "Give a shorter text")
    passes = 2 + tokens + body.attributions * ATTRIBUTION_PASSES
    [page], _ = await run_texts(request, model, "inspect", [body.inputs], factor=passes, attribute=body.attributions)
    return html(page)


async def tokenize(request: Request, body: TokenizeBody) -> Answer:
    """As text-embeddings-inference: for each text a list of tokens, with their bounds in characters."""
    model = request.find(body.model, "")
    texts, _ = as_list(body.inputs, request.limits)
    request.served.check_tokens(await _count_tokens(request, model, texts))
    template = model.tokenizer.template if body.add_special_tokens else Template()
    before, after = template.before, template.after

    def special(ids: Sequence[int]) -> list[dict[str, Any]]:
        return [{"id": number, "text": model.tokenizer.piece(number), "special": True} for number in ids]

    def plain(ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        return [
            {"id": number, "text": model.tokenizer.piece(number), "special": False, "start": start, "stop": stop}
            for number, (start, stop) in zip(ids, offsets, strict=True)
        ]

    def read(texts: Sequence[str]) -> Answer:
        found = model.tokenizer.encode_with_offsets(texts)
        return as_json([special(before) + plain(ids, offsets) + special(after) for ids, offsets in found])

    return await in_thread(sum(map(len, texts)), read, texts)
