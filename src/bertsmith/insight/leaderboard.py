"""The leaderboard of a race: scores of several models against their cost. Clark et al. 2020, figure 1."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean
from typing import Any, Literal

from markupsafe import Markup

from bertsmith.insight.charts import HorizontalAxis, Series, chart, format_number
from bertsmith.insight.page import render
from bertsmith.insight.table import Results
from bertsmith.metrics.intervals import confidence_interval

Row = Mapping[str, Any]  # a name, parameters, the device's peak, and points with scores and what each took
CostAxis = Literal["seconds", "flops"]
Unit = Literal["tokens", "images"]
BITS_PER_BYTE, BLIMP, MEAN = "bits per byte", "BLiMP", "mean of the tasks"
UNITS = {"s": 1, "min": 60, "h": 3600}
LEAD = "Each dot is a model that was saved on the way."


def leaderboard_results(
    title: str,
    rows: Sequence[Row],
    cost_axis: CostAxis,
    protocol: Mapping[str, str],
    subtitle: str = "",
    *,
    unit: Unit = "tokens",
) -> Results:
    """One chart for each score, and a table of the last checkpoints' scores and cost.

    `unit` is what a network reads, and the key of a point under which it is counted.
    """
    known = {name for row in rows for point in row["points"] for name in point["scores"]}
    tasks = sorted(known - {BITS_PER_BYTE, BLIMP})
    names = [*([MEAN] if len(tasks) > 1 else []), *tasks, *(name for name in (BLIMP, BITS_PER_BYTE) if name in known)]
    time, gpu = _time_unit(rows), any(row["peak"] for row in rows)
    scores = map(heading, names)
    columns = ["recipe", "parameters", "time", unit, f"{unit}/s", "FLOPs", *(["MFU"] if gpu else []), *scores]
    return Results(
        title=title,
        subtitle=subtitle,
        columns=columns,
        rows=[_cells(row, names, tasks, time, unit, gpu) for row in rows],
        protocol=protocol,
        chart=_picture(rows, cost_axis, names, tasks),
    )


def heading(name: str) -> str:
    """The name of a score with the factor by which it is written: points are hundredths."""
    return name if name == BITS_PER_BYTE else f"{name} ×100"


def cell(name: str, values: Sequence[float]) -> str:
    """A score as it is written, with its deviation where there are several seeds."""
    if not values:
        return "-"
    found = confidence_interval(list(values))
    return _format_score(name, found.mean) + (f" ± {_format_score(name, found.deviation)}" if len(values) > 1 else "")


def _picture(rows: Sequence[Row], cost_axis: CostAxis, names: Sequence[str], tasks: Sequence[str]) -> Markup:
    """The charts in the order of the names, the first of several as wide as the page."""
    time = _time_unit(rows)
    along, unit = (_time_axis(time), UNITS[time]) if cost_axis == "seconds" else (COMPUTE_AXIS, 1)
    charts: list[partial[Markup]] = []
    for name in names:
        lines = []
        for row in rows:
            taken = [(point[cost_axis] / unit, score_values(point, name, tasks)) for point in row["points"]]
            lines.append(Series(row["name"], [(place, mean(found)) for place, found in taken if found]))
        title = f"{name[0].upper()}{name[1:]}, {'the lower the better' if name == BITS_PER_BYTE else 'in points'}"
        if any(line.points for line in lines):
            charts.append(partial(chart, title, lines, format_value=partial(_format_score, name), horizontal=along))
    if not charts:
        return Markup()
    wide = [] if len(charts) == 2 else charts[:1]  # two stand side by side
    return render(
        "curves.html",
        heading="What was learnt, and what it took",
        lead=LEAD,
        wide=[draw(wide=True) for draw in wide],
        narrow=[draw() for draw in charts[len(wide) :]],
    )


def score_values(point: Mapping[str, Any], name: str, tasks: Sequence[str]) -> Sequence[float]:
    """The values of a score, one per seed; empty if the model has no such score, or not yet."""
    if name != MEAN:
        found: Sequence[float] = point["scores"].get(name, {}).get("values", ())
        return found
    known = [score_values(point, task, tasks) for task in tasks]
    return [mean(map(mean, known))] if all(known) else []


def _cells(row: Row, names: Sequence[str], tasks: Sequence[str], time: str, unit: Unit, gpu: bool) -> list[str]:
    """A row of the table."""
    last = row["points"][-1]
    cells = [row["name"], format_number(row["parameters"]), f"{format_number(last['seconds'] / UNITS[time])} {time}"]
    cells += [
        format_number(last[unit]),
        format_number(last[unit] / last["seconds"]),
        format_number(last["flops"]),
    ]
    if gpu:
        cells.append(f"{last['flops'] / last['seconds'] / row['peak']:.0%}" if row["peak"] else "-")
    return [*cells, *(cell(name, score_values(last, name, tasks)) for name in names)]


def _time_unit(rows: Sequence[Row]) -> str:
    """The unit that suits the longest run."""
    longest = max((point["seconds"] for row in rows for point in row["points"]), default=0)
    return [name for name, size in UNITS.items() if size == 1 or longest >= 3 * size][-1]


def _time_axis(unit: str) -> HorizontalAxis:
    return HorizontalAxis(
        "time", lambda time: f"{format_number(time)} {unit}", lambda time: f"{format_number(time)} {unit}"
    )


COMPUTE_AXIS = HorizontalAxis("compute", format_number, lambda flops: f"{format_number(flops)}FLOPs")


def _format_score(name: str, value: float) -> str:
    return f"{value:.3f}" if name == BITS_PER_BYTE else f"{100 * value:z.1f}"
