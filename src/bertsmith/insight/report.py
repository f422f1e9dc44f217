"""The report of a run: one page that loads nothing, with learning curves, examples, data and machine."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bertsmith.insight import overview
from bertsmith.insight.charts import Series, chart, format_percent, is_number, points_of
from bertsmith.insight.overview import Overview
from bertsmith.insight.page import render

MASKS = r"\[MASK\]|<mask>"
LOG_SCALE_RATIO = 30  # a loss that falls to a thirtieth is read better by orders of magnitude
TERM_LABELS = {
    "masked": "masked words",
    "next_token": "next tokens",
    "spans": "masked spans",
    "left_to_right": "next words",
    "pixels": "pixels of masked patches",
}
UNIGRAM = "unigram baseline (word frequency)"
BASELINES = {"pixels": "mean of each patch"}
AUXILIARY_LABELS = {  # of a second loss
    "next_token": "next tokens",
    "nsp": "next sentence",
    "sop": "sentence order",
    "replaced": "replaced-token detection",
    "guessed": "original words",
    "right_to_left": "previous words",
}


@dataclass(frozen=True)
class ClozeExample:
    """A cloze sentence, its masked word, and the top predictions before and after training."""

    text: str  # with [MASK] or <mask>
    truth: str
    before: Sequence[tuple[str, float]]  # words and their probabilities, best first
    after: Sequence[tuple[str, float]]

    @property
    def parts(self) -> list[str]:
        """The text around its masks."""
        return re.split(MASKS, self.text)

    @property
    def highest(self) -> float:
        """The highest probability, which is a full bar both before and after; never zero."""
        return max((probability for _, probability in [*self.before, *self.after]), default=1.0) or 1.0

    def is_truth(self, word: str) -> bool:
        return word.strip().casefold() == self.truth.strip().casefold()


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The contents of the report, in plain values."""

    title: str
    start: str = ""  # the model folder that was continued; empty: randomly initialised
    verdict: str = ""  # one sentence: whether the model has learnt
    overview: Overview | None = None  # what a person wants to know first
    reasons: Sequence[str] = ()  # why `make` chose these settings
    records: Sequence[Mapping[str, Any]] = ()  # the lines of log.jsonl
    figures: Mapping[str, str] = field(default_factory=dict)  # name of a metric: its value
    examples: Sequence[ClozeExample] = ()
    generations: Sequence[tuple[str, str]] = ()  # prompts and continuations
    visualisations: Sequence[tuple[str, Markup, str]] = ()  # heading, HTML, and what the picture shows
    data: Mapping[str, str] = field(default_factory=dict)
    recipe: str = ""  # TOML
    machine: Mapping[str, str] = field(default_factory=dict)
    baseline: float | None = None  # the loss of the unigram distribution, or of the mean of each patch


def write(path: Path, run: RunSummary) -> None:
    """Write the page; one that is there already is replaced whole, never in part."""
    temporary = path.with_name(path.name + ".writing")
    temporary.write_text(page(run), encoding="utf-8")
    temporary.replace(path)


def page(run: RunSummary) -> Markup:
    """The page as a text."""
    first = "" if run.overview is None else overview.html(run.overview)
    return render(
        "report.html", title=run.title, run=run, overview=first, curves=_curves(run), notes=_notes(run.records)
    )


def _curves(run: RunSummary) -> tuple[list[Markup], list[Markup]]:
    """The charts: the one that is as wide as the page, and those that stand side by side."""
    steps = [record for record in run.records if record.get("kind") == "step"]
    checks = [record for record in run.records if record.get("kind") == "validation"]
    guessed = next((kind for kind in TERM_LABELS if points_of(steps, "terms", kind)), "masked")
    hidden = points_of(steps, "terms", guessed) or points_of(steps, "loss")
    checked = points_of(checks, f"{guessed}_loss") or points_of(checks, "loss")
    losses = [value for _, value in hidden + checked]
    first = chart(
        f"Loss of {TERM_LABELS[guessed]}" + ("" if guessed == "pixels" else ", in nats"),
        [Series("training", hidden, noisy=True), Series("validation", checked)],
        reference=None if run.baseline is None else (BASELINES.get(guessed, UNIGRAM), run.baseline),
        logarithmic=bool(losses) and 0 < LOG_SCALE_RATIO * min(losses) < max(losses),
        wide=True,
    )
    kind = next((kind for kind in AUXILIARY_LABELS if kind != guessed and points_of(steps, "terms", kind)), "nsp")
    other, other_checked = points_of(steps, "terms", kind), points_of(checks, f"{kind}_loss")
    words_right, other_right = points_of(checks, f"{guessed}_accuracy"), points_of(checks, f"{kind}_accuracy")
    rest = [
        chart(
            "Validation accuracy",
            [
                Series(TERM_LABELS[guessed], words_right),
                Series(AUXILIARY_LABELS[kind], other_right),
                Series("replaced tokens found", points_of(checks, f"{kind}_found")),
            ],
            format_value=format_percent,
            reference=("random guessing", 0.5) if other_right and kind in ("nsp", "sop") else None,
            from_zero=True,
        ),
        chart(
            f"Loss of {AUXILIARY_LABELS[kind]}, in nats",
            [Series("training", other, noisy=True), Series("validation", other_checked)],
        ),
        chart(
            "Throughput, in tokens per second",
            [Series("tokens/s", points_of(steps, "tokens_per_second"), noisy=True)],
            from_zero=True,
        ),
        chart("Learning rate", [Series("learning rate", points_of(steps, "learning_rate"))], from_zero=True),
    ]
    return [first], [figure for figure in rest if figure]


def _notes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The notes of the log, and the updates that were skipped because a gradient was not finite."""
    notes, skipped = [], 0
    for record in records:
        place = f"step {record['step']:,}: " if is_number(record.get("step")) else ""
        if record.get("kind") == "note":
            facts = {key: value for key, value in record.items() if key not in ("kind", "step", "text")}
            notes.append(place + str(record.get("text") or ", ".join(f"{key} {facts[key]}" for key in facts)))
        count: Any = record.get("skipped")
        if is_number(count) and count > skipped:
            notes.append(place + "update skipped: its gradient was not finite")
            skipped = count
    return notes
