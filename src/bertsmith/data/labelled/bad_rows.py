"""Bad rows: counted by reason and dropped, or refused at once with file and line."""

from collections import Counter
from typing import Any, Literal

from bertsmith.data.corpus.lines import BAD_LINE_FACTS, SURROGATE
from bertsmith.errors import TextError

MAX_LINE = 1 << 24  # characters of a line, and of a row of CSV
BROKEN_QUOTES, NOT_AN_OBJECT = "rows with broken quotes", "rows that are no JSON object"
UNREADABLE = "rows that cannot be read"
BAD_ROW_FACTS = {
    f"rows with {kind}": fact.format(longest=MAX_LINE) for kind, fact in BAD_LINE_FACTS.items() if "record" not in kind
} | {
    BROKEN_QUOTES: "has a quote that is neither doubled nor closed",
    NOT_AN_OBJECT: "is no JSON object",
    UNREADABLE: "holds a value that cannot be read",
}
BAD_ROW_REMEDY = "Mend the file, or choose to skip what is bad"

REPAIRED = {f"rows with {kind}": kind for kind in ("bad bytes", "NUL characters", "half characters")}

Policy = Literal["skip", "fail"]


class BadRows:
    """The policy for bad rows, and the number of rows dropped for each reason.

    With `repair`, rows of CSV and TSV with bad characters are kept, with others in their place, and counted by kind.
    """

    def __init__(self, policy: Policy, *, repair: bool = False) -> None:
        self.policy, self.repair, self.counts = policy, repair, Counter[str]()

    def keeps(self, fault: str) -> bool:
        """Whether a row with this fault is kept, since it is repaired."""
        if not self.repair or fault not in REPAIRED:
            return False
        self.counts[REPAIRED[fault]] += 1
        return True

    def drop(self, reason: str, location: str, fact: str = "") -> None:
        """Count a bad row, or refuse it."""
        if self.policy == "fail":
            raise TextError(location, fact or BAD_ROW_FACTS[reason], BAD_ROW_REMEDY)
        self.counts[reason] += 1


def count_dropped(count: int, reason: str) -> str:
    """So many rows and why they were dropped: `1 row without text`, `2 rows without text`."""
    if count == 1:
        noun, _, rest = reason.partition(" ")
        reason = f"{noun.removesuffix('s')} {rest.replace('that are', 'that is')}"
    return f"{count:,} {reason}"


def find_fault(value: Any) -> str:
    """The fault of a text, or of one inside a list or a record: a NUL, a lone surrogate, or none (empty)."""
    left = [value]
    while left:
        match left.pop():
            case str(text):
                if "\0" in text:
                    return "rows with NUL characters"
                if not text.isascii() and SURROGATE.search(text):
                    return "rows with half characters"
            case list(inside):
                left += inside
            case dict(inside):
                left += inside.values()
    return ""
