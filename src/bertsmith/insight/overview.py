"""The overview of a model: what it has read, how well it guesses, what it is for, and the next commands."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape


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


def html(overview: Overview) -> str:
    """The overview as HTML; whatever comes from outside is escaped."""
    rows = []
    for heading, sentences in overview.parts.items():
        body = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
        bars = _bars(overview.accuracies) if sentences is overview.guesses else ""
        rows.append(f"<tr><th scope='row'>{escape(heading)}</th><td>{body}{bars}</td></tr>")
    commands = "".join(f"<h3>{escape(purpose)}</h3><pre>{escape(line)}</pre>" for purpose, line in overview.commands)
    if commands:
        rows.append(f"<tr><th scope='row'>What to do next</th><td>{commands}</td></tr>")
    return f'<table class="overview">{"".join(rows)}</table>'


def _bars(accuracies: Sequence[tuple[str, float]]) -> str:
    """A bar for each yardstick, and for the model in another colour; a full bar is always right."""
    rows = []
    for number, (name, share) in enumerate(accuracies, 1):
        mark = " right" if number == len(accuracies) else ""
        bar = f'<i style="width:{100 * min(max(share, 0.0), 1.0):.1f}%"></i>'
        rows.append(f'<p class="guess{mark}"><span>{escape(name)}</span><span>{share:.1%}</span>{bar}</p>')
    return "".join(rows)
