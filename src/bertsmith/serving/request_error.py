"""A request that is refused: its status, and one line that says why."""

from collections.abc import Sequence

from bertsmith.errors import BertsmithError
from bertsmith.terminal import escape_control

KINDS = {
    400: "validation",
    401: "authentication",
    403: "origin",
    404: "not_found",
    405: "method",
    408: "timeout",
    413: "too_large",
    415: "media_type",
    422: "validation",
    429: "overloaded",
    500: "internal",
    503: "unavailable",
}


MAX_PART = 200  # characters of each part of a line that comes from elsewhere


class RequestError(BertsmithError):
    """An answer other than 200, as `place: fact. remedy.`."""

    def __init__(
        self,
        status: int,
        location: object,
        fact: str,
        remedy: str = "",
        *,
        retry_after: int = 0,
        close: bool = False,
        allow: Sequence[str] = (),
    ) -> None:
        super().__init__(*map(_plain, (str(location), fact, remedy)))  # they may quote the request
        self.status, self.retry_after, self.close = status, retry_after, close
        self.allow = allow  # the methods that a route answers, where it does not answer this one

    @classmethod
    def of(cls, parts: Sequence[str]) -> "RequestError":
        """An error of the library, which the client can mend. Its parts may quote a text: they are shortened."""
        return cls(422, *(part[:MAX_PART] for part in parts))

    @property
    def kind(self) -> str:
        """The type of the error, a word for programs."""
        return KINDS[self.status]


def _plain(part: str) -> str:
    """On one line, without control characters."""
    return escape_control(" ".join(part.split()))
