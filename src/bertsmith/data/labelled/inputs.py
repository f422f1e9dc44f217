"""Inputs of a fine-tuned model: made from a record, from CoNLL's columns, or from SQuAD's articles."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bertsmith.data.corpus.lines import SURROGATE
from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled import conll, squad
from bertsmith.data.labelled.column_names import (
    CONTEXT_COLUMNS,
    CONTEXT_GROUPS,
    ENDING_COLUMNS,
    PAIR_COLUMNS,
    TEXT_COLUMNS,
    ending_columns,
)
from bertsmith.data.labelled.examples import Example, Kind, Question, Sentence
from bertsmith.data.labelled.lines import parse_json, read_lines, read_text
from bertsmith.data.labelled.values import list_of_endings
from bertsmith.data.labelled.words import split_words
from bertsmith.errors import TextError

PAIRS = [("text", "second"), *PAIR_COLUMNS]
SECONDS = ("second", "sentence2", "hypothesis", "question2")
SINGLES = ["text", *TEXT_COLUMNS, "sentence1", "premise", "question1"]
CONLL_PEEK_LINES = 200  # lines by which a CoNLL file is recognised

Input = Example | Sentence | Question
Names = dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]]  # columns of context and endings, by all columns


@dataclass(frozen=True, kw_only=True)
class TrainedOn:
    """The kind of data that a model was fine-tuned on, and their columns where they are known."""

    kind: Kind
    texts: tuple[str, ...] = ()
    context_columns: int = 1  # the first n texts are one context, joined by spaces
    tags: frozenset[str] = field(default_factory=frozenset)  # by which CoNLL files are recognised


# ----------------------------------------------------------------------------------------------- columns


def is_conll(head: Sequence[str], tags: frozenset[str]) -> bool:
    """Whether lines are words with their tags, or words alone with blank lines after sentences."""
    rows = [conll.split_line(line) for line in head if line.strip() and not conll.COMMENT.match(line)]
    if not rows:
        return False
    if rows[0][0] == conll.DOCSTART or conll.is_conllu(rows):
        return True
    last = [row[-1] for row in rows if len(row) > 1]
    tagged = sum(cell in tags or cell == "O" or bool(conll.SPAN_TAG.fullmatch(cell)) for cell in last)
    if 10 * tagged >= 9 * len(rows):
        return True
    blank = any(not line.strip() for line in head[:-1])
    return blank and len(rows) > 2 and all(len(row) == 1 for row in rows)


def sentences(lines: Iterable[tuple[int, str]], name: str, trained_on: TrainedOn) -> Iterator[Sentence]:
    """The words of each sentence, from their column; blank lines end sentences."""
    named = int(trained_on.texts[0]) if trained_on.texts and trained_on.texts[0].isdigit() else None
    words, location = list[str](), ""
    for number, line in lines:
        cells = conll.split_line(line)
        conllu = conll.is_conllu([cells])
        if conllu and conll.NO_WORD.fullmatch(cells[0]):
            continue
        column = named if named is not None else conll.CONLLU_WORDS if conllu else 0
        if not cells or cells[0] == conll.DOCSTART:
            if words:
                yield Sentence(location=location, words=tuple(words))
            words = []
        elif words or not conll.COMMENT.match(line):
            if len(cells) <= column or not cells[column]:
                fact = f"has {len(cells)} columns, and the words are in column {column}"
                raise TextError(f"{name}:{number}", fact, "Mend the line")
            location = location if words else f"{name}:{number}"
            words.append(cells[column])
    if words:
        yield Sentence(location=location, words=tuple(words))


# ------------------------------------------------------------------------------------------------- SQuAD


def is_squad(file: Source) -> bool:
    """Whether a JSON file is SQuAD's: one object with articles and paragraphs."""
    head = "\n".join(line for _, line, _ in islice(read_lines(file), CONLL_PEEK_LINES))
    return head.lstrip().startswith("{") and '"paragraphs"' in head


def questions(file: Source) -> Iterator[Question]:
    """The questions of SQuAD's JSON, without their answers."""
    content = parse_json(read_text(file), file.name)
    articles = content.get("data") if isinstance(content, dict) else None
    number = 0
    for at, article in enumerate(articles if isinstance(articles, list) else [], 1):
        for order, paragraph in enumerate(_list(article, "paragraphs"), 1):
            location = f"{file.name}: article {at}, paragraph {order}"
            for record in _list(paragraph, "qas"):
                number += 1
                fields = record if isinstance(record, dict) else {}
                name, context = fields.get("id"), paragraph.get("context")
                yield Question(
                    location=location,
                    name=str(name) if isinstance(name, str | int) and str(name) else str(number),
                    question=require_string(fields.get("question"), location, "question"),
                    context=require_string(context, location, "context"),
                )
    if not number:
        raise TextError(file.name, "holds no question", "SQuAD's JSON holds them in data, paragraphs, qas")


def _list(record: Any, name: str) -> list[Any]:
    inside = record.get(name) if isinstance(record, dict) else None
    return inside if isinstance(inside, list) else []


# ---------------------------------------------------------------------------------------------- examples


def make_example(location: str, record: Mapping[str, Any], trained_on: TrainedOn, names: Names) -> Input:
    """The input that a record holds, as the model's task needs it."""
    text = record.get("text")
    match trained_on.kind:
        case "tag":
            cells = [record.get(name) for name in (*trained_on.texts, *conll.WORD_COLUMNS)]
            words = next((cell for cell in cells if isinstance(cell, list) and cell), None)
            if words is None:
                sentence = next((cell for cell in (text, *cells, record.get("sentence")) if cell is not None), None)
                words = split_words(require_column(sentence, record, location, "text"))
            return Sentence(location=location, words=tuple(require_string(word, location, "words") for word in words))
        case "answer":
            context = first_value(record, (*squad.CONTEXT_COLUMNS, "second"))
            if context is None:
                remedy = 'Write a question, a tab and a passage; or {"question": "...", "context": "..."}'
                raise TextError(location, "has no passage to look in", remedy)
            question = first_value(record, (*squad.QUESTION_COLUMNS, "text"))
            return Question(
                location=location,
                name=str(record.get("id", location)),
                question=require_column(question, record, location, "question"),
                context=require_string(context, location, "passage"),
            )
        case "choose":
            return _choice(location, record, trained_on, names)
    named = (
        text if text is not None else first_value(record, (*trained_on.texts[:1], *SINGLES, *(one for one, _ in PAIRS)))
    )
    column = next((name for name in trained_on.texts[:1] if not name.isdigit()), "text")
    texts = [require_column(named, record, location, column)]
    second = None if len(trained_on.texts) == 1 else first_value(record, (*trained_on.texts[1:2], *SECONDS))
    if second is not None:
        texts.append(require_string(second, location, "second"))
    elif len(trained_on.texts) == 2:
        remedy = "Separate the two with a tab, or name two columns"
        raise TextError(location, "has one text, and the model was trained on pairs", remedy)
    return Example(location=location, texts=tuple(texts))


def _choice(location: str, record: Mapping[str, Any], trained_on: TrainedOn, names: Names) -> Example:
    """A context and its endings: from the columns of the training data, from the usual ones, or from a list."""
    keys = tuple(record)
    if keys not in names:
        names[keys] = _choice_columns(keys, trained_on)
    contexts, endings = names[keys]
    parts = [record[name] for name in contexts]
    choices = [ending for name in endings for ending in list_of_endings(record[name]) or [record[name]]]
    if not contexts or len(choices) < 2 or not any(parts):
        raise TextError(location, "has no endings", 'Write {"text": "...", "endings": ["...", "..."]}')
    context = " ".join(require_string(part, location, name) for part, name in zip(parts, contexts, strict=True) if part)
    return Example(
        location=location, texts=(context, *(require_string(ending, location, "endings") for ending in choices))
    )


def _choice_columns(keys: tuple[str, ...], trained_on: TrainedOn) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of the context, and of the endings."""
    if trained_on.texts and set(trained_on.texts) <= set(keys):
        return trained_on.texts[: trained_on.context_columns], trained_on.texts[trained_on.context_columns :]
    by_name = {name.casefold(): name for name in keys}
    endings = tuple(ending_columns(keys)) or tuple(by_name[name] for name in ENDING_COLUMNS if name in by_name)[:1]
    for group in [*CONTEXT_GROUPS, ("text",), *((name,) for name in CONTEXT_COLUMNS)]:
        if all(name in by_name and by_name[name] not in endings for name in group):
            return tuple(by_name[name] for name in group), endings
    return (), endings


def first_value(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The first of these fields that is not empty."""
    return next((record[name] for name in names if record.get(name) is not None), None)


def require_column(value: Any, record: Mapping[str, Any], location: str, name: str) -> str:
    """The same value, if it is a string; a record without its column is refused with the columns that it has."""
    if value is None and record and record.keys().isdisjoint((name, "text")):
        columns = ", ".join(f"'{column}'" for column in record)
        raise TextError(location, f"has no column '{name}', but {columns}", f'Give {{"{name}": "..."}}')
    return require_string(value, location, name)


def require_string(value: Any, location: str, name: str) -> str:
    """The same value, if it is a string of whole characters."""
    if not isinstance(value, str):
        raise TextError(location, f"'{name}' is {value!r}", "Give a string")
    if not value.isascii() and SURROGATE.search(value):
        raise TextError(location, "holds half a character (a lone surrogate)", "Mend the file")
    return value
