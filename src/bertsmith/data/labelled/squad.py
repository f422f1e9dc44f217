"""SQuAD: questions about a context, answered by a span of it. Rajpurkar et al. 2016; 2018 for version 2.0.

An answer whose text is not at its `answer_start` is relocated to the nearest occurrence of its text; one
without a start is at the first.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled.bad_rows import BadRows, find_fault
from bertsmith.data.labelled.column_names import find_column
from bertsmith.data.labelled.examples import Answer, Question
from bertsmith.data.labelled.lines import first_line, parse_json, read_text
from bertsmith.data.labelled.tables import Table, open_table
from bertsmith.data.labelled.values import NEARLY_ALL
from bertsmith.errors import TextError

CONTEXT_COLUMNS = ("context", "passage", "paragraph")
QUESTION_COLUMNS = ("question", "query")
ANSWER_COLUMNS, START_COLUMN = ("answers", "answer", "answer_text"), "answer_start"
HEADINGS = frozenset((*CONTEXT_COLUMNS, *QUESTION_COLUMNS, "answers", "id"))
VERDICTS = {"yes", "no", "true", "false", "maybe", "unknown"}  # classes, though a passage may have the word

ARTICLES, PARAGRAPHS, BROKEN = "articles without paragraphs", "paragraphs without text", "broken questions"
UNANSWERED = "questions without a list of answers"
ANSWER_NOT_FOUND = "answers that are not in the passage"
NO_ANSWER_FOUND = "questions none of whose answers is in the passage"

Asked = tuple[list[Question], str]  # the questions, and a description
RawAnswer = tuple[str, int | None]  # an answer's text and its `answer_start`


def read(source: Source, dropped: BadRows) -> Asked:
    """The questions of SQuAD's JSON, version 1.1 or 2.0, or of a table with the same fields as columns."""
    if source.kind != ".json":
        return from_rows(open_table(source, HEADINGS), dropped)
    first = first_line(source).lstrip()
    if first.startswith("[") or _is_record(first):
        return from_rows(open_table(source), dropped)
    content = parse_json(read_text(source), source.name)
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise TextError(source.name, "has no list named 'data'", "SQuAD's JSON holds its articles there")
    reader = QuestionReader(dropped)
    questions = list(_articles(content["data"], source.name, reader))
    version = str(content.get("version", "")).removeprefix("v") or "of unknown version"
    return questions, f"questions of SQuAD {version}: {reader.describe(questions)}"


def from_rows(table: Table, dropped: BadRows) -> Asked:
    """The questions of a table: question, context, and answers with their texts and starts, as in `datasets`.

    An answer may be a text alone, with its start in a column of its own, or without one.
    """
    context, question = _column(table, CONTEXT_COLUMNS), _column(table, QUESTION_COLUMNS)
    answers = _column(table, ANSWER_COLUMNS)
    others = [name for name in ("id", "is_impossible", START_COLUMN) if name in table.columns]
    reader = QuestionReader(dropped)
    questions = list[Question]()
    for location, row in table.rows((context, question, answers, *others), dropped):
        record = {name: row[name] for name in others} | {"question": row[question], "answers": row[answers]}
        if not isinstance(row[context], str) or not row[context].strip():
            dropped.drop(PARAGRAPHS, location, f"has no text in '{context}'")
        elif parsed := reader.question(record, row[context], location):
            questions.append(parsed)
    columns = f"questions from '{question}', passages from '{context}', answers from '{answers}'"
    return questions, f"{columns}: {reader.describe(questions)}"


class QuestionReader:
    """Parses records of questions, and relocates answers with a wrong `answer_start`."""

    def __init__(self, dropped: BadRows) -> None:
        self.dropped, self.seen = dropped, 0
        self.relocated, self.without_start = 0, 0  # answers

    def question(self, record: Any, context: str, location: str) -> Question | None:
        """The question in a record; None if it is dropped."""
        self.seen += 1
        text = record.get("question") if isinstance(record, dict) else None
        if not isinstance(text, str) or not text.strip():
            self.dropped.drop(BROKEN, location, "has no text in 'question'")
            return None
        if fault := find_fault([record.get("id"), text, record.get("answers")]):
            self.dropped.drop(fault, location)
            return None
        try:
            raw_answers = _raw_answers(record)
        except ValueError as error:
            self.dropped.drop(BROKEN, location, str(error))
            return None
        if raw_answers is None:
            self.dropped.drop(UNANSWERED, location, "has no answers, and is not marked as impossible")
            return None
        located = (self._locate(answer, start, context, location) for answer, start in raw_answers)
        answers = tuple(answer for answer in located if answer)
        if raw_answers and not answers:
            self.dropped.drop(NO_ANSWER_FOUND, location, "has no answer that stands in the passage")
            return None
        known = record.get("id")
        name = str(known) if isinstance(known, str | int) and str(known) else str(self.seen)
        return Question(location=location, name=name, question=text, context=context, answers=answers)

    def describe(self, questions: list[Question]) -> str:
        """The numbers of questions, of unanswerable ones and of relocated answers."""
        without = sum(not question.answers for question in questions)
        relocated = f", answers found elsewhere in their passage: {self.relocated:,}" if self.relocated else ""
        first = f", answers without a start, found by their text: {self.without_start:,}" if self.without_start else ""
        return f"{len(questions):,} in all, without an answer: {without:,}{relocated}{first}"

    def _locate(self, text: str, start: int | None, context: str, location: str) -> Answer | None:
        if start is None or start < 0 or not context.startswith(text, start):
            nearest = _nearest(text, start or 0, context)
            if nearest < 0:
                self.dropped.drop(ANSWER_NOT_FOUND, location, f"the answer '{text[:60]}' does not stand in the passage")
                return None
            self.relocated += start is not None
            self.without_start += start is None
            start = nearest
        return Answer(text=text, start=start)


def _articles(articles: list[Any], name: str, reader: QuestionReader) -> Iterator[Question]:
    for number, article in enumerate(articles, 1):
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            reader.dropped.drop(ARTICLES, f"{name}: article {number}", "has no list named 'paragraphs'")
            continue
        for at, paragraph in enumerate(paragraphs, 1):
            location = f"{name}: article {number}, paragraph {at}"
            context = paragraph.get("context") if isinstance(paragraph, dict) else None
            records = paragraph.get("qas") if isinstance(paragraph, dict) else None
            if not isinstance(context, str) or not context.strip() or not isinstance(records, list):
                reader.dropped.drop(PARAGRAPHS, location, "has no text in 'context', or no list named 'qas'")
            elif fault := find_fault(context):
                reader.dropped.drop(fault, location)
            else:
                for order, record in enumerate(records, 1):
                    if question := reader.question(record, context, f"{location}, question {order}"):
                        yield question


def _raw_answers(record: dict[str, Any]) -> list[RawAnswer] | None:
    """The answers as the file has them; none for an impossible question, None for an unlabelled one."""
    answers, impossible = record.get("answers"), record.get("is_impossible")
    if impossible is True:
        return []
    if isinstance(answers, dict):  # lists of texts and of starts, as in `datasets`
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise ValueError("has answers without as many texts as starts")
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if isinstance(answers, str):  # of a table
        start = str(record.get(START_COLUMN) or "")
        return [(answers, int(start) if start.isdecimal() else None)] if answers.strip() else None
    if answers is None or (answers == [] and impossible is False):
        return None
    if not isinstance(answers, list):
        raise ValueError("has answers that are no list")
    return [_raw_answer(answer) for answer in answers]


def _raw_answer(answer: Any) -> RawAnswer:
    text = answer.get("text") if isinstance(answer, dict) else None
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError("has an answer without text")
    if not isinstance(start, int) or isinstance(start, bool):
        raise ValueError("has an answer without a whole number in 'answer_start'")
    return text, start


def _nearest(text: str, start: int, context: str) -> int:
    """The occurrence of a text nearest to `start`; -1 if there is none."""
    start = min(max(start, 0), len(context))
    before, after = context.rfind(text, 0, start + len(text)), context.find(text, start)
    if before < 0 or after < 0:
        return max(before, after)
    return before if start - before <= after - start else after


def _is_record(line: str) -> bool:
    """Whether a line is a whole record, so that a .json file is really JSON lines."""
    try:
        return "question" in dict(parse_json(line, ""))
    except (TextError, TypeError, ValueError):
        return False


def has_questions(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a table is questions about passages: it has `answers`, or nearly every answer is in its passage."""
    context, question = (find_column(known, columns) for known in (CONTEXT_COLUMNS, QUESTION_COLUMNS))
    answer = find_column(ANSWER_COLUMNS, columns)
    if not (context and question and answer) or answer.casefold() == ANSWER_COLUMNS[0]:
        return bool(context and question and answer)
    answered = [(cell, str(row[context])) for row in rows if isinstance(cell := row[answer], str) and cell.strip()]
    found = sum(cell in passage and cell.casefold() not in VERDICTS for cell, passage in answered)
    return bool(answered) and found >= NEARLY_ALL * len(answered)


def _column(table: Table, known: tuple[str, ...]) -> str:
    if found := find_column(known, table.columns):
        return found
    fact = f"has no column '{known[0]}', but {', '.join(table.columns) or 'none'}"
    raise TextError(table.name, fact, "Questions need the columns question, context and answers")
