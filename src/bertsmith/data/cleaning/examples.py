"""Examples for the page: a few texts that each rule drops, and a few that it keeps."""

from collections.abc import Iterable
from typing import Any

from bertsmith.random_bits import mix

EXCERPT = 300  # characters of a text that are shown
SHOWN = 3  # examples of each kind
CANDIDATES = 12  # kept examples of a rule that are remembered: some of them are dropped later by another rule

Example = dict[str, Any]  # `key` (the smallest are shown), `number` of the document, `location`, `text`, `note`


def excerpt(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " / ".join(text[: 2 * EXCERPT].split("\n"))
    return line if len(line) <= EXCERPT else line[:EXCERPT].rstrip() + " …"


def random_key(number: int) -> int:
    """The rank of a document among the examples: the same in every run, and unrelated to the order of the text."""
    return int(mix(number)) >> 11


class Examples:
    """For each rule, the examples with the smallest keys, whatever the order in which they come."""

    def __init__(self, found: dict[str, list[Example]] | None = None, most: int = SHOWN) -> None:
        self.found, self.most = found or {}, most

    def wants(self, rule: str, key: float) -> bool:
        """Whether an example with this key would be among those shown."""
        have = self.found.get(rule, [])
        return len(have) < self.most or key < have[-1]["key"]

    def add(self, rule: str, example: Example) -> None:
        if self.wants(rule, example["key"]):
            have = self.found.setdefault(rule, [])
            have.append(example)
            have.sort(key=lambda one: (one["key"], one["number"]))
            del have[self.most :]

    def merge(self, others: dict[str, list[Example]]) -> None:
        for rule, examples in others.items():
            self.add_all(rule, examples)

    def add_all(self, rule: str, examples: Iterable[Example]) -> None:
        for example in examples:
            self.add(rule, example)
