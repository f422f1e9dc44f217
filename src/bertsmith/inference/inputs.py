"""Inputs of a model: one text or many, the examples of each task in the forms people give them, and options."""

import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from bertsmith.data.labelled import inputs
from bertsmith.data.labelled.examples import Example, Question, Sentence
from bertsmith.data.labelled.inputs import Names, TrainedOn
from bertsmith.data.labelled.words import split_words
from bertsmith.errors import RecipeError, TextError, suggest

Texts = str | Iterable[str]  # one text, or many
MAX_REPR = 40  # characters of a value in a message


def as_texts(given: Any, name: str = "texts") -> tuple[list[str], bool]:
    """Texts as a list, and whether a single text was given."""
    if isinstance(given, str):
        return [given], True
    texts = _as_list(given, name, "Give a text, or a list of texts")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise TextError(f"{name} {number}", f"is {short_repr(text)}", "Give a text, or a list of texts")
    return texts, False


def as_examples(input_format: TrainedOn, given: Any) -> tuple[list[Any], bool]:
    """The examples of a task, and whether a single one was given.

    One input is a text, a pair of texts as a tuple, a dictionary, or an example; a list holds many. Tagging also takes
    a tuple of words, question answering a pair of question and context, and multiple choice a pair of a beginning and
    its endings. A dictionary has the column names of the training data, or the field's usual ones.
    """
    form = {"tag": "words", "answer": "question", "choose": "choice"}.get(input_format.kind, "text")
    one = isinstance(given, str | tuple | Mapping | Example | Question | Sentence)
    values = [given] if one else _as_list(given, "texts", FORMS[form])
    names: Names = {}
    examples = []
    for number, value in enumerate(values, 1):
        location = f"text {number}"
        if isinstance(value, Mapping):
            numbered = {"id": str(number)} if form == "question" else {}
            examples.append(inputs.make_example(location, numbered | dict(value), input_format, names))
        else:
            examples.append(_example(form, value, location))
        made = examples[-1]
        if form == "text" and len(input_format.texts) == 1 and isinstance(made, Example) and len(made.texts) > 1:
            fact = "is a pair of texts, and the model was trained on single ones"
            raise TextError(location, fact, "Give several texts as a list, not as a tuple")
    return examples, one


def as_integers(given: Any, name: str) -> tuple[int, ...]:
    """One integer or several, as a tuple."""
    numbers = [given] if isinstance(given, int) else given
    if not isinstance(numbers, list | tuple) or not all(isinstance(one, int) for one in numbers):
        raise RecipeError(name, f"is {short_repr(given)}", "Give a whole number, or a list of them")
    return tuple(numbers)


def check_choice(given: Any, name: str, choices: Collection[str]) -> None:
    """Refuse a value that is none of the choices, with the nearest one."""
    if given not in choices:
        raise RecipeError(name, f"is {short_repr(given)}", suggest(str(given), choices))


def known_options(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that are keyword arguments of a function; an unknown one is refused, with the nearest known name."""
    known = [name for name, one in inspect.signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise RecipeError(name, "is not an option here", suggest(name, known))
    return dict(options)


def warn_truncated(name: str, truncated_tokens: Iterable[int]) -> None:
    """Warn the caller of a public method about inputs longer than the model reads."""
    for number, count in enumerate(truncated_tokens, 1):
        if count:
            warnings.warn(f"{name} {number}: {count} of its tokens were not read", stacklevel=3)


def short_repr(value: Any) -> str:
    """The repr of a value, shortened for a message."""
    text = repr(value)
    return text if len(text) <= MAX_REPR else f"{text[:MAX_REPR]}..."


FORMS = {
    "text": "Give a text, a pair of texts as a tuple, or a list of these",
    "words": "Give a text, its words as a tuple, or a list of these",
    "question": 'Give (question, context), or {"question": ..., "context": ...}, or a list of these',
    "choice": 'Give (beginning, [ending, ending]), or {"text": ..., "endings": [...]}, or a list of these',
}


def _as_list(given: Any, name: str, remedy: str) -> list[Any]:
    if given is None or isinstance(given, bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        raise TextError(name, f"is {short_repr(given)}", remedy)
    return list(given)


def _example(form: str, value: Any, location: str) -> Any:
    match form:
        case _ if isinstance(value, Example | Question | Sentence):
            return value
        case "words":
            words = split_words(value) if isinstance(value, str) else value
            return Sentence(location=location, words=_strings(words, value, location, form, 0))
        case "question":
            question, context = _strings(value, value, location, form, 2, 2)
            return Question(location=location, name=location.removeprefix("text "), question=question, context=context)
        case "choice":
            parts = value
            if isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[1], list | tuple):
                parts = (value[0], *value[1])
            return Example(location=location, texts=_strings(parts, value, location, form, 2))
    parts = (value,) if isinstance(value, str) else value
    return Example(location=location, texts=_strings(parts, value, location, form, 1, 2))


def _strings(
    parts: Any, value: Any, location: str, form: str, min_count: int, max_count: float = float("inf")
) -> tuple[str, ...]:
    """Between `min_count` and `max_count` texts; anything else is refused, with the forms that are allowed."""
    if (
        isinstance(parts, list | tuple)
        and min_count <= len(parts) <= max_count
        and all(isinstance(part, str) for part in parts)
    ):
        return tuple(parts)
    raise TextError(location, f"is {short_repr(value)}", FORMS[form])
