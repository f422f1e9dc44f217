"""The task of a labelled file, guessed from its values; the guess is always reported, with the option that changes it.

A number for each text is regression, one of a few values is classification, a list of labels or a column of 0 and 1 for
each label is multi-label classification, two texts without a label are pairs for sentence embeddings.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from bertsmith.data.corpus.lines import READ_ERRORS
from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled import conll, squad
from bertsmith.data.labelled.bad_rows import BadRows
from bertsmith.data.labelled.column_names import (
    CHOICE_COLUMNS,
    COLUMN_NAMES,
    CONTEXT_COLUMNS,
    ENDING_COLUMNS,
    PAIR_COLUMNS,
    TRIPLE_COLUMNS,
    ending_columns,
    find_column,
    is_label,
    letter_columns,
    match_columns,
    quoted_list,
)
from bertsmith.data.labelled.columns import GUESSED_COLUMNS, SEPARATORS, Columns, has_few_values, plan_columns
from bertsmith.data.labelled.lines import read_lines
from bertsmith.data.labelled.sources import find_sources
from bertsmith.data.labelled.tables import Table, open_table
from bertsmith.data.labelled.values import (
    has_decimal_commas,
    is_infinite,
    is_missing,
    is_number,
    list_of_endings,
    parse_flag,
    split_labels,
    with_decimal_point,
)
from bertsmith.errors import TextError
from bertsmith.terminal import count_of

Task = Literal["classify", "tag", "answer", "choose", "embed"]
Problem = Literal["single_label", "regression", "multi_label"]

MAX_ROWS = 4096  # rows that are looked at
MAX_CLASSES = 20  # different whole numbers that are classes; more are only if they are consecutive from 0 or 1
MAX_DISTINCT_LABELS = 0.8  # share of different values among the rows above which a column holds no classes
MIN_ROWS = 8  # rows from which that share means something
MAX_NAME = 40  # characters of a label's name
OF_QUESTIONS = "Task: question answering, since there are questions and passages"
OF_COLUMNS = "Task: token classification (NER, part-of-speech tags), since a line is a word and its tags"


@dataclass(frozen=True, kw_only=True)
class Guess:
    """The task of a file, judged by its first rows."""

    task: Task
    problem: Problem = "single_label"  # of `classify`
    labels: tuple[str, ...] = ()  # columns of 0 and 1
    separator: str | None = None  # between the labels in a cell
    message: str = ""  # the guess in words; empty where the task is given
    rows: int = 0  # number of rows, at most `MAX_ROWS`; 0 where they cannot be counted


def guess(path: Path, columns: Columns = GUESSED_COLUMNS, task: str | None = None) -> Guess:
    """The task of a file, unless one is named; and of classification, which problem.

    Columns that cannot be guessed are refused.
    """
    by_suffix, table, rows = guess_by_suffix(path), None, list[dict[str, Any]]()
    try:
        files = find_sources(path)
        if by_suffix == "tag":
            return Guess(task="tag", rows=_count_sentences(files), message=OF_COLUMNS * (task is None))
        table = open_table(files[0], COLUMN_NAMES)
        rows = list(islice(_rows(table, files[1:]), MAX_ROWS))
    except TextError:  # the reader reports it
        pass
    if by_suffix == "answer" and (table is None or "data" in table.columns or squad.has_questions(table.columns, rows)):
        return Guess(task="answer", rows=_count_questions(path), message=OF_QUESTIONS * (task is None))
    if table is None or (task or "classify") != "classify":
        return Guess(task=by_suffix, rows=len(rows))
    return replace(_of_table(table, rows, columns, task), rows=len(rows))


def count_rows(path: Path) -> int:
    """The number of rows of a file, at most `MAX_ROWS`; 0 where they cannot be counted."""
    return guess(path, task="any").rows


def guess_by_suffix(path: Path) -> Task:
    """The task by the file's ending: JSON is SQuAD's, tables are classification, the rest is CoNLL's columns."""
    endings = [ending for ending in path.suffixes if ending not in (".gz", ".xz", ".zst")]
    last = endings[-1].lower() if endings else ""
    if last == ".json":
        return "answer"
    return "classify" if last in (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet") else "tag"


def _rows(table: Table, others: Sequence[Source]) -> Iterator[dict[str, Any]]:
    """The rows of a table, and of the other shards of its set: where one shard has one class, another has more."""
    for part in chain([table], (open_table(file, COLUMN_NAMES) for file in others)):
        yield from (row for _, row in part.rows(part.columns, BadRows("skip")))


def _of_table(table: Table, rows: list[dict[str, Any]], columns: Columns, task: str | None) -> Guess:
    named = columns.texts or columns.label
    if task is None and not named:
        if squad.has_questions(table.columns, rows):
            return Guess(task="answer", message=OF_QUESTIONS)
        if _has_tags(table, rows):
            return Guess(task="tag", message="Task: token classification, since there are lists of words and of tags")
        if _has_choices(table, rows):
            return Guess(task="choose", message="Task: multiple choice, since there are several endings")
    if columns.label is None and columns.texts is None and (flags := _flag_columns(table, rows)):
        shown = ", ".join(flags[:4]) + (", ..." if len(flags) > 4 else "")
        message = f"Task: multi-label classification, a column of 0 and 1 for each of {len(flags)} labels ({shown})"
        message += "; data.label='...' takes one column"
        return Guess(task="classify", problem="multi_label", labels=flags, message=message)
    if task is None and columns.label is None and (pair := _pair(table, rows, columns)):
        message = f"Task: sentence embeddings from {quoted_list(pair)}, since there is no label"
        return Guess(task="embed", message=f"{message}; data.label='...' and --task text-classification change it")
    if columns.labels:
        return Guess(task="classify")
    plan = plan_columns(table, "classify", columns)
    assert plan.label is not None
    values = [value for row in rows if not is_missing(value := row.get(plan.label))]
    only = [name for name in table.columns if name not in plan.texts] == [plan.label]
    only = only and not is_label(plan.label) and columns.label is None
    return _of_values(table, f"'{plan.label}'" + (", the only column left" if only else ""), values, columns)


def _of_values(table: Table, label: str, values: list[Any], columns: Columns) -> Guess:
    """The problem by the values of the label's column."""
    if not values:
        return Guess(task="classify")
    commas = columns.separator is None and has_decimal_commas(values)
    cells = [cell for cell in map(with_decimal_point, values) if is_number(cell)] if commas else values
    numeric = [cell for cell in cells if not is_infinite(cell)]  # the reader drops infinite ones
    if numeric and all(map(_is_numeric, numeric)):
        numbers = list(map(float, numeric))
        if not _are_classes(numbers):
            spread = f"numbers from {min(numbers):g} to {max(numbers):g} in {label}"
            spread += ", with decimal commas" * commas
            message = f"Task: regression, {spread}; task.problem=single_label makes a class of each number"
            return Guess(task="classify", problem="regression", message=message)
    elif separator := _find_separator(values, columns.separator):
        labels = {part for value in values for part in split_labels(value, separator)}
        separated = "" if separator == LIST_CELLS else f" separated by '{separator}'"
        message = f"Task: multi-label classification, {count_of(len(labels), 'label')}{separated} in {label}"
        message += "; task.problem=single_label takes each value for one class"
        mark = None if separator == LIST_CELLS else separator
        return Guess(task="classify", problem="multi_label", separator=mark, message=message)
    number = all(map(_is_numeric, values))
    plain = (float(value) if number else str(value).strip() for value in values if not isinstance(value, list | dict))
    classes = set[Any](plain)  # 1 and 1.0 are one
    if len(values) >= MIN_ROWS and len(classes) > MAX_DISTINCT_LABELS * len(values):
        fact = f"{len(classes):,} different values in {len(values):,} rows of {label}: nearly each row is its own class"
        remedy = "Name the label's column with data.label='...', or learn from pairs with --task sentence-similarity"
        raise TextError(table.name, fact, remedy)
    message = f"Task: classification, {count_of(len(classes), 'class')} in {label}"
    other = "regression makes it regression" if number else "multi_label makes it multi-label"
    return Guess(task="classify", message=f"{message}; task.problem={other}")


LIST_CELLS = "[]"  # stands for a separator where cells are lists


def _find_separator(values: Sequence[Any], separator: str | None) -> str | None:
    """The separator of several labels in a cell: a mark between parts that recur in other cells; None for one label."""
    if any(isinstance(value, list) for value in values):
        return LIST_CELLS
    texts = [value for value in values if isinstance(value, str)]
    if texts and all(text.strip()[:1] == "[" and text.strip()[-1:] == "]" for text in texts):
        return LIST_CELLS
    for mark in (separator,) if separator else SEPARATORS:
        labels = {text: split_labels(text, mark) for text in set(texts)}
        several = [parts for parts in labels.values() if len(parts) > 1]
        if not several or any(len(part) > MAX_NAME for parts in several for part in parts):
            continue
        # "Arts, crafts" is one class; in "film,love" both parts occur in other cells, too.
        cells = Counter(part for parts in labels.values() for part in set(parts))
        flat = [part for parts in several for part in parts]
        if separator or 2 * sum(cells[part] > 1 for part in flat) > len(flat):
            return mark
    return None


def _are_classes(numbers: list[float]) -> bool:
    """Whether numbers are classes: a few whole ones, or many that are consecutive from 0 or 1 and recur."""
    if not all(number.is_integer() for number in numbers):
        return False
    distinct = set(numbers)
    if len(numbers) >= MIN_ROWS and len(distinct) > MAX_DISTINCT_LABELS * len(numbers):
        return False
    consecutive = min(distinct) in (0, 1) and max(distinct) < 1.2 * len(distinct) + 1
    return len(distinct) <= MAX_CLASSES or (consecutive and len(numbers) >= 5 * len(distinct))


def _flag_columns(table: Table, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """The columns of 0 and 1, where there are two or more and no column has the name of a label."""
    if len(rows) < 2 or any(is_label(name) for name in table.columns):
        return ()
    flags = tuple(name for name in table.columns if _is_binary([row.get(name) for row in rows]))
    return flags if len(flags) > 1 and len(flags) < len(table.columns) else ()


def _is_binary(values: list[Any]) -> bool:
    return all(parse_flag(value) is not None for value in values)


def _pair(table: Table, rows: list[dict[str, Any]], columns: Columns) -> tuple[str, ...]:
    """The columns of a pair of texts, where no column could be their label."""
    texts = columns.texts or match_columns([*TRIPLE_COLUMNS, *PAIR_COLUMNS], table.columns)
    if len(texts) < 2:
        return ()
    free = [name for name in table.columns if name not in texts]
    if any(is_label(name) or has_few_values(table, name) for name in free):
        return ()
    last = [str(row.get(texts[-1])) for row in rows]
    if is_label(texts[-1]) and 2 * len(set(last)) <= len(last):
        return ()  # answers such as yes and no are classes
    return tuple(texts)


def _has_choices(table: Table, rows: list[dict[str, Any]]) -> bool:
    """Whether a table is multiple choice: columns of endings, lists of them, or A, B, C with letters as answers."""
    context, label = find_column(CONTEXT_COLUMNS, table.columns), find_column(CHOICE_COLUMNS, table.columns)
    endings, letters = ending_columns(table.columns), letter_columns(table.columns)
    if endings and endings != letters:
        return len(endings) > 1
    if not context or not label or not rows:
        return False
    if letters:
        known = {name.casefold() for name in letters}
        return all(is_missing(row[label]) or str(row[label]).strip().casefold() in known for row in rows)
    lists = find_column(ENDING_COLUMNS, [name for name in table.columns if name != label])
    return lists is not None and all(len(list_of_endings(row.get(lists))) > 1 for row in rows)


def _has_tags(table: Table, rows: list[dict[str, Any]]) -> bool:
    lists = [name for name in table.columns if rows and all(isinstance(row.get(name), list) for row in rows)]
    names = {name.casefold() for name in lists}
    return bool(names & {*conll.WORD_COLUMNS}) and bool(names & {*conll.TAG_COLUMNS})


def _is_numeric(value: Any) -> bool:
    return not isinstance(value, list | dict) and is_number(value)


def _count_sentences(files: Sequence[Source]) -> int:
    """The number of sentences in CoNLL files, at most `MAX_ROWS`, counted by the blank lines between them."""
    count = 0
    for file in files:
        inside = False
        for _, line, _ in read_lines(file):
            if line.strip():
                inside = inside or not line.startswith(conll.DOCSTART)  # which only begins a document
            elif inside:
                count, inside = count + 1, False
                if count >= MAX_ROWS:
                    return count
        count += inside
    return count


def _count_questions(path: Path) -> int:
    """The number of questions in JSON files, at most `MAX_ROWS`, counted by their key."""
    try:
        count = 0
        for block in chain.from_iterable(file.blocks(int) for file in find_sources(path)):
            count += block.count(b'"question"')
            if count >= MAX_ROWS:
                break
    except (TextError, *READ_ERRORS):
        return 0
    return min(count, MAX_ROWS)
