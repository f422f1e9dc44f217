"""Asked: what a taught model is asked, made of a record, of columns of words, or of SQuAD's articles."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bertsmith.data.corpus.lines import HALF
from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled import conll, reader, squad
from bertsmith.data.labelled.examples import Example, Question, Sentence
from bertsmith.data.labelled.reader import Kind
from bertsmith.data.labelled.tables import lines, value, whole
from bertsmith.errors import TextError

WORDS = re.compile(r"\w+|[^\w\s]")
PAIRS = [("text", "second"), *reader.COUPLES]
SECONDS = ("second", "sentence2", "hypothesis", "question2")
SINGLES = ["text", *reader.SINGLES, "sentence1", "premise", "question1"]
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
    if rows[0][0] == conll.DOCUMENT:
        return True
    last = [row[-1] for row in rows if len(row) > 1]
    tagged = sum(cell in tags or cell == "O" or bool(conll.SPAN.fullmatch(cell)) for cell in last)
    if 10 * tagged >= 9 * len(rows):
        return True
    blank = any(not line.strip() for line in head[:-1])
    return blank and len(rows) > 2 and all(len(row) == 1 for row in rows)


def _cells(line: str) -> list[str]:
    """A line cut at tabs where there is one, else at blanks."""
    text = line.strip()
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def sentences(found: Iterable[tuple[int, str]], name: str, learnt: TrainedOn) -> Iterator[Sentence]:
    """The words of each sentence, from their column; blank lines end sentences."""
    column = int(learnt.texts[0]) if learnt.texts and learnt.texts[0].isdigit() else 0
    words, place = list[str](), ""
    for number, line in found:
        cells = _cells(line)
        if not cells or cells[0] == conll.DOCUMENT:
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
    head = "\n".join(line for _, line, _ in islice(lines(file), PEEK))
    return head.lstrip().startswith("{") and '"paragraphs"' in head


def questions(file: Source) -> Iterator[Question]:
    content = value(whole(file), file.name)
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
                    question=string(asked.get("question"), place, "question"),
                    context=string(passage, place, "context"),
                )
    if not number:
        raise TextError(file.name, "holds no question", "SQuAD's JSON holds them in data, paragraphs, qas")


def _list(record: Any, name: str) -> list[Any]:
    inside = record.get(name) if isinstance(record, dict) else None
    return inside if isinstance(inside, list) else []


# ---------------------------------------------------------------------------------------------- examples


def make_example(place: str, record: Mapping[str, Any], learnt: TrainedOn, names: Names) -> Input:
    """What the task is asked, by a record."""
    text = record.get("text")
    match learnt.kind:
        case "tag":
            own = [record.get(name) for name in (*learnt.texts, *conll.WORDS)]
            words = next((one for one in own if isinstance(one, list) and one), None)
            if words is None:
                said = next((one for one in (text, *own, record.get("sentence")) if one is not None), None)
                words = WORDS.findall(string(said, place, "text"))
            return Sentence(location=place, words=tuple(string(word, place, "words") for word in words))
        case "answer":
            question = first(record, (*squad.QUESTIONS, "text"))
            passage = first(record, (*squad.PASSAGES, "second"))
            if passage is None:
                remedy = 'Write a question, a tab and a passage; or {"question": "...", "context": "..."}'
                raise TextError(place, "has no passage to look in", remedy)
            asked, read = string(question, place, "question"), string(passage, place, "passage")
            return Question(location=place, name=str(record.get("id", place)), question=asked, context=read)
        case "choose":
            return _choice(place, record, learnt, names)
    named = text if text is not None else first(record, (*learnt.texts[:1], *SINGLES, *(one for one, _ in PAIRS)))
    texts = [string(named, place, "text")]
    second = None if len(learnt.texts) == 1 else first(record, (*learnt.texts[1:2], *SECONDS))
    if second is not None:
        texts.append(string(second, place, "second"))
    elif len(learnt.texts) == 2:
        remedy = "Part the two with a tab, or name two columns"
        raise TextError(place, "has one text, and the model learnt from pairs", remedy)
    return Example(location=place, texts=tuple(texts))


def _choice(place: str, record: Mapping[str, Any], learnt: TrainedOn, names: Names) -> Example:
    """A beginning and its endings: from the columns that were learnt from, from usual ones, or from a list."""
    keys = tuple(record)
    if keys not in names:
        names[keys] = _ending_names(keys, learnt)
    contexts, endings = names[keys]
    parts = [record[name] for name in contexts]
    offered = [one for name in endings for one in _several(record[name])]
    if not contexts or len(offered) < 2 or not any(parts):
        raise TextError(place, "has no endings", 'Write {"text": "...", "endings": ["...", "..."]}')
    beginning = " ".join(string(part, place, name) for part, name in zip(parts, contexts, strict=True) if part)
    return Example(location=place, texts=(beginning, *(string(one, place, "endings") for one in offered)))


def _ending_names(keys: tuple[str, ...], learnt: TrainedOn) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if learnt.texts and set(learnt.texts) <= set(keys):
        return learnt.texts[: learnt.context_columns], learnt.texts[learnt.context_columns :]
    there = {name.casefold(): name for name in keys}
    numbered = sorted((match[2].lower(), name) for name in keys if (match := reader.ENDING.fullmatch(name)))
    endings = tuple(name for _, name in numbered) or tuple(there[name] for name in reader.ENDINGS if name in there)[:1]
    groups = [("sent1", "sent2"), ("article", "question"), ("text",), *((name,) for name in reader.CONTEXTS)]
    for group in groups:
        if all(name in there and there[name] not in endings for name in group):
            return tuple(there[name] for name in group), endings
    return (), endings


def _several(held: Any) -> list[Any]:
    """The texts in a list, in a record that keeps one, or a text alone."""
    inside = held.get("text") if isinstance(held, dict) else held
    return inside if isinstance(inside, list) else [inside]


def first(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def string(held: Any, place: str, name: str) -> str:
    if not isinstance(held, str):
        raise TextError(place, f"'{name}' is {held!r}", "Give a string")
    if not held.isascii() and HALF.search(held):
        raise TextError(place, "holds half a character (a lone surrogate)", "Mend the file")
    return held
