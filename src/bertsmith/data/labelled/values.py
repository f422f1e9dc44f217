"""Values of cells in labelled tables: missing, a number, a flag (0 or 1), or several labels."""

import re
from collections.abc import Sequence
from math import isfinite, isinf
from typing import Any

MISSING = {"", "nan", "<na>", "null"}  # as pandas and databases write a missing value
WHOLE = re.compile(r"(-?\d+)\.0")  # as pandas writes a whole number in a column with gaps
DECIMAL_COMMA, THOUSANDS = re.compile(r"[-+]?\d+,\d+"), re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")
NEARLY_ALL = 0.9  # share of the cells
TRUE, FALSE = {"1", "1.0", "true"}, {"0", "0.0", "false"}


def is_missing(value: Any) -> bool:
    """Whether a cell holds no label."""
    if isinstance(value, str):
        return value.strip().casefold() in MISSING
    return value is None or (isinstance(value, float) and value != value)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, or its text."""
    try:
        return not isinstance(value, bool) and isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def is_infinite(value: Any) -> bool:
    """Whether a value is an infinite number, or its text: inf, or 1e400."""
    try:
        return not isinstance(value, bool) and isinf(float(value))
    except OverflowError:
        return True
    except (TypeError, ValueError):
        return False


def has_decimal_commas(values: Sequence[Any]) -> bool:
    """Whether a column writes 0,5 for 0.5: most cells have one comma, and nearly all are numbers.

    1,234 may be a thousand: one cell at least must be none.
    """
    cells = [value.strip() if isinstance(value, str) else value for value in values if not is_missing(value)]
    commas = [cell for cell in cells if isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell)]
    numbers = len(commas) + sum(map(is_number, cells))
    most = 2 * len(commas) > len(cells) and numbers >= NEARLY_ALL * len(cells)
    return most and not all(map(THOUSANDS.fullmatch, commas))


def with_decimal_point(value: Any) -> Any:
    """The cell of a column with decimal commas as others write it."""
    return value.replace(",", ".") if isinstance(value, str) else value


def parse_flag(value: Any) -> bool | None:
    """The flag in a cell of a column of 0 and 1; None where the cell holds anything else."""
    plain = str(value).strip().casefold() if isinstance(value, str | int | float) else ""
    return True if plain in TRUE else False if plain in FALSE else None


def split_labels(value: Any, separator: str | None) -> list[Any]:
    """The labels in one cell: a list, a list written as text, or parts with a separator between them."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return [value]
    text = value.strip()
    if text[:1] == "[" and text[-1:] == "]":
        return _unquoted(text[1:-1].split(","))
    return _unquoted(text.split(separator)) if separator else [text]


def _unquoted(parts: Sequence[str]) -> list[str]:
    bare = (part.strip() for part in parts)
    return [part[1:-1] if len(part) > 1 and part[0] == part[-1] and part[0] in "\"'" else part for part in bare if part]


def list_of_endings(value: Any) -> list[Any]:
    """The texts in a list, or in a record with a list named `text`; none in another cell."""
    inside = value.get("text") if isinstance(value, dict) else value
    return inside if isinstance(inside, list) else []
