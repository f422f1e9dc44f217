"""The label of a row: a class, a number, several labels, or the number of the right ending."""

import re
from collections.abc import Sequence
from typing import Any

from bertsmith.data.labelled.columns import ColumnPlan
from bertsmith.data.labelled.examples import Kind, Label
from bertsmith.data.labelled.values import is_missing, is_number, parse_flag, split_labels


def parse_label(value: Any, kind: Kind, plan: ColumnPlan, endings: int) -> Label | None:
    """The label in a cell, as the kind of data needs it; None where the cell is empty.

    Raises ValueError where the cell holds no such label, and LookupError where its class is unknown.
    """
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
        number = "abcde".find(name.lower()) if name.isalpha() else int(name) if re.fullmatch("[0-9]{1,3}", name) else -1
        if not 0 <= number < endings:
            raise ValueError(f"has the label {_shown(value)}, which is none of its {endings} endings")
        return str(number)
    if plan.classes and name not in plan.classes:
        if name not in map(str, range(len(plan.classes))):
            raise LookupError(f"has the label {_shown(value)}, which is none of {', '.join(plan.classes)}")
        return plan.classes[int(name)]
    return name


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
