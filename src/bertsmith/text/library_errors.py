"""Errors and panics of the libraries written in Rust, as errors of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from bertsmith.errors import BertsmithError


@contextmanager
def wrap_library_errors(location: object, kind: type[BertsmithError], remedy: str = "") -> Iterator[None]:
    """Turn the library's errors into one line of the given kind; all other exceptions pass."""
    try:
        yield
    except BaseException as error:
        # A panic is a BaseException whose class cannot be imported; most of the library's errors are plain Exceptions.
        known = type(error) in (Exception, OverflowError, TypeError, UnicodeEncodeError)
        if not known and type(error).__name__ != "PanicException":
            raise
        lines = str(error).splitlines() or ["no reason given"]
        raise kind(location, f"the library gave up ({lines[0]})", remedy) from None
