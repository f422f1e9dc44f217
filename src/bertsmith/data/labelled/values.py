"""What a cell of a labelled table says: a number, yes or no, several labels, or nothing."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

MISSING = {"", "nan", "<na>", "null"}  # as pandas and databases write that nobody has said
YES, NO = {"1", "1.0", "true"}, {"0", "0.0", "false"}


def is_missing(value: Any) -> bool:
    """Whether a label is none."""
    if isinstance(value, str):
        return value.strip().casefold() in MISSING
    return value is None or (isinstance(value, float) and value != value)


def is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def parse_flag(value: Any) -> bool | None:
    """Whether a label is given, of a column of 0 and 1; None where the cell holds anything else."""
    plain = str(value).strip().casefold() if isinstance(value, str | int | float) else ""
    return True if plain in YES else False if plain in NO else None


def split_labels(value: Any, separator: str | None) -> list[Any]:
    """Several labels of one cell: a list, a list that was written as a text, or parts with a mark between them."""
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
