"""Values of a config.json: a file is not trusted, so each is checked before it is used."""

from typing import Any

from bertsmith.errors import FolderError
from bertsmith.files import short_repr

MAX_SIZE = 1 << 24  # of any number in a configuration, against files that name absurd sizes


def require(config_json: dict[str, Any], key: str, expected: Any, path: object) -> None:
    """Refuse any other value of a key than the expected one; the key may be left out."""
    value = config_json.get(key, expected)
    if value != expected:
        raise FolderError(path, f"{key} is {short_repr(value)}", f"Only {short_repr(expected)} can be opened")


def number(value: object, key: str, integer: bool, path: object) -> int | float:
    """A value as a number that is not negative."""
    numeric = isinstance(value, int if integer else int | float) and not isinstance(value, bool)
    if not numeric or not 0 <= value <= MAX_SIZE:  # type: ignore[operator]
        raise FolderError(path, f"{key} is {short_repr(value)}", f"Give a {'whole ' if integer else ''}number")
    return value if integer else float(value)  # type: ignore[return-value,arg-type]
