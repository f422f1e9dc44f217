"""Examples: what a person has labelled, before any tokenizer has seen it."""

from dataclasses import dataclass

Label = str | float | tuple[str, ...]  # a class, a number, or several classes at once


@dataclass(frozen=True, kw_only=True)
class Example:
    """A text, a pair of texts, or a beginning and its possible endings; and what is said of it."""

    place: str  # file:line, for whoever must mend it
    texts: tuple[str, ...]
    label: Label | None = None  # None where nobody has said


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """Words, each with a tag."""

    place: str
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

    place: str
    name: str  # SQuAD's id
    question: str
    passage: str
    answers: tuple[Answer, ...] | None = None  # None where nobody has said
