"""The label of a row: a class, a number, several labels, or the number of the right ending."""

import re
from collections.abc import Iterable, Sequence
from string import ascii_lowercase
from typing import Any

from bertsmith.data.labelled.columns import ColumnPlan
from bertsmith.data.labelled.examples import Kind, Label
from bertsmith.data.labelled.values import is_missing, is_number, parse_flag, split_labels

NUMBER = re.compile("[0-9]{1,3}")


class NumberingError(Exception):
    """The label of a row numbers the endings in another way than the first rows did."""


def parse_label(value: Any, kind: Kind, plan: ColumnPlan, endings: int) -> Label | None:
    """The label in a cell, as the kind of data needs it; None where the cell is empty.

    Raises ValueError where the cell holds no such label, LookupError where its class is unknown, and NumberingError
    where endings that were counted from 0 are counted from 1, or the other way round.
    """
    value = plan.plain_label(value)
    if kind == "labels":
        if is_missing(value) and value != "":  # an empty cell says that none of the labels applies
            return None
        names = [name for name in map(_class_name, split_labels(value, plan.separator)) if name is not None]
        return tuple(dict.fromkeys(names))
    if kind in ("number", "pairs"):
        if is_missing(value):
            return None
        if not isinstance(value, str | int | float) or not is_number(value):
            raise ValueError(f"has the label {_shown(value)}, which is no number")
        return float(value)
    name = _class_name(value)
    if name is None or (name == "-" and (plan.label or "").casefold() == "gold_label"):  # the annotators disagreed
        return None
    if kind == "choose":
        return str(_ending_number(value, name, plan, endings))
    if plan.classes and name not in plan.classes:
        if name not in map(str, range(len(plan.classes))):
            raise LookupError(f"has the label {_shown(value)}, which is none of {', '.join(plan.classes)}")
        return plan.classes[int(name)]
    return name


def counted_from(labels: Iterable[tuple[Any, int]]) -> int | None:
    """Whether multiple choice numbers the endings from 0 or from 1, by the labels of rows with their endings.

    From 1 it is where no label is 0 and one is the number of the endings; None where the rows do not show it.
    """
    named = [(_class_name(value) if isinstance(value, str | int | float) else None, count) for value, count in labels]
    numbers = [(int(name), count) for name, count in named if name is not None and NUMBER.fullmatch(name)]
    if any(number == 0 for number, _ in numbers):
        return 0
    return 1 if any(number == count for number, count in numbers) else None


def _ending_number(value: Any, name: str, plan: ColumnPlan, endings: int) -> int:
    """The number of the right ending, from 0, of a letter or a number."""
    if NUMBER.fullmatch(name):
        first = plan.first_ending or 0
        number = int(name) - first
        if (first and number < 0) or (plan.first_ending is None and number == endings):
            fact = f"has the label {_shown(value)}, and the first rows number their endings from {first}"
            raise NumberingError(fact)
    else:
        number = ascii_lowercase.find(name.lower()) if len(name) == 1 else -1
    if not 0 <= number < endings:
        raise ValueError(f"has the label {_shown(value)}, which is none of its {endings} endings")
    return number


def labels_from_flags(values: list[Any], names: Sequence[str]) -> tuple[str, ...] | None:
    """Multi-hot columns: the labels whose cells are 1; None where all cells are empty."""
    if all(map(is_missing, values)):
        return None
    flags = [parse_flag(value) for value in values]
    if None in flags:
        raise ValueError(f"has {_shown(values[flags.index(None)])} in a column of 0 and 1")
    return tuple(name for name, flag in zip(names, flags, strict=True) if flag)


def _class_name(value: Any) -> str | None:
    """The name of a class. Numbers and booleans are names too; pandas writes 1 as 1.0 in a column with gaps."""
    if is_missing(value):
        return None
    if isinstance(value, float):
        value = int(value) if value.is_integer() else value
    if not isinstance(value, str | int | float):
        raise ValueError(f"has the label {_shown(value)}, which names no class")
    return str(value).strip()


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
