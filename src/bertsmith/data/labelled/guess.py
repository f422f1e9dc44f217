"""A guess at the task that a labelled file is for, from the values in it; always said, with the option that changes it.

A number for each text is regression, a class of a few is classification, a list of labels or a column of 0 and 1 for
each label is multi-label classification, two texts without a label are pairs for embeddings.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from bertsmith.data.corpus.lines import READ_ERRORS
from bertsmith.data.labelled import conll, reader, squad
from bertsmith.data.labelled.reader import ENDING, GUESS, PAIR_COLUMNS, SEPARATORS, TRIPLE_COLUMNS, Columns
from bertsmith.data.labelled.tables import BadRows, Table, open_table, read_lines
from bertsmith.data.labelled.values import is_missing, is_number, parse_flag, split_labels
from bertsmith.errors import TextError

Task = Literal["classify", "tag", "answer", "choose", "embed"]
Problem = Literal["single_label", "regression", "multi_label"]

SOME = 4096  # rows that are looked at
CLASSES = 20  # whole numbers: so many different ones are classes, more are only where they count on from 0 or 1
ALONE = 0.8  # of the rows have a value of their own: no classes
FEWEST = 8  # rows that tell as much
LABEL = 40  # characters of a label's name, at most


@dataclass(frozen=True, kw_only=True)
class Guess:
    """What a file is for, as far as its first rows tell."""

    task: Task
    problem: Problem = "single_label"  # of `classify`
    labels: tuple[str, ...] = ()  # columns of 0 and 1
    separator: str | None = None  # between the labels in a cell
    message: str = ""  # the guess in words; empty where the kind of file leaves no choice
    rows: int = 0  # how many were seen, at most `SOME`; 0 where they cannot be counted


def guess(path: Path, columns: Columns = GUESS, task: str | None = None) -> Guess:
    """The task of a file, unless one is named; and of classification, what kind."""
    found, table, rows = guess_by_suffix(path), None, list[dict[str, Any]]()
    try:
        file = reader.sources(path)[0]
        if found == "tag":
            return Guess(task="tag", rows=_sentences(file))
        table = open_table(file, reader.COLUMN_NAMES)
        rows = [row for _, row in islice(table.rows(table.columns, BadRows("skip")), SOME)]
    except TextError:  # whoever reads it in earnest hears of it
        pass
    if found == "answer" and (table is None or "data" in table.columns or _has_questions(table)):
        return Guess(task="answer", rows=_questions(path))
    if table is None or (task or "classify") != "classify":
        return Guess(task=found, rows=len(rows))
    return replace(_of_table(table, rows, columns, task), rows=len(rows))


def count_rows(path: Path) -> int:
    """How many rows a file has, at most `SOME`; 0 where they cannot be counted."""
    return guess(path, task="any").rows


def guess_by_suffix(path: Path) -> Task:
    """The task, by the kind of file: SQuAD's JSON asks, CoNLL's columns tag, tables classify."""
    endings = [ending for ending in path.suffixes if ending not in (".gz", ".xz", ".zst")]
    last = endings[-1].lower() if endings else ""
    if last == ".json":
        return "answer"
    return "classify" if last in (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet") else "tag"


def _of_table(table: Table, rows: list[dict[str, Any]], columns: Columns, task: str | None) -> Guess:
    named = columns.texts or columns.label
    if task is None and not named:
        if _has_questions(table):
            return Guess(task="answer", message="Task: question answering, since there are questions and passages")
        if _has_tags(table, rows):
            return Guess(task="tag", message="Task: tagging, since there are lists of words and of tags")
        if sum(bool(ENDING.fullmatch(name)) for name in table.columns) > 1:
            return Guess(task="choose", message="Task: multiple choice, since there are several endings")
    if columns.label is None and columns.texts is None and (flags := _flag_columns(table, rows)):
        shown = ", ".join(flags[:4]) + (", ..." if len(flags) > 4 else "")
        said = f"Task: multi-label classification, a column of 0 and 1 for each of {len(flags)} labels ({shown})"
        return Guess(
            task="classify", problem="multi_label", labels=flags, message=f"{said}; data.label='...' takes one column"
        )
    if task is None and columns.label is None and (pair := _pair(table, rows, columns)):
        said = f"Task: sentence embeddings from {reader.quoted_list(pair)}, since there is no label"
        return Guess(task="embed", message=f"{said}; data.label='...' and --task classify change it")
    try:
        plan = reader.plan_columns(table, "classify", columns)
    except TextError:
        return Guess(task="classify")
    assert plan.label is not None
    held = [value for row in rows if not is_missing(value := row.get(plan.label))]
    left = [name for name in table.columns if name not in plan.texts] == [plan.label]
    alone = left and not reader.is_label(plan.label) and columns.label is None
    return _of_values(table, f"'{plan.label}'" + (", the only column left" if alone else ""), held, columns)


def _of_values(table: Table, label: str, held: list[Any], columns: Columns) -> Guess:
    """What kind of label a column holds."""
    if not held:
        return Guess(task="classify")
    if all(map(_numeric, held)):
        numbers = list(map(float, held))
        if not _are_classes(numbers):
            spread = f"numbers from {min(numbers):g} to {max(numbers):g} in {label}"
            said = f"Task: regression, {spread}; task.problem=single_label makes a class of each number"
            return Guess(task="classify", problem="regression", message=said)
    elif separator := _find_separator(held, columns.separator):
        parts = {part for value in held for part in split_labels(value, separator)}
        how = "" if separator == LISTS else f" separated by '{separator}'"
        said = f"Task: multi-label classification, {len(parts)} labels{how} in {label}"
        said += "; task.problem=single_label takes each value for one class"
        given = None if separator == LISTS else separator
        return Guess(task="classify", problem="multi_label", separator=given, message=said)
    classes = {str(value).strip() for value in held if not isinstance(value, list | dict)}
    if len(held) >= FEWEST and len(classes) > ALONE * len(held):
        fact = f"{len(classes):,} different values in {len(held):,} rows of {label}: nearly each row is its own class"
        remedy = "Name the label's column with data.label='...', or learn from pairs of texts with --task embed"
        raise TextError(table.name, fact, remedy)
    said = f"Task: classification, {len(classes)} classes in {label}"
    number = "; task.problem=regression makes it regression" if all(map(_numeric, held)) else ""
    return Guess(task="classify", message=said + (number or "; task.problem=multi_label makes it multi-label"))


LISTS = "[]"  # stands for a separator where cells are lists


def _find_separator(held: Sequence[Any], separator: str | None) -> str | None:
    """What separates several labels in a cell: a list needs nothing, a text a mark between parts that recur."""
    if any(isinstance(value, list) for value in held):
        return LISTS
    texts = [value for value in held if isinstance(value, str)]
    if texts and all(text.strip()[:1] == "[" and text.strip()[-1:] == "]" for text in texts):
        return LISTS
    for mark in (separator,) if separator else SEPARATORS:
        wholes = {text: split_labels(text, mark) for text in set(texts)}
        joined = [parts for parts in wholes.values() if len(parts) > 1]
        if not joined or any(len(part) > LABEL for parts in joined for part in parts):
            continue
        # "Arts, crafts" is one class; in "film,love" both parts stand in other cells, too.
        within = Counter(part for parts in wholes.values() for part in set(parts))
        parts = [part for one in joined for part in one]
        if separator or 2 * sum(within[part] > 1 for part in parts) > len(parts):
            return mark
    return None


def _are_classes(numbers: list[float]) -> bool:
    """Whether numbers are classes: a few whole ones, or many that count on from 0 or 1 and come again and again."""
    if not all(number.is_integer() for number in numbers):
        return False
    found = set(numbers)
    if len(numbers) >= FEWEST and len(found) > ALONE * len(numbers):
        return False
    counted = min(found) in (0, 1) and max(found) < 1.2 * len(found) + 1 and len(numbers) >= 5 * len(found)
    return len(found) <= CLASSES or counted


def _flag_columns(table: Table, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """The columns of 0 and 1, where there are two or more and no column is named as a label's."""
    if len(rows) < 2 or any(reader.is_label(name) for name in table.columns):
        return ()
    flags = tuple(name for name in table.columns if _binary([row.get(name) for row in rows]))
    return flags if len(flags) > 1 and len(flags) < len(table.columns) else ()


def _binary(held: list[Any]) -> bool:
    return all(parse_flag(value) is not None for value in held)


def _pair(table: Table, rows: list[dict[str, Any]], columns: Columns) -> tuple[str, ...]:
    """The columns of texts that belong together, where no column could be their label."""
    texts = columns.texts or reader.match_columns([*TRIPLE_COLUMNS, *PAIR_COLUMNS], table.columns)
    if len(texts) < 2:
        return ()
    free = [name for name in table.columns if name not in texts]
    if any(reader.is_label(name) or reader.has_few_values(table, name) for name in free):
        return ()
    last = [str(row.get(texts[-1])) for row in rows]
    if reader.is_label(texts[-1]) and 2 * len(set(last)) <= len(last):
        return ()  # answers such as yes and no are classes
    return tuple(texts)


def _has_questions(table: Table) -> bool:
    there = {name.casefold() for name in table.columns}
    return bool(there & {*squad.CONTEXT_COLUMNS}) and bool(there & {*squad.QUESTION_COLUMNS}) and "answers" in there


def _has_tags(table: Table, rows: list[dict[str, Any]]) -> bool:
    held = [name for name in table.columns if rows and all(isinstance(row.get(name), list) for row in rows)]
    plain = {name.casefold() for name in held}
    return bool(plain & {*conll.WORD_COLUMNS}) and bool(plain & {*conll.TAG_COLUMNS})


def _numeric(value: Any) -> bool:
    return not isinstance(value, list | dict) and is_number(value)


def _sentences(file: Any) -> int:
    """How many sentences a file of words and tags holds, counted up to `SOME` by the blank lines between them."""
    count, within = 0, False
    for _, line, _ in read_lines(file):
        if line.strip():
            within = True
        elif within:
            count, within = count + 1, False
            if count >= SOME:
                break
    return count + within


def _questions(path: Path) -> int:
    """How many questions a JSON file holds, counted up to `SOME` by their key."""
    try:
        count = 0
        for block in reader.sources(path)[0].blocks(int):
            count += block.count(b'"question"')
            if count >= SOME:
                break
    except (TextError, *READ_ERRORS):
        return 0
    return min(count, SOME)
