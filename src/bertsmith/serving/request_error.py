"""A request that is refused: its status, and one line that says why."""

from bertsmith.errors import BertsmithError

KINDS = {
    400: "validation",
    401: "authentication",
    404: "not_found",
    405: "method",
    408: "timeout",
    413: "too_large",
    415: "validation",
    422: "validation",
    429: "overloaded",
    500: "internal",
    503: "unavailable",
}


class RequestError(BertsmithError):
    """An answer other than 200, as `place: fact. remedy.`."""

    def __init__(
        self, status: int, location: object, fact: str, remedy: str = "", *, retry_after: int = 0, close: bool = False
    ) -> None:
        super().__init__(location, fact, remedy)
        self.status, self.retry_after, self.close = status, retry_after, close

    @property
    def kind(self) -> str:
        """The type of the error, a word for programs."""
        return KINDS[self.status]
