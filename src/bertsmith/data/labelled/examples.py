"""Labelled examples, before tokenisation: texts with a label, tagged sentences, questions with their answers.

A few are a list in memory; many are a spool on disk, which is a sequence too and needs eight bytes an example.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.spool import Spool

MAX_EXAMPLES_IN_MEMORY = 65_536  # examples that are held in memory at most
MAX_CHARACTERS_IN_MEMORY = 1 << 25  # characters of them at most

# What labelled data are for: single-label classification, regression, multi-label classification, token classification,
# extractive question answering, multiple choice, sentence pairs.
Kind = Literal["classify", "number", "labels", "tag", "answer", "choose", "pairs"]
Label = str | float | tuple[str, ...]  # a class, a number, or several classes


@dataclass(frozen=True, kw_only=True)
class Example:
    """A text, a pair of texts, or a context with its possible endings; and its label."""

    location: str  # file:line
    texts: tuple[str, ...]
    label: Label | None = None  # None: unlabelled


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence as its words, each with a tag: an example of token classification."""

    location: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A span of the context that answers a question."""

    text: str
    start: int  # in characters of the context


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question about a context (a passage), as in SQuAD. An empty tuple of answers marks it as unanswerable."""

    location: str
    name: str  # SQuAD's id
    question: str
    context: str
    answers: tuple[Answer, ...] | None = None  # None: unlabelled


E = TypeVar("E", Example, Sentence, Question)


def collect(found: Iterable[E], folder: Path | None = None) -> Sequence[E]:
    """The examples as a sequence: a few as a list, many as a spool in a temporary file of the folder."""
    head, size, rest = list[E](), 0, iter(found)
    for example in rest:
        head.append(example)
        size += _characters(example)
        if len(head) > MAX_EXAMPLES_IN_MEMORY or size > MAX_CHARACTERS_IN_MEMORY:
            break
    else:
        return head
    spool = Spool[E](_decode, folder)
    for example in chain(head, rest):
        spool.append(_encode(example))
    return spool.seal()


def take(examples: Sequence[E], indices: NDArray[np.int64]) -> Sequence[E]:
    """The examples at these indices, as the same kind of sequence."""
    if isinstance(examples, Spool):
        return examples.take(indices)
    return [examples[index] for index in indices]


def _characters(example: Any) -> int:
    match example:
        case Example():
            return sum(map(len, example.texts))
        case Sentence():
            return sum(map(len, example.words))
    return len(example.context)


def _encode(example: Any) -> bytes:
    """An example as JSON, which keeps every text and every number exactly."""
    fields = astuple(example) if isinstance(example, Question) else tuple(vars(example).values())
    return json.dumps([type(example).__name__, *fields]).encode()


def _decode(record: bytes) -> Any:
    match json.loads(record):
        case ["Example", location, texts, label]:
            label = tuple(label) if isinstance(label, list) else label
            return Example(location=location, texts=tuple(texts), label=label)
        case ["Sentence", location, words, tags]:
            return Sentence(location=location, words=tuple(words), tags=None if tags is None else tuple(tags))
        case [_, location, name, question, context, answers]:
            spans = None if answers is None else tuple(Answer(text=text, start=start) for text, start in answers)
            return Question(location=location, name=name, question=question, context=context, answers=spans)
