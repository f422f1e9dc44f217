"""The verbs of a loaded model: which of them it can do, and how many inputs are run at once.

An input is run with whatever others are waiting; its result does not depend on them.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from bertsmith.inference.inputs import as_examples
from bertsmith.inference.model import Model
from bertsmith.inference.onnx_model import OnnxModel
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import LanguageModel
from bertsmith.objectives.masked import MaskedLM
from bertsmith.serving.relevance import positives
from bertsmith.serving.wire import ServedModel, created
from bertsmith.tasks.base import Task, predict
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.text_to_text import TextToText

Options = dict[str, Any]


Values = Callable[[], list[Any]]  # waits for the values


@dataclass(frozen=True)
class Verb:
    """One verb: whether a model can do it, and a value for each input. It may be started before the last has ended."""

    can: Callable[[Model], bool]
    run: Callable[[Model, Sequence[Any], Options], list[Any] | Values]


def _embeds(model: Model) -> bool:
    """A graph gives vectors or logits."""
    return isinstance(model.trunk, Transformer) and not (isinstance(model, OnnxModel) and not model.graph.gives_vectors)


def _embed(model: Model, inputs: Sequence[bytes], options: Options) -> Values:
    """Embeddings that are not normalised yet: the front does it after it has shortened them."""
    rows = [np.frombuffer(ids, np.int32) for ids in inputs]
    fetch = model.embedder(normalise=False, **options).submit_ids(rows)
    return lambda: [vector.tobytes() for vector in fetch()]


def _predict(model: Model, inputs: Sequence[Any], options: Options) -> list[Any]:
    """Predictions; of tags with their probabilities, of answers with others. A pair of texts, or words, are a list."""
    task = model.objective
    assert isinstance(task, Task)
    given = [tuple(one) if isinstance(one, list) else one for one in inputs]
    examples, _ = as_examples(model.input_format(), given)
    items = task.preprocess(examples, model.tokenizer, model.prediction_length)
    detailed = model.task in ("tag", "answer")
    found = predict(task, examples, items, device=model.device, detailed=detailed, outputs=model.task_outputs)
    for item in items:
        if item.truncated:
            found[item.example]["truncated_tokens"] = item.truncated
    return found


def _reranks(model: Model) -> bool:
    """Whether it is a cross-encoder: it predicts a number or one of two classes, and not of single texts."""
    task = model.objective
    if not isinstance(task, SequenceClassification) or len(model.input_format().texts) == 1:
        return False
    return task.config.problem == "regression" or (task.config.problem == "single_label" and len(task.labels) == 2)


def _rerank(model: Model, inputs: Sequence[Any], options: Options) -> list[Any]:
    """The relevance of pairs of texts: a regression's number, or the probability of the class `positive`."""
    positive = options["positive"]
    found = _predict(model, inputs, {})
    return [one["number"] if positive is None else one["probabilities"][positive] for one in found]


def _fill(model: Model, inputs: Sequence[Any], options: Options) -> list[Any]:
    return [asdict(filled) for filled in model.fill(list(inputs), **options)]


def _scores(model: Model) -> bool:
    language_model = model.has_lm_head and isinstance(model.objective, LanguageModel)
    return language_model and not isinstance(model, OnnxModel)


def _score(model: Model, inputs: Sequence[Any], options: Options) -> list[Any]:
    scored = model.score(list(inputs), **options)
    return [one.to_dict() | {"perplexity": one.perplexity if one.tokens else None} for one in scored]


def _generate(model: Model, inputs: Sequence[Any], options: Options) -> list[Any]:
    return [result.to_dict() for result in model.generate(list(inputs), full=True, **options)]


def _translate(model: Model, inputs: Sequence[Any], options: Options) -> list[Any]:
    return [result.to_dict() for result in model.translate(list(inputs), full=True, **options)]


def _inspect(model: Model, inputs: Sequence[Any], options: Options) -> list[Any]:
    """Pages. Attributions need gradients."""
    with torch.inference_mode(False):
        pairs = [tuple(one) if isinstance(one, list) else one for one in inputs]
        return [model.inspect(one, **options).page() for one in pairs]


VERBS: dict[str, Verb] = {
    "embed": Verb(_embeds, _embed),
    "rerank": Verb(lambda model: _embeds(model) or _reranks(model), _rerank),  # by cosines, or as a cross-encoder
    "predict": Verb(lambda model: isinstance(model.objective, Task), _predict),
    "fill": Verb(lambda model: model.has_lm_head and isinstance(model.objective, MaskedLM), _fill),
    "score": Verb(_scores, _score),
    "generate": Verb(lambda model: model.objective.generates, _generate),
    "translate": Verb(
        lambda model: isinstance(model.objective, TextToText) and model.objective.config.output == "text", _translate
    ),
    "inspect": Verb(lambda model: not isinstance(model, OnnxModel), _inspect),
}


def describe(name: str, model: Model) -> ServedModel:
    """What fronts need to know of a model."""
    verbs = [verb for verb, how in VERBS.items() if how.can(model)]
    embeds, sentence = "embed" in verbs, model.sentence_config
    columns = model.input_format().texts if "predict" in verbs else ()
    reranks = _reranks(model)
    return ServedModel(
        name=name,
        folder=model.path,
        verbs=verbs,
        task=model.task,
        labels=list(model.labels),
        sentence=model.embeds_sentences,
        reranks=reranks,
        positives=positives(model.labels) if reranks and len(model.labels) == 2 else [],
        columns=list(columns),
        description=model.description,
        max_length=model.max_length,
        embedding_length=min(sentence.length or model.max_length, model.max_length) if embeds else 0,
        width=model.trunk.config.width if embeds else 0,
        normalise=sentence.normalise,
        for_tasks=model.objective.trunk.config.architecture != "decoder",
        created=created(model.path),
    )
