"""Errors that are not bugs, each one line that the user can act on."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from pathlib import PurePath

MIN_SIMILARITY = 0.65  # similarity of two words above which one is taken for a misspelling of the other


class BertsmithError(Exception):
    """An error that reads `place: fact. remedy.`; users see this line and no traceback.

    >>> try:
    ...     bertsmith.load("nowhere")
    ... except bertsmith.BertsmithError as error:
    ...     print(error)
    nowhere...
    """

    def __init__(self, location: object, fact: str, remedy: str = "") -> None:
        self.location, self.fact, self.remedy = str(location), fact.rstrip("."), remedy.rstrip(".?")
        question = "?" if remedy.endswith("?") else "."
        self.parts = (str(location), fact, remedy)
        super().__init__(f"{self.location}: {self.fact}." + (f" {self.remedy}{question}" if remedy else ""))

    def __reduce__(self) -> tuple[type["BertsmithError"], tuple[str, str, str]]:
        """Pickled by its parts, so that it survives the way from another process."""
        return type(self), self.parts


class RecipeError(BertsmithError):
    """A recipe, an override or an option that cannot be understood."""


class TextError(BertsmithError):
    """Text that cannot be read, or a corpus that cannot be used."""


class FolderError(BertsmithError):
    """A model, data or run folder that is missing, broken, or not what it says."""


class RunError(BertsmithError):
    """A run that cannot go on: a full disk, a second run in the same folder, a loss that is not a number."""


class StopError(RunError):
    """A run that was asked to stop, and has saved a checkpoint."""


def suggest(word: str, known: Iterable[str]) -> str:
    """The remedy for a misspelt word: the nearest known one, or all of them."""
    choices = sorted(known)
    closest = max(choices, key=lambda choice: _similarity(word, choice), default="")
    near = _similarity(word, closest) >= MIN_SIMILARITY
    return f"Did you mean '{closest}'?" if near else f"Known: {', '.join(choices)}."


def _similarity(word: str, other: str) -> float:
    """The share of characters that two words have in common, in order; a common file ending is not counted."""
    ending = PurePath(word).suffix
    if ending and other.endswith(ending) and other != ending:
        word, other = word.removesuffix(ending), other.removesuffix(ending)
    return SequenceMatcher(None, word, other).ratio()
