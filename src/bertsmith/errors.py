"""What can go wrong through no fault of the code: one line a person can act on."""

from collections.abc import Iterable
from difflib import get_close_matches


class BertsmithError(Exception):
    """A mistake or a mishap, told as `place: fact. remedy.`; users see this line and no traceback."""

    def __init__(self, place: object, fact: str, remedy: str = "") -> None:
        self.place, self.fact, self.remedy = str(place), fact.rstrip("."), remedy.rstrip(".?")
        question = "?" if remedy.endswith("?") else "."
        self.parts = (str(place), fact, remedy)
        super().__init__(f"{self.place}: {self.fact}." + (f" {self.remedy}{question}" if remedy else ""))

    def __reduce__(self) -> tuple[type["BertsmithError"], tuple[str, str, str]]:
        """How it comes back from another process: made again from what it was made of."""
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
    """A run that was asked to stop, and has saved what it was at."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The remedy for a misspelt word: the nearest known one, or all of them."""
    choices = sorted(known)
    close = get_close_matches(word, choices, n=1)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(choices)}."
