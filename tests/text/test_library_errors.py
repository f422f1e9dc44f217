"""Errors of the libraries become one line; our own errors and bugs pass."""

import pytest

from bertsmith.errors import FolderError, TextError
from bertsmith.text.library_errors import wrap_library_errors


class PanicException(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PanicException("index out of bounds\nnote: run with RUST_BACKTRACE"), "index out of bounds"),
        (Exception("bad vocabulary"), "bad vocabulary"),
        (TypeError(), "no reason given"),
    ],
)
def test_an_error_of_a_library_becomes_one_line(error: BaseException, reason: str) -> None:
    with pytest.raises(FolderError) as caught, wrap_library_errors("here", FolderError, "Do this"):
        raise error
    assert str(caught.value) == f"here: the library gave up ({reason}). Do this."


@pytest.mark.parametrize("error", [KeyboardInterrupt(), KeyError("x"), TextError("a", "b"), SystemExit(1)])
def test_other_exceptions_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, wrap_library_errors("here", FolderError):
        raise error
    assert caught.value is error
