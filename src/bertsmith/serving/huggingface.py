"""Hugging Face's inference endpoints: one URL for a model, whose task decides what a request means and what it gets.

`huggingface_hub.InferenceClient(base_url="http://127.0.0.1:8000/models/mine")` sends its tasks here.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from bertsmith.serving import image_routes, schemas
from bertsmith.serving.embedding_routes import embed_texts, similarity
from bertsmith.serving.embeddings import in_thread
from bertsmith.serving.entities import tagged, words_of
from bertsmith.serving.exchange import Answer, Request, as_json, as_list
from bertsmith.serving.request_error import RequestError
from bertsmith.serving.schemas import EmbedBody, InferenceBody, Question, Sentences, SimilarityBody
from bertsmith.serving.served import FrontModel
from bertsmith.serving.text_routes import fill_texts, generate_texts, run_texts

Record = dict[str, str]
PIPELINE = "/pipeline/"  # /models/mine/pipeline/feature-extraction names the task
AGGREGATIONS = ("none", "simple", "first", "average", "max")
GENERATION = [name for name in schemas.GenerateBody.__struct_fields__ if name not in ("inputs", "model")]
NO_CHANGE: dict[str, Any] = {  # parameters at the values that are always used; some clients send them by default
    "truncation_direction": "right",
    "encoding_format": "float",
    "details": False,
    "decoder_input_details": False,
    "watermark": False,
}


async def inference(request: Request, body: InferenceBody) -> Answer:
    """Do the task that the path names, or the one that the model was made for."""
    model = request.find(body.model, "", images=True)
    if body.stream:
        raise RequestError(422, "stream", "is not supported", "Leave it out: an answer comes as a whole")
    task = request.path.removeprefix(PIPELINE) if request.path.startswith(PIPELINE) else main_task(model, body.inputs)
    if task not in TASKS:
        raise RequestError(404, f"task {task[:40]}", "is none of this server", f"Known: {', '.join(TASKS)}")
    verb, kind = NEEDS[task]
    return await TASKS[task](request, request.find(model.served.name, verb, kind, images=True), body)


def main_task(model: FrontModel, inputs: Any) -> str:
    """The task of an endpoint that serves this model."""
    served = model.served
    if served.images:
        return served.task or "feature-extraction"
    if isinstance(inputs, dict) and "source_sentence" in inputs:
        return "sentence-similarity"
    by_task = {"classify": "text-classification", "tag": "token-classification", "answer": "question-answering"}
    if served.task in by_task:
        return by_task[served.task]
    if served.task in ("choose", "features", "classify_features"):
        raise RequestError(422, f"model {model}", "has no task that Hugging Face's clients know", "Use POST /predict")
    if served.sentence:
        return "feature-extraction"
    by_verb = {"fill": "fill-mask", "translate": "text2text-generation", "generate": "text-generation"}
    return next((task for verb, task in by_verb.items() if verb in served.verbs), "feature-extraction")


async def feature_extraction(request: Request, model: FrontModel, body: InferenceBody) -> Answer:
    given = _parameters(body, "normalize", "dimensions", "truncate")
    return await embed_texts(request, convert(given | {"inputs": body.inputs, "model": str(model)}, EmbedBody))


async def sentence_similarity(request: Request, model: FrontModel, body: InferenceBody) -> Answer:
    return await similarity(request, SimilarityBody(inputs=convert(body.inputs, Sentences), model=str(model)))


async def fill_mask(request: Request, model: FrontModel, body: InferenceBody) -> Answer:
    options = _parameters(body, "top_k")
    texts, one = as_list(convert(body.inputs, schemas.Texts), request.limits)
    top_k = convert(options.get("top_k", 5), schemas.Count)
    values = await fill_texts(request, model, texts, top_k, sequences=True)

    def write(texts: Sequence[str]) -> Answer:
        filled = [_filled(model, text, value) for text, value in zip(texts, values, strict=True)]
        return as_json(filled[0] if one else filled)

    return await in_thread(sum(map(len, texts)) * top_k, write, texts)


def _filled(model: FrontModel, text: str, value: dict[str, Any]) -> list[Any]:
    """A list of words with the text that each makes; of several masks, a list of these."""
    tokenizer = model.tokenizer
    ids, _ = tokenizer.encode_pair(text)
    masks = [number for number, token in enumerate(ids) if token == tokenizer.mask_id]
    found = [
        [
            {
                "score": word["probability"],
                "token": word["token"],
                "token_str": word["word"],
                "sequence": tokenizer.decode([*ids[:mask], word["token"], *ids[mask + 1 :]]),
            }
            for word in blank
        ]
        for mask, blank in zip(masks, value["blanks"], strict=True)
    ]
    return found[0] if len(found) == 1 else found


async def text_classification(request: Request, model: FrontModel, body: InferenceBody) -> Answer:
    options = _parameters(body, "top_k", "function_to_apply")
    if options.get("function_to_apply") is not None:
        raise RequestError(422, "function_to_apply", "cannot be chosen", "The model's own is applied")
    top_k = None if options.get("top_k") is None else convert(options["top_k"], schemas.Count)
    inputs, _ = as_list(convert(body.inputs, str | Record | list[str | Record]), request.limits)
    values, _ = await run_texts(request, model, "predict", [_pair(one) for one in inputs])
    return as_json([_classes(value)[:top_k] for value in values])


def _pair(given: str | Record) -> str | list[str] | Record:
    """A pair of texts in the form of transformers, as ours; any other record has the columns of the training data."""
    if isinstance(given, dict) and given.keys() == {"text", "text_pair"}:
        return [given["text"], given["text_pair"]]
    return given


def _classes(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The labels, the most probable first; a regression has one, named as transformers names it."""
    if "number" in value:
        return [{"label": "LABEL_0", "score": value["number"]}]
    named = sorted(value["probabilities"].items(), key=lambda pair: -pair[1])
    return [{"label": label, "score": probability} for label, probability in named]


async def image_classification(request: Request, model: FrontModel, body: InferenceBody) -> Answer:
    options = _parameters(body, "top_k", "function_to_apply")
    if options.get("function_to_apply") not in (None, "softmax"):
        raise RequestError(422, "function_to_apply", "cannot be chosen", "The model's own is applied, softmax")
    top_k = convert(options.get("top_k", image_routes.TOP_K), schemas.Count)
    values, one = await image_routes.classify(request, model, body.inputs, top_k)
    found = [_classes(value) for value in values]
    return as_json(found[0] if one else found)


async def token_classification(request: Request, model: FrontModel, body: InferenceBody) -> Answer:
    options = _parameters(body, "aggregation_strategy", "ignore_labels")
    strategy = options.get("aggregation_strategy") or "simple"
    if strategy not in AGGREGATIONS:
        raise RequestError(422, "aggregation_strategy", "is not known", f"Known: {', '.join(AGGREGATIONS)}")
    ignored = convert(options.get("ignore_labels") or ["O"], list[str])
    texts, one = as_list(convert(body.inputs, schemas.Texts), request.limits)
    split = [words_of(text) for text in texts]
    values, _ = await run_texts(request, model, "predict", [[word for word, *_ in words] for words in split])
    found = []
    for text, words, value in zip(texts, split, values, strict=True):
        if strategy == "none":
            rows = [
                {"entity": tag, "score": probability or 0.0, "word": word, "start": start, "end": end}
                for tag, probability, (word, start, end) in zip(
                    value["tags"], value["probabilities"], words, strict=True
                )
            ]
        else:
            rows = [
                {
                    "entity_group": entity["label"],
                    "score": entity["probability"],
                    "word": text[entity["start"] : entity["end"]],
                    "start": entity["start"],
                    "end": entity["end"],
                }
                for entity in tagged(value, words)["entities"]
            ]
        found.append([row for row in rows if row.get("entity", row.get("entity_group")) not in ignored])
    return as_json(found[0] if one else found)


async def question_answering(request: Request, model: FrontModel, body: InferenceBody) -> Answer:
    top_k = convert(_parameters(body, "top_k").get("top_k", 1), schemas.Count)
    question = convert(body.inputs, Question)
    [value], _ = await run_texts(request, model, "predict", [{"id": "1"} | msgspec.to_builtins(question)])
    found = [
        {"answer": span["answer"], "score": span["probability"], "start": span["start"], "end": span["end"]}
        for span in value["spans"]
    ]
    if not value["answer"]:  # none is likelier than the best span
        score = 1 / (1 + math.exp(-min(700.0, max(-700.0, value["null_score_difference"]))))
        found = [{"answer": "", "score": score, "start": 0, "end": 0}, *found]
    return as_json(found[0] if top_k == 1 else found[:top_k])


async def text_to_text(request: Request, model: FrontModel, body: InferenceBody) -> Answer:
    """The text by all the names under which clients look for it, since the request does not name its task."""
    _parameters(body)
    texts, _ = as_list(convert(body.inputs, schemas.Texts), request.limits)
    values, _ = await run_texts(request, model, "translate", texts, factor=6)
    names = ("translation_text", "summary_text", "generated_text")
    return as_json([dict.fromkeys(names, value["translation"]) for value in values])


async def text_generation(request: Request, model: FrontModel, body: InferenceBody) -> Answer:
    options = _parameters(body, *GENERATION, "do_sample", "num_return_sequences", "return_full_text")
    whole = convert(options.pop("return_full_text", True), bool) or model.served.task == "write"
    if not convert(options.pop("do_sample", True), bool):
        options["temperature"] = 0
    options["samples"] = options.pop("num_return_sequences", options.get("samples", 1))
    asked = convert(options | {"inputs": body.inputs}, schemas.GenerateBody)
    texts, _ = as_list(asked.inputs, request.limits)
    values = await generate_texts(request, model, texts, asked)
    found = [text if whole else text.removeprefix(value["prompt"]) for value in values for text in value["texts"]]
    return as_json([{"generated_text": text} for text in found])


def _parameters(body: InferenceBody, *known: str) -> dict[str, Any]:
    """The parameters of a task; others are refused, since leaving them out would change the answer unseen."""
    asked = {name: value for name, value in body.parameters.items() if value is not None}
    given = {name: value for name, value in asked.items() if name not in NO_CHANGE or value != NO_CHANGE[name]}
    if unknown := [name for name in given if name not in known]:
        remedy = f"Known: {', '.join(known)}" if known else "Leave it out"
        raise RequestError(422, f"parameters.{unknown[0][:40]}", "is not supported", remedy)
    return given


def convert(value: Any, kind: Any) -> Any:
    """A JSON value as a type; a value of another one is refused."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RequestError(422, "inputs", " ".join(str(error).split())[:300]) from None


Task = Callable[[Request, FrontModel, InferenceBody], Awaitable[Answer]]
TASKS: dict[str, Task] = {
    "feature-extraction": feature_extraction,
    "sentence-similarity": sentence_similarity,
    "fill-mask": fill_mask,
    "text-classification": text_classification,
    "image-classification": image_classification,
    "token-classification": token_classification,
    "question-answering": question_answering,
    "translation": text_to_text,
    "summarization": text_to_text,
    "text2text-generation": text_to_text,
    "text-generation": text_generation,
}
NEEDS = {  # the verb and the task that a model needs for each
    "feature-extraction": ("embed", ""),
    "sentence-similarity": ("embed", ""),
    "fill-mask": ("fill", ""),
    "text-classification": ("predict", "classify"),
    "image-classification": ("predict", "image-classification"),
    "token-classification": ("predict", "tag"),
    "question-answering": ("predict", "answer"),
    "translation": ("translate", ""),
    "summarization": ("translate", ""),
    "text2text-generation": ("translate", ""),
    "text-generation": ("generate", ""),
}
