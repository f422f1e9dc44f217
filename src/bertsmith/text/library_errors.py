"""Errors of the libraries written in Rust, panics included, as one of our own."""

from collections.abc import Iterator
from contextlib import contextmanager

from bertsmith.errors import BertsmithError


@contextmanager
def wrap_library_errors(location: object, kind: type[BertsmithError], remedy: str = "") -> Iterator[None]:
    """Turn the library's errors into one line of the given kind; everything else goes on as it is."""
    try:
        yield
    except BaseException as error:
        # A panic is no Exception, and has no class to import; most of the library's own errors are bare.
        known = type(error) in (Exception, OverflowError, TypeError, UnicodeEncodeError)
        if not known and type(error).__name__ != "PanicException":
            raise
        lines = str(error).splitlines() or ["no reason given"]
        raise kind(location, f"the library gave up ({lines[0]})", remedy) from None
