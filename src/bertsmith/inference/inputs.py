"""What a person hands to a model: one text or many, and for each task the forms in which its examples may come."""

from collections.abc import Iterable, Mapping
from typing import Any

from bertsmith.data.labelled import inputs
from bertsmith.data.labelled.examples import Example, Question, Sentence
from bertsmith.data.labelled.inputs import Names, TrainedOn
from bertsmith.errors import RecipeError, TextError

Texts = str | Iterable[str]  # one text, or many
MAX_REPR = 40  # characters of a value that a message shows


def as_texts(given: Any, name: str = "texts") -> tuple[list[str], bool]:
    """Texts as a list, and whether it was one alone."""
    if isinstance(given, str):
        return [given], True
    found = _as_list(given, name, "Give a text, or a list of texts")
    for number, text in enumerate(found, 1):
        if not isinstance(text, str):
            raise TextError(f"{name} {number}", f"is {short_repr(text)}", "Give a text, or a list of texts")
    return found, False


def as_examples(input_format: TrainedOn, given: Any) -> tuple[list[Any], bool]:
    """What a task is asked, as its examples, and whether it was one alone.

    One is a text, a pair of texts as a tuple, a dictionary, or an example; a list holds many. Tags take a tuple of
    words, questions a pair of question and context, and choices a pair of a beginning and its endings. A dictionary
    names its texts as the training data did, or as the field does.
    """
    form = {"tag": "words", "answer": "question", "choose": "choice"}.get(input_format.kind, "text")
    one = isinstance(given, str | tuple | Mapping | Example | Question | Sentence)
    found = [given] if one else _as_list(given, "texts", FORMS[form])
    names: Names = {}
    made = []
    for number, value in enumerate(found, 1):
        place = f"text {number}"
        if isinstance(value, Mapping):
            made.append(inputs.make_example(place, value, input_format, names))
        else:
            made.append(_example(form, value, place))
    return made, one


def as_integers(given: Any, name: str) -> tuple[int, ...]:
    """One whole number or several."""
    found = [given] if isinstance(given, int) else given
    if not isinstance(found, list | tuple) or not all(isinstance(one, int) for one in found):
        raise RecipeError(name, f"is {short_repr(given)}", "Give a whole number, or a list of them")
    return tuple(found)


def short_repr(value: Any) -> str:
    """A value as a message shows it, not too long."""
    written = repr(value)
    return written if len(written) <= MAX_REPR else f"{written[:MAX_REPR]}..."


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


def _example(form: str, value: Any, place: str) -> Any:
    match form:
        case _ if isinstance(value, Example | Question | Sentence):
            return value
        case "words":
            words = inputs.WORDS.findall(value) if isinstance(value, str) else value
            return Sentence(location=place, words=_strings(words, value, place, form, 0))
        case "question":
            question, passage = _strings(value, value, place, form, 2, 2)
            return Question(location=place, name=place, question=question, context=passage)
        case "choice":
            parts = value
            if isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[1], list | tuple):
                parts = (value[0], *value[1])
            return Example(location=place, texts=_strings(parts, value, place, form, 2))
    parts = (value,) if isinstance(value, str) else value
    return Example(location=place, texts=_strings(parts, value, place, form, 1, 2))


def _strings(
    found: Any, value: Any, place: str, form: str, min_count: int, max_count: float = float("inf")
) -> tuple[str, ...]:
    """So many texts, or a line that says how they may be given."""
    if (
        isinstance(found, list | tuple)
        and min_count <= len(found) <= max_count
        and all(isinstance(one, str) for one in found)
    ):
        return tuple(found)
    raise TextError(place, f"is {short_repr(value)}", FORMS[form])
