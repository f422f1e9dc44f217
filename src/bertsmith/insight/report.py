"""The report of a run: one page that loads nothing, with learning curves, examples, data and machine."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from bertsmith.insight import overview
from bertsmith.insight.charts import Point, Series, chart, format_percent
from bertsmith.insight.overview import Overview
from bertsmith.insight.page import html_page, section

MASKS = ("[MASK]", "<mask>")
LOG_SCALE_RATIO = 30  # a loss that falls to a thirtieth is read better by orders of magnitude
TERM_LABELS = {
    "masked": "masked words",
    "next_token": "next tokens",
    "spans": "masked spans",
    "left_to_right": "next words",
}
AUXILIARY_LABELS = {  # of a second loss
    "next_token": "next tokens",
    "nsp": "next sentence",
    "sop": "sentence order",
    "replaced": "replaced-token detection",
    "guessed": "original words",
    "right_to_left": "previous words",
}
CURVES_LEAD = "Faint: every step. Strong: the running mean. Point at a curve to read it."
GENERATIONS_LEAD = "Prompts from held-out text, in bold, and the continuation that the model generated."
REASONS_LEAD = "The settings that `bertsmith make` chose for this text, this machine and this budget, and why."
CLOZE_LEAD = "Held-out sentences with one word masked. A correct prediction is marked."


@dataclass(frozen=True)
class ClozeExample:
    """A cloze sentence, its masked word, and the top predictions before and after training."""

    text: str  # with [MASK] or <mask>
    truth: str
    before: Sequence[tuple[str, float]]  # words and their probabilities, best first
    after: Sequence[tuple[str, float]]


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
    visualisations: Sequence[tuple[str, str, str]] = ()  # heading, HTML, and what the picture shows
    data: Mapping[str, str] = field(default_factory=dict)
    recipe: str = ""  # TOML
    machine: Mapping[str, str] = field(default_factory=dict)
    unigram_loss: float | None = None  # the loss of the unigram distribution


def write(path: Path, run: RunSummary) -> None:
    """Write the page; one that is there already is replaced whole, never in part."""
    temporary = path.with_name(path.name + ".writing")
    temporary.write_text(page(run), encoding="utf-8")
    temporary.replace(path)


def page(run: RunSummary) -> str:
    """The page as a text. Whatever comes from outside is escaped."""
    sections = [
        section("In short", _in_short(run)),
        section("Key figures", _cards(run.figures)),
        section("Learning curves", _curves(run), CURVES_LEAD),
        section("Masked words, before and after training", _examples(run.examples), CLOZE_LEAD),
        section("Generated text", _generations(run.generations), GENERATIONS_LEAD),
        *(section(*one) for one in run.visualisations),
        section("Why these settings", _items(run.reasons), REASONS_LEAD),
        section("Model and data", _table(run.data)),
        section("Notes", _notes(run.records)),
        section("Machine", _table(run.machine)),
        section("Recipe", _recipe(run.recipe)),
    ]
    return html_page(run.title, sections)


def _in_short(run: RunSummary) -> str:
    verdict = f"<p>{escape(run.verdict)}</p>" if run.verdict else ""
    return verdict + ("" if run.overview is None else overview.html(run.overview))


def _cards(figures: Mapping[str, str]) -> str:
    entries = [f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>" for name, value in figures.items()]
    return f'<dl class="cards">{"".join(entries)}</dl>' if entries else ""


def _curves(run: RunSummary) -> str:
    steps = [record for record in run.records if record.get("kind") == "step"]
    checks = [record for record in run.records if record.get("kind") == "validation"]
    guessed = next((kind for kind in TERM_LABELS if _points(steps, "terms", kind)), "masked")
    hidden = _points(steps, "terms", guessed) or _points(steps, "loss")
    checked = _points(checks, f"{guessed}_loss") or _points(checks, "loss")
    losses = [value for _, value in hidden + checked]
    first = chart(
        f"Loss of {TERM_LABELS[guessed]}, in nats",
        [Series("training", hidden, noisy=True), Series("validation", checked)],
        reference=None if run.unigram_loss is None else ("unigram baseline (word frequency)", run.unigram_loss),
        logarithmic=bool(losses) and 0 < LOG_SCALE_RATIO * min(losses) < max(losses),
        wide=True,
    )
    kind = next((kind for kind in AUXILIARY_LABELS if kind != guessed and _points(steps, "terms", kind)), "nsp")
    other, other_checked = _points(steps, "terms", kind), _points(checks, f"{kind}_loss")
    words_right, other_right = _points(checks, f"{guessed}_accuracy"), _points(checks, f"{kind}_accuracy")
    rest = [
        chart(
            "Validation accuracy",
            [
                Series(TERM_LABELS[guessed], words_right),
                Series(AUXILIARY_LABELS[kind], other_right),
                Series("replaced tokens found", _points(checks, f"{kind}_found")),
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
            [Series("tokens/s", _points(steps, "tokens_per_second"), noisy=True)],
            from_zero=True,
        ),
        chart("Learning rate", [Series("learning rate", _points(steps, "learning_rate"))], from_zero=True),
    ]
    drawn = [figure for figure in rest if figure]
    return first + (f'<div class="charts of{len(drawn)}">{"".join(drawn)}</div>' if drawn else "")


def _points(records: Sequence[Mapping[str, Any]], *keys: str) -> list[Point]:
    """One figure of every record that has it, over the steps; what is not a number is left out."""
    found = []
    for record in records:
        value: Any = record
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        step: Any = record.get("step")
        if _is_number(step) and _is_number(value):
            found.append((float(step), float(value)))
    return sorted(found)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _examples(examples: Sequence[ClozeExample]) -> str:
    return f'<div class="examples">{"".join(map(_example, examples))}</div>' if examples else ""


def _generations(generations: Sequence[tuple[str, str]]) -> str:
    return f'<div class="examples">{"".join(_generation(*one) for one in generations)}</div>' if generations else ""


def _generation(prompt: str, text: str) -> str:
    """A prompt with its continuation, or with a separate text below it."""
    rest = escape(text[len(prompt) :]) if text.startswith(prompt) else f"<br>{escape(text)}"
    return f'<article><p class="sentence"><b>{escape(prompt)}</b>{rest}</p></article>'


def _example(example: ClozeExample) -> str:
    text = escape(example.text)
    for mask in MASKS:
        text = text.replace(escape(mask), '<span class="blank" role="img" aria-label="blank"></span>')
    most = max((chance for _, chance in [*example.before, *example.after]), default=1.0)
    columns = []
    for when, guesses in (("before", example.before), ("after", example.after)):
        rows = "".join(_prediction(word, chance, most, example.truth) for word, chance in guesses)
        columns.append(f"<div><h4>{when}</h4>{rows}</div>")
    return (
        f'<article><p class="sentence">{text}</p>'
        f'<p class="truth">the word was <b>{escape(example.truth)}</b></p>'
        f'<div class="guesses">{"".join(columns)}</div></article>'
    )


def _prediction(word: str, probability: float, highest: float, truth: str) -> str:
    """A row: the word, its probability, and a bar; both columns of an example share one scale."""
    right = " right" if word.strip().casefold() == truth.strip().casefold() else ""
    share = 100 * probability / highest if highest > 0 else 0.0
    return (
        f'<p class="guess{right}"><span>{escape(word)}</span><span>{probability:.1%}</span>'
        f'<i style="width:{share:.1f}%"></i></p>'
    )


def _table(facts: Mapping[str, str]) -> str:
    rows = [f"<tr><th scope='row'>{escape(name)}</th><td>{escape(str(fact))}</td></tr>" for name, fact in facts.items()]
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _notes(records: Sequence[Mapping[str, Any]]) -> str:
    """The notes of the log, and the updates that were skipped because a gradient was not finite."""
    notes, skipped = [], 0
    for record in records:
        place = f"step {record['step']:,}: " if _is_number(record.get("step")) else ""
        if record.get("kind") == "note":
            facts = {key: value for key, value in record.items() if key not in ("kind", "step", "text")}
            notes.append(place + str(record.get("text") or ", ".join(f"{key} {facts[key]}" for key in facts)))
        count: Any = record.get("skipped")
        if _is_number(count) and count > skipped:
            notes.append(place + "update skipped: its gradient was not finite")
            skipped = count
    return _items(notes)


def _items(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _recipe(recipe: str) -> str:
    summary = "<summary>All settings of this run, as TOML</summary>"
    return f"<details>{summary}<pre>{escape(recipe.strip())}</pre></details>" if recipe.strip() else ""
