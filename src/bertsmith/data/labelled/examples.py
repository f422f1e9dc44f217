"""Examples: what a person has labelled, before any tokenizer has seen it.

A few are a list in memory; many are a spool, which is a sequence like any other and needs eight bytes for each.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.spool import Spool

MANY = 65_536  # examples that are held in memory at most
LONG = 1 << 25  # characters of them at most

Label = str | float | tuple[str, ...]  # a class, a number, or several classes at once


@dataclass(frozen=True, kw_only=True)
class Example:
    """A text, a pair of texts, or a beginning and its possible endings; and what is said of it."""

    location: str  # file:line, for whoever must mend it
    texts: tuple[str, ...]
    label: Label | None = None  # None where nobody has said


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """Words, each with a tag."""

    location: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A stretch of a passage that answers a question."""

    text: str
    start: int  # in characters of the passage


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question about a passage. No answers, though people looked for them, means that it has none."""

    location: str
    name: str  # SQuAD's id
    question: str
    context: str
    answers: tuple[Answer, ...] | None = None  # None where nobody has said


E = TypeVar("E", Example, Sentence, Question)


def collect(found: Iterable[E], folder: Path | None = None) -> Sequence[E]:
    """The same examples as a sequence: a list of a few, a spool of many, in a file of the folder."""
    held, size, left = list[E](), 0, iter(found)
    for one in left:
        held.append(one)
        size += _characters(one)
        if len(held) > MANY or size > LONG:
            break
    else:
        return held
    spool = Spool[E](_unpacked, folder)
    for one in chain(held, left):
        spool.append(_packed(one))
    return spool.seal()


def take(examples: Sequence[E], indices: NDArray[np.int64]) -> Sequence[E]:
    """The examples with these numbers, as the same kind of sequence."""
    if isinstance(examples, Spool):
        return examples.take(indices)
    return [examples[number] for number in indices]


def _characters(one: Any) -> int:
    match one:
        case Example():
            return sum(map(len, one.texts))
        case Sentence():
            return sum(map(len, one.words))
    return len(one.context)


def _packed(one: Any) -> bytes:
    """JSON, which brings back every text and every number as it was."""
    fields = astuple(one) if isinstance(one, Question) else tuple(vars(one).values())
    return json.dumps([type(one).__name__, *fields]).encode()


def _unpacked(record: bytes) -> Any:
    match json.loads(record):
        case ["Example", place, texts, label]:
            return Example(location=place, texts=tuple(texts), label=tuple(label) if isinstance(label, list) else label)
        case ["Sentence", place, words, tags]:
            return Sentence(location=place, words=tuple(words), tags=None if tags is None else tuple(tags))
        case [_, place, name, question, passage, answers]:
            said = None if answers is None else tuple(Answer(text=text, start=start) for text, start in answers)
            return Question(location=place, name=name, question=question, context=passage, answers=said)
