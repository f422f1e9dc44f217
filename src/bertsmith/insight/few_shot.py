"""Few-shot curves: in-context learning from more and more examples in the prompt. Brown et al. 2020, figure 1.2."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from markupsafe import Markup

from bertsmith.insight.charts import HorizontalAxis, Series, chart, format_integer, format_percent
from bertsmith.insight.page import render
from bertsmith.insight.table import Results
from bertsmith.metrics.intervals import confidence_interval

TaskRuns = Mapping[str, Any]  # runs with their shots and scores, the number of texts, and the majority baseline
METRIC_LABELS = {"accuracy": "% right", "calibrated": "calibrated"}
LEAD = "By the number of labelled examples in the prompt."
SHOTS_AXIS = HorizontalAxis("shots", format_integer, format_integer, " shots")


def few_shot_results(title: str, tasks: Mapping[str, TaskRuns], protocol: Mapping[str, str]) -> Results:
    """A row for each task and number of shots, with the majority baseline; and curves of the same.

    Counted are prompts with fewer shots than asked for, and texts that were cut, since more did not fit.
    """
    measures = [name for name in METRIC_LABELS if all(name in run for asked in tasks.values() for run in asked["runs"])]
    rows = []
    for name, asked in tasks.items():
        guesses = [f"{100 * asked[guess]:.1f}" for guess in ("chance", "majority")]
        for shots, runs in _by_shots(asked).items():
            scores = [str(confidence_interval([run[measure] for run in runs]).scaled(100)) for measure in measures]
            counts = [format_integer(mean(run[what] for run in runs)) for what in ("fewer_shots", "truncated")]
            rows.append([name, str(shots), *scores, *guesses, *counts])
    columns = [
        "task",
        "shots",
        *(METRIC_LABELS[name] for name in measures),
        "chance",
        "majority class",
        "fewer shots",
        "truncated",
    ]
    picture = _picture(tasks, measures)
    return Results(title=title, columns=columns, rows=rows, protocol=protocol, figures=tasks, chart=picture)


def _picture(tasks: Mapping[str, TaskRuns], measures: Sequence[str]) -> Markup:
    """A curve for each task and metric; for a single task, with the majority baseline."""
    lines = []
    for name, asked in tasks.items():
        for measure in measures:
            known = {shots: mean(run[measure] for run in runs) for shots, runs in _by_shots(asked).items()}
            lines.append(Series(name if measure == "accuracy" else f"{name}, {measure}", sorted(known.items())))
    guessed = ("majority class", next(iter(tasks.values()))["majority"]) if len(tasks) == 1 else None
    drawn = chart(
        "Texts classified right",
        lines,
        format_value=format_percent,
        reference=guessed,
        horizontal=SHOTS_AXIS,
        wide=True,
    )
    return render("curves.html", heading="What is learnt while reading", lead=LEAD, wide=[drawn], narrow=[])


def _by_shots(asked: TaskRuns) -> dict[int, list[Mapping[str, Any]]]:
    found: dict[int, list[Mapping[str, Any]]] = {}
    for run in asked["runs"]:
        found.setdefault(run["shots"], []).append(run)
    return found
