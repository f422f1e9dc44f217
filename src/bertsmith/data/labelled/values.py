"""Values of cells in labelled tables: missing, a number, a flag (0 or 1), or several labels."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

MISSING = {"", "nan", "<na>", "null"}  # as pandas and databases write a missing value
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
