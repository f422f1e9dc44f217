"""Asked: what a taught model is asked, made of a record, of columns of words, or of SQuAD's articles."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bertsmith.data.corpus.lines import SURROGATE
from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled import conll, reader, squad
from bertsmith.data.labelled.examples import Example, Question, Sentence
from bertsmith.data.labelled.reader import Kind
from bertsmith.data.labelled.tables import parse_json, read_lines, read_text
from bertsmith.errors import TextError

WORDS = re.compile(r"\w+|[^\w\s]")
PAIRS = [("text", "second"), *reader.PAIR_COLUMNS]
SECONDS = ("second", "sentence2", "hypothesis", "question2")
SINGLES = ["text", *reader.TEXT_COLUMNS, "sentence1", "premise", "question1"]
PEEK = 200  # lines by which a file of columns is known

Input = Example | Sentence | Question
Names = dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]]  # of a beginning and its endings, by all names


@dataclass(frozen=True, kw_only=True)
class TrainedOn:
    """What a model was taught, and the columns of its training data, where they are known."""

    kind: Kind
    texts: tuple[str, ...] = ()
    context_columns: int = 1  # so many of the texts are one, with blanks between
    tags: frozenset[str] = field(default_factory=frozenset)  # by which files of columns are known


# ----------------------------------------------------------------------------------------------- columns


def is_conll(head: Sequence[str], tags: frozenset[str]) -> bool:
    """Whether lines are words with their tags, or words alone with blank lines after sentences."""
    rows = [_cells(line) for line in head if line.strip() and not conll.COMMENT.match(line)]
    if not rows:
        return False
    if rows[0][0] == conll.DOCSTART:
        return True
    last = [row[-1] for row in rows if len(row) > 1]
    tagged = sum(cell in tags or cell == "O" or bool(conll.SPAN_TAG.fullmatch(cell)) for cell in last)
    if 10 * tagged >= 9 * len(rows):
        return True
    blank = any(not line.strip() for line in head[:-1])
    return blank and len(rows) > 2 and all(len(row) == 1 for row in rows)


def _cells(line: str) -> list[str]:
    """A line cut at tabs where there is one, else at blanks."""
    text = line.strip()
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def sentences(found: Iterable[tuple[int, str]], name: str, trained_on: TrainedOn) -> Iterator[Sentence]:
    """The words of each sentence, from their column; blank lines end sentences."""
    column = int(trained_on.texts[0]) if trained_on.texts and trained_on.texts[0].isdigit() else 0
    words, place = list[str](), ""
    for number, line in found:
        cells = _cells(line)
        if not cells or cells[0] == conll.DOCSTART:
            if words:
                yield Sentence(location=place, words=tuple(words))
            words = []
        elif words or not conll.COMMENT.match(line):
            if len(cells) <= column or not cells[column]:
                fact = f"has {len(cells)} columns, and the words are in column {column}"
                raise TextError(f"{name}:{number}", fact, "Mend the line")
            place = place if words else f"{name}:{number}"
            words.append(cells[column])
    if words:
        yield Sentence(location=place, words=tuple(words))


# ------------------------------------------------------------------------------------------------- SQuAD


def is_squad(file: Source) -> bool:
    """Whether a JSON file is SQuAD's own: one object with articles in it."""
    head = "\n".join(line for _, line, _ in islice(read_lines(file), PEEK))
    return head.lstrip().startswith("{") and '"paragraphs"' in head


def questions(file: Source) -> Iterator[Question]:
    content = parse_json(read_text(file), file.name)
    articles = content.get("data") if isinstance(content, dict) else None
    number = 0
    for at, article in enumerate(articles if isinstance(articles, list) else [], 1):
        for order, paragraph in enumerate(_list(article, "paragraphs"), 1):
            place = f"{file.name}: article {at}, paragraph {order}"
            for record in _list(paragraph, "qas"):
                number += 1
                asked = record if isinstance(record, dict) else {}
                name, passage = asked.get("id"), paragraph.get("context")
                yield Question(
                    location=place,
                    name=str(name) if isinstance(name, str | int) and str(name) else str(number),
                    question=require_string(asked.get("question"), place, "question"),
                    context=require_string(passage, place, "context"),
                )
    if not number:
        raise TextError(file.name, "holds no question", "SQuAD's JSON holds them in data, paragraphs, qas")


def _list(record: Any, name: str) -> list[Any]:
    inside = record.get(name) if isinstance(record, dict) else None
    return inside if isinstance(inside, list) else []


# ---------------------------------------------------------------------------------------------- examples


def make_example(location: str, record: Mapping[str, Any], trained_on: TrainedOn, names: Names) -> Input:
    """What the task is asked, by a record."""
    text = record.get("text")
    match trained_on.kind:
        case "tag":
            own = [record.get(name) for name in (*trained_on.texts, *conll.WORD_COLUMNS)]
            words = next((one for one in own if isinstance(one, list) and one), None)
            if words is None:
                said = next((one for one in (text, *own, record.get("sentence")) if one is not None), None)
                words = WORDS.findall(require_string(said, location, "text"))
            return Sentence(location=location, words=tuple(require_string(word, location, "words") for word in words))
        case "answer":
            question = first_value(record, (*squad.QUESTION_COLUMNS, "text"))
            passage = first_value(record, (*squad.CONTEXT_COLUMNS, "second"))
            if passage is None:
                remedy = 'Write a question, a tab and a passage; or {"question": "...", "context": "..."}'
                raise TextError(location, "has no passage to look in", remedy)
            asked, read = require_string(question, location, "question"), require_string(passage, location, "passage")
            return Question(location=location, name=str(record.get("id", location)), question=asked, context=read)
        case "choose":
            return _choice(location, record, trained_on, names)
    named = (
        text if text is not None else first_value(record, (*trained_on.texts[:1], *SINGLES, *(one for one, _ in PAIRS)))
    )
    texts = [require_string(named, location, "text")]
    second = None if len(trained_on.texts) == 1 else first_value(record, (*trained_on.texts[1:2], *SECONDS))
    if second is not None:
        texts.append(require_string(second, location, "second"))
    elif len(trained_on.texts) == 2:
        remedy = "Part the two with a tab, or name two columns"
        raise TextError(location, "has one text, and the model learnt from pairs", remedy)
    return Example(location=location, texts=tuple(texts))


def _choice(place: str, record: Mapping[str, Any], learnt: TrainedOn, names: Names) -> Example:
    """A beginning and its endings: from the columns that were learnt from, from usual ones, or from a list."""
    keys = tuple(record)
    if keys not in names:
        names[keys] = _ending_names(keys, learnt)
    contexts, endings = names[keys]
    parts = [record[name] for name in contexts]
    offered = [one for name in endings for one in _as_list(record[name])]
    if not contexts or len(offered) < 2 or not any(parts):
        raise TextError(place, "has no endings", 'Write {"text": "...", "endings": ["...", "..."]}')
    beginning = " ".join(require_string(part, place, name) for part, name in zip(parts, contexts, strict=True) if part)
    return Example(location=place, texts=(beginning, *(require_string(one, place, "endings") for one in offered)))


def _ending_names(keys: tuple[str, ...], learnt: TrainedOn) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if learnt.texts and set(learnt.texts) <= set(keys):
        return learnt.texts[: learnt.context_columns], learnt.texts[learnt.context_columns :]
    there = {name.casefold(): name for name in keys}
    numbered = sorted((match[2].lower(), name) for name in keys if (match := reader.ENDING.fullmatch(name)))
    endings = (
        tuple(name for _, name in numbered) or tuple(there[name] for name in reader.ENDING_COLUMNS if name in there)[:1]
    )
    groups = [("sent1", "sent2"), ("article", "question"), ("text",), *((name,) for name in reader.CONTEXT_COLUMNS)]
    for group in groups:
        if all(name in there and there[name] not in endings for name in group):
            return tuple(there[name] for name in group), endings
    return (), endings


def _as_list(held: Any) -> list[Any]:
    """The texts in a list, in a record that keeps one, or a text alone."""
    inside = held.get("text") if isinstance(held, dict) else held
    return inside if isinstance(inside, list) else [inside]


def first_value(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def require_string(held: Any, location: str, name: str) -> str:
    if not isinstance(held, str):
        raise TextError(location, f"'{name}' is {held!r}", "Give a string")
    if not held.isascii() and SURROGATE.search(held):
        raise TextError(location, "holds half a character (a lone surrogate)", "Mend the file")
    return held
