"""Which columns of a labelled table hold the texts and the label: as named by the user, else guessed.

The guess goes by the columns' names, and by their values where no name is known; it is always reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from bertsmith.data.labelled.column_names import (
    CHOICE_COLUMNS,
    CLASS_COLUMNS,
    CONTEXT_COLUMNS,
    CONTEXT_GROUPS,
    ENDING_COLUMNS,
    MULTI_LABEL_COLUMNS,
    NUMBER_COLUMNS,
    PAIR_COLUMNS,
    SCORE_COLUMNS,
    TEXT_COLUMNS,
    TRIPLE_COLUMNS,
    ending_columns,
    find_column,
    match_columns,
    quoted_list,
)
from bertsmith.data.labelled.examples import Kind
from bertsmith.data.labelled.tables import Table
from bertsmith.data.labelled.values import WHOLE, has_decimal_commas, is_missing, is_number, with_decimal_point
from bertsmith.errors import TextError

SEPARATORS = ("|", ";", ",")
ROWS_PER_VALUE = 5  # rows for each value of a column, on average, make it look like a label
NAME_THE_COLUMNS = """Name them with data.texts='["..."]' data.label='...'"""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns that a user has named; None is guessed. Columns without a name go by their number, from 0."""

    texts: tuple[str, ...] | None = None
    label: str | None = None
    separator: str | None = None  # between several labels in one cell; lists in JSON and Parquet need none
    labels: tuple[str, ...] | None = None  # instead of a label: columns of 0 and 1, one for each of several labels


GUESSED_COLUMNS = Columns()


@dataclass(frozen=True)
class ColumnPlan:
    """The columns that are read, and how."""

    texts: tuple[str, ...]
    label: str | None
    context_columns: int = 1  # the first n texts are one context, joined by spaces
    separator: str | None = None
    classes: tuple[str, ...] = ()  # where they are known beforehand
    flags: tuple[str, ...] = ()  # columns of 0 and 1, one for each label
    numeric: bool = False  # the labels of the first rows are numbers, so that 1.0 is the class 1
    decimal_comma: bool = False  # 0,5 is 0.5
    first_ending: int | None = None  # the number of the first ending, 0 or 1; None where the first rows do not show it

    @property
    def all(self) -> tuple[str, ...]:
        """Every column that is read."""
        return (*self.texts, *([self.label] if self.label else []), *self.flags)

    def plain_label(self, value: Any) -> Any:
        """The cell of a label; a number as others write it."""
        if self.decimal_comma:
            return with_decimal_point(value)
        whole = WHOLE.fullmatch(value.strip()) if self.numeric and isinstance(value, str) else None
        return whole[1] if whole else value

    def describe(self, table: Table) -> str:
        """The plan in words, for the user."""
        label = f", label from {quoted_list([self.label])}" if self.label else ", no label"
        label = f", labels from {quoted_list(self.flags)}" if self.flags else label
        separated = f" separated by '{self.separator}'" if self.separator else ""
        separated += " with decimal commas" if self.decimal_comma else ""
        separated += " numbered from 1" if self.first_ending else ""
        return f"texts from {quoted_list(self.texts)}{label}{separated}{table.describe()}"


def plan_columns(table: Table, kind: Kind, columns: Columns) -> ColumnPlan:
    """The columns that were named, and a guess at the others: the label first, then the texts."""
    texts = tuple(map(table.column, columns.texts or ()))
    flags = tuple(map(table.column, columns.labels or ())) if kind == "labels" else ()
    label = None if flags else table.column(columns.label) if columns.label else _guess_label(table, kind, texts)
    free = [name for name in table.columns if name != label and name not in flags]
    max_texts = 3 if kind == "pairs" else 2
    if not texts:
        texts = match_columns(
            [*(TRIPLE_COLUMNS if kind == "pairs" else []), *PAIR_COLUMNS, *((name,) for name in TEXT_COLUMNS)], free
        )
    if not texts:  # no name is known: a column with spaces in its cells is text
        wordy = _text_columns(table, free)
        texts = tuple(wordy if 1 <= len(wordy) <= max_texts else free if len(free) == 1 else ())
    if not texts or (label is None and not flags and kind != "pairs"):
        raise _guess_error(table, "the texts and the label" if not texts else "the label")
    if len(texts) > max_texts:
        remedy = "Contrastive learning takes one, two or three" if kind == "pairs" else "Name one, or two for pairs"
        raise TextError(table.name, f"{len(texts)} columns of text", remedy)
    separator = _separator(table, label, columns) if kind == "labels" else None
    return ColumnPlan(texts, label, separator=separator, flags=flags)


def plan_choices(table: Table, columns: Columns) -> ColumnPlan:
    """The columns of multiple choice: a context, its endings, and the number of the right one."""
    label = table.column(columns.label) if columns.label else None
    label = label or find_column(CHOICE_COLUMNS, table.columns)
    if columns.texts:
        texts, contexts = tuple(map(table.column, columns.texts)), 1
    else:
        free = [name for name in table.columns if name != label]
        endings = ending_columns(free) or [name for name in [find_column(ENDING_COLUMNS, free)] if name]
        context = match_columns([*CONTEXT_GROUPS, *((name,) for name in CONTEXT_COLUMNS)], free)
        if not context or not endings:
            raise _guess_error(table, "a context and its endings")
        texts, contexts = (*context, *endings), len(context)
    if label is None:
        raise _guess_error(table, "the label")
    return ColumnPlan(texts, label, contexts)


def with_numbers(table: Table, plan: ColumnPlan, kind: Kind) -> ColumnPlan:
    """The same plan with how the first rows write numbers."""
    cells = [value for row in table.head if not is_missing(value := row.get(plan.label or ""))]
    commas = kind in ("number", "pairs") and has_decimal_commas(cells)
    return replace(plan, numeric=bool(cells) and all(map(is_number, cells)), decimal_comma=commas)


def has_few_values(table: Table, name: str) -> bool:
    """Whether the values of a column recur, as classes do."""
    values = [str(row.get(name)) for row in table.head]
    return len(values) > 1 and 2 * len(set(values)) <= len(values) and any(value.strip() for value in values)


def _guess_label(table: Table, kind: Kind, texts: Sequence[str]) -> str | None:
    """The column of the label, by its name; else the only one whose values look like labels."""
    free = [name for name in table.columns if name not in texts]
    cells = {name: [row.get(name) for row in table.head] for name in free}
    numbers = [name for name in free if 2 * sum(map(is_number, cells[name])) > len(table.head)]
    numbers += [name for name in free if has_decimal_commas(cells[name])]
    if kind == "pairs":  # a score is optional; a number in the first column counts the rows
        last = free[-1:] if not table.has_header and len(free) > 2 else []
        return find_column((*SCORE_COLUMNS, *last), numbers)
    names = {"number": NUMBER_COLUMNS, "labels": MULTI_LABEL_COLUMNS}.get(kind, CLASS_COLUMNS)
    if named := find_column(names, free):
        return named
    known = texts or match_columns([*PAIR_COLUMNS, *((name,) for name in TEXT_COLUMNS)], free)
    known = known or _text_columns(table, free)
    left = [name for name in free if name not in known]
    left = [name for name in left if not _numbers_rows(table, name)] or left
    if known and len(left) == 1 and (kind != "number" or left[0] in numbers):
        return left[0]
    candidates = left if known else free
    alike = [name for name in candidates if (name in numbers if kind == "number" else has_few_values(table, name))]
    return alike[0] if len(alike) == 1 else None


def _guess_error(table: Table, roles: str) -> TextError:
    if len(table.columns) == 1:
        return TextError(table.name, "has one column, and so no labels", "Give it a file with a column of labels")
    columns = ", ".join(table.columns) + table.describe()
    return TextError(table.name, f"which columns hold {roles} cannot be guessed from {columns}", NAME_THE_COLUMNS)


def _is_wordy(table: Table, name: str) -> bool:
    values = [row.get(name) for row in table.head]
    return all(isinstance(value, str) for value in values) and any(" " in value.strip() for value in values if value)


def _text_columns(table: Table, names: Sequence[str]) -> list[str]:
    """The columns of several words; those of a few values ("very good") only if there are no others."""
    wordy = [name for name in names if _is_wordy(table, name)]
    varied = [name for name in wordy if ROWS_PER_VALUE * len({row.get(name) for row in table.head}) > len(table.head)]
    return varied or wordy


def _numbers_rows(table: Table, name: str) -> bool:
    """Whether a column only counts the rows."""
    values = [row.get(name) for row in table.head]
    if len(values) < 3 or not all(map(is_number, values)):
        return False
    numbers = list(map(float, values))  # type: ignore[arg-type]
    return all(following == number + 1 for number, following in pairwise(numbers))


def _separator(table: Table, label: str | None, columns: Columns) -> str | None:
    cells = [value for row in table.head if isinstance(value := row.get(label or ""), str)]
    return columns.separator or next((mark for mark in SEPARATORS if any(mark in cell for cell in cells)), None)
