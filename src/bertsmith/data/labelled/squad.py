"""SQuAD: questions about passages, answered by a stretch of the passage. Rajpurkar et al. 2016; 2018 for version 2.

An answer that does not stand where the file says is looked for: the nearest place where its text stands is taken.
"""

from collections.abc import Iterator
from typing import Any

from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled.examples import Answer, Question
from bertsmith.data.labelled.tables import BadRows, Table, find_fault, open_table, parse_json, read_lines, read_text
from bertsmith.errors import TextError

CONTEXT_COLUMNS = ("context", "passage", "paragraph")
QUESTION_COLUMNS = ("question", "query")
HEADINGS = frozenset((*CONTEXT_COLUMNS, *QUESTION_COLUMNS, "answers", "id"))

ARTICLES, PARAGRAPHS, BROKEN = "articles without paragraphs", "paragraphs without text", "broken questions"
UNANSWERED = "questions that nobody has answered"
NOWHERE = "answers that are not in the passage"
LOST = "questions none of whose answers is in the passage"

Found = tuple[list[Question], str]  # the questions, and in words what was found
RawAnswer = tuple[str, int]  # an answer's text, and where it is said to begin


def read(source: Source, dropped: BadRows) -> Found:
    """The questions of SQuAD's own JSON, version 1.1 or 2.0, or of a table with the same things in columns."""
    if source.kind != ".json":
        return from_rows(open_table(source, HEADINGS), dropped)
    first = next((line for _, line, _ in read_lines(source) if line.strip()), "").lstrip()
    if first.startswith("[") or _record(first):
        return from_rows(open_table(source), dropped)
    content = parse_json(read_text(source), source.name)
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise TextError(source.name, "has no list named 'data'", "SQuAD's JSON holds its articles there")
    finder = QuestionReader(dropped)
    found = list(_articles(content["data"], source.name, finder))
    version = str(content.get("version", "")).removeprefix("v") or "of unknown version"
    return found, f"questions of SQuAD {version}: {finder.describe(found)}"


def from_rows(table: Table, dropped: BadRows) -> Found:
    """The questions of a table: question, context, and answers with their texts and starts, as in `datasets`."""
    passage, question = _column(table, CONTEXT_COLUMNS), _column(table, QUESTION_COLUMNS)
    answers = _column(table, ("answers", "answer"))
    others = [name for name in ("id", "is_impossible") if name in table.columns]
    finder = QuestionReader(dropped)
    found = list[Question]()
    for place, row in table.rows((passage, question, answers, *others), dropped):
        record = {name: row[name] for name in others} | {"question": row[question], "answers": row[answers]}
        if not isinstance(row[passage], str) or not row[passage].strip():
            dropped.drop(PARAGRAPHS, place, f"has no text in '{passage}'")
        elif one := finder.question(record, row[passage], place):
            found.append(one)
    return (
        found,
        f"questions from '{question}', passages from '{passage}', answers from '{answers}': " + finder.describe(found),
    )


class QuestionReader:
    """Makes questions of records, and finds answers that have lost their place."""

    def __init__(self, dropped: BadRows) -> None:
        self.dropped, self.relocated, self.seen = dropped, 0, 0

    def question(self, record: Any, passage: str, place: str) -> Question | None:
        """The question in a record; None if it is dropped."""
        self.seen += 1
        asked = record.get("question") if isinstance(record, dict) else None
        if not isinstance(asked, str) or not asked.strip():
            self.dropped.drop(BROKEN, place, "has no text in 'question'")
            return None
        if fault := find_fault([record.get("id"), asked, record.get("answers")]):
            self.dropped.drop(fault, place)
            return None
        try:
            spoken = _raw_answers(record)
        except ValueError as error:
            self.dropped.drop(BROKEN, place, str(error))
            return None
        if spoken is None:
            self.dropped.drop(UNANSWERED, place, "has no answers, and is not said to have none")
            return None
        answers = tuple(answer for text, start in spoken if (answer := self._locate(text, start, passage, place)))
        if spoken and not answers:
            self.dropped.drop(LOST, place, "has no answer that stands in the passage")
            return None
        known = record.get("id")
        name = str(known) if isinstance(known, str | int) and str(known) else str(self.seen)
        return Question(location=place, name=name, question=asked, context=passage, answers=answers)

    def describe(self, found: list[Question]) -> str:
        """How many there are, and what was done to them."""
        without = sum(not question.answers for question in found)
        moved = f", answers found elsewhere in their passage: {self.relocated:,}" if self.relocated else ""
        return f"{len(found):,} in all, without an answer: {without:,}{moved}"

    def _locate(self, text: str, start: int, passage: str, place: str) -> Answer | None:
        if start < 0 or not passage.startswith(text, start):
            start = _nearest(text, start, passage)
            if start < 0:
                self.dropped.drop(NOWHERE, place, f"the answer '{text[:60]}' does not stand in the passage")
                return None
            self.relocated += 1
        return Answer(text=text, start=start)


def _articles(articles: list[Any], name: str, finder: QuestionReader) -> Iterator[Question]:
    for number, article in enumerate(articles, 1):
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            finder.dropped.drop(ARTICLES, f"{name}: article {number}", "has no list named 'paragraphs'")
            continue
        for at, paragraph in enumerate(paragraphs, 1):
            place = f"{name}: article {number}, paragraph {at}"
            passage = paragraph.get("context") if isinstance(paragraph, dict) else None
            asked = paragraph.get("qas") if isinstance(paragraph, dict) else None
            if not isinstance(passage, str) or not passage.strip() or not isinstance(asked, list):
                finder.dropped.drop(PARAGRAPHS, place, "has no text in 'context', or no list named 'qas'")
            elif fault := find_fault(passage):
                finder.dropped.drop(fault, place)
            else:
                for order, record in enumerate(asked, 1):
                    if question := finder.question(record, passage, f"{place}, question {order}"):
                        yield question


def _raw_answers(record: dict[str, Any]) -> list[RawAnswer] | None:
    """The answers as the file has them; None where nobody has said."""
    given, impossible = record.get("answers"), record.get("is_impossible")
    if impossible is True:
        return []
    if isinstance(given, dict):  # a list each, as in `datasets`
        texts, starts = given.get("text"), given.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise ValueError("has answers without as many texts as starts")
        given = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if given is None or (given == [] and impossible is False):
        return None
    if not isinstance(given, list):
        raise ValueError("has answers that are no list")
    return [_raw_answer(answer) for answer in given]


def _raw_answer(answer: Any) -> RawAnswer:
    text = answer.get("text") if isinstance(answer, dict) else None
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError("has an answer without text")
    if not isinstance(start, int) or isinstance(start, bool):
        raise ValueError("has an answer without a whole number in 'answer_start'")
    return text, start


def _nearest(text: str, start: int, passage: str) -> int:
    """Where a text stands nearest to where it should; -1 if nowhere."""
    start = min(max(start, 0), len(passage))
    before, after = passage.rfind(text, 0, start + len(text)), passage.find(text, start)
    if before < 0 or after < 0:
        return max(before, after)
    return before if start - before <= after - start else after


def _record(line: str) -> bool:
    """Whether a line is a whole record, so that the file is JSON lines under another name."""
    try:
        return "question" in dict(parse_json(line, ""))
    except (TextError, TypeError, ValueError):
        return False


def _column(table: Table, known: tuple[str, ...]) -> str:
    found = next((name for name in known if name in table.columns), None)
    if found is None:
        fact = f"has no column '{known[0]}', but {', '.join(table.columns) or 'none'}"
        raise TextError(table.name, fact, "Questions need the columns question, context and answers")
    return found
