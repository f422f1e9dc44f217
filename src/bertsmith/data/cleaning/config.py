"""The settings of a cleaning."""

from dataclasses import dataclass
from typing import Any

from bertsmith.data.cleaning.rules import RULES
from bertsmith.errors import RecipeError, suggest

LANGUAGE, SHORT, NEAR_DUPLICATES = "language", "too-short", "near-duplicates"
REPEATED, CONTAMINATION, NOTICES = "repeated-lines", "contamination", "notices"
PERSONAL = "personal"
# Every reason for which text is dropped, with a sentence of what it drops; documents by the first reason that holds.
REASONS = {
    **{rule.name: rule.what for rule in RULES},
    SHORT: "fewer than 10 words, where most documents of running text have 100 or more",
    LANGUAGE: "another script, or another language, than at least a tenth of the text has",
    NEAR_DUPLICATES: "nearly the same 5-grams of words as an earlier document, which is kept",
    REPEATED: "lines of 5 words or more that occur in 10 documents; in files without blank lines, lines of 8 words or "
    "more that occurred before; the first one is kept",
    NOTICES: "short lines of web pages about cookies, JavaScript, terms of use and copyright",
    CONTAMINATION: "lines that share 13 words in a row, or a whole text of 8 to 12 words, with an evaluation file",
}


@dataclass(frozen=True, kw_only=True)
class CleaningConfig:
    """What is cleaned, and how strictly."""

    similarity: float = 0.75  # Jaccard similarity of the 5-grams of two documents from which one is a near-duplicate
    skip: tuple[str, ...] = ()  # rules that are not applied
    personal: bool = False  # replace e-mail, IP and street addresses
    decontaminate: tuple[str, ...] = ()  # evaluation files whose texts are removed

    def __post_init__(self) -> None:
        if not 0 < self.similarity <= 1:
            raise RecipeError("similarity", f"{self.similarity} is not a share", "Give a number such as 0.75")
        for name in self.skip:
            if name not in REASONS:
                raise RecipeError("skip", f"unknown rule '{name}'", suggest(name, REASONS))

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "CleaningConfig":
        """The settings as they were written to a JSON file."""
        settings: dict[str, Any] = record | {key: tuple(record[key]) for key in ("skip", "decontaminate")}
        return cls(**settings)

    def applies(self, reason: str) -> bool:
        return reason not in self.skip
