"""The overview of a model: what it has read, how well it guesses, what it is for, and the next commands."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from bertsmith.insight.page import render


@dataclass(frozen=True, kw_only=True)
class Overview:
    """What a person wants to know of a new model, in whole sentences; the first part of the report."""

    read: str  # the text that it was trained on
    guesses: Sequence[str]  # how often it is right, beside plain yardsticks
    accuracies: Sequence[tuple[str, float]] = ()  # of the yardsticks and, last, of the model
    good_for: Sequence[str] = ()
    limits: Sequence[str] = ()  # what it is not for
    more_time: str = ""  # what twice the time would bring
    commands: Sequence[tuple[str, str]] = ()  # what each does, and the command

    @property
    def parts(self) -> dict[str, Sequence[str]]:
        """The sentences by heading."""
        parts = {
            "What it has read": [self.read],
            "How well it guesses": self.guesses,
            "What it is for": self.good_for,
            "What it is not for": self.limits,
            "With twice the time": [self.more_time] if self.more_time else [],
        }
        return {heading: lines for heading, lines in parts.items() if lines}

    def lines(self) -> Iterator[str]:
        """The overview as lines for the terminal."""
        for heading, sentences in self.parts.items():
            yield heading
            yield from (f"  {sentence}" for sentence in sentences)
        if self.commands:
            yield "What to do next"
            longest = max(len(purpose) for purpose, _ in self.commands)
            yield from (f"  {purpose:<{longest}}  {command}" for purpose, command in self.commands)


def html(overview: Overview) -> Markup:
    """The overview as HTML."""
    return render("overview.html", overview=overview)
