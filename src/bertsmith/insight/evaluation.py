"""The page of a fine-tuning run or an evaluation: how good a model is, where it is wrong, and how sure it was.

It is made from the content of `result.json` alone, and the lines of the log where there was a training.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bertsmith import files
from bertsmith.insight.charts import Series, chart, format_number, is_number, points_of
from bertsmith.insight.page import render
from bertsmith.insight.plots import reliability_diagram, scatter
from bertsmith.tasks.findings import name_of

PAGE = "report.html"
COLUMNS = ("precision", "recall", "F1", "support")
Table = tuple[list[str], list[list[str]]]  # columns and rows


def model_name(model: Path) -> str:
    """A model by its folder; by its run's where that is called `model`, as all our runs have it."""
    whole = model.resolve()
    return whole.parent.name if whole.name == "model" else whole.name


def plain_text(text: str) -> str:
    """A text for a terminal's table: on one line, and with nothing that the terminal takes for a command."""
    return "".join(character if character.isprintable() else "?" for character in text).replace("[", "\\[")


def comparison_lines(result: Mapping[str, Any]) -> list[str]:
    """For the terminal: what the headline is to be compared with, how well calibrated it is, and warnings."""
    headline, found = result["headline"], result.get("details") or {}
    untrained, baseline, lines = result.get("untrained") or {}, found.get("baseline") or {}, []
    if headline in baseline.get("metrics", {}):
        lines.append(f"baseline: {name_of(headline, found)} {baseline['metrics'][headline]:.4f}, {baseline['name']}")
    if headline in untrained:
        lines.append(f"before training: {name_of(headline, found)} {untrained[headline]:.4f}")
    if one := found.get("calibration"):
        lines.append(
            f"calibration error {one['error_before']:.4f}, "
            f"{one['error_after']:.4f} at temperature {one['temperature']:.3f} (fitted {one['fitted']})"
        )
    return lines + [f"warning: {line}" for line in result.get("warnings") or ()]


def write(folder: Path, title: str, result: Mapping[str, Any], records: Sequence[Mapping[str, Any]] = ()) -> Path:
    """Put the page into the folder at once."""
    path = folder / PAGE
    files.write_atomic(path, page(title, result, records).encode())
    return path


def page(title: str, result: Mapping[str, Any], records: Sequence[Mapping[str, Any]] = ()) -> Markup:
    """The page as a text."""
    found, protocol = result.get("details") or {}, result.get("protocol") or {}
    return render(
        "evaluation.html",
        title=title,
        found=found,
        warnings=result.get("warnings") or (),
        figures=_figures(result, found),
        baselines=_baselines(result, found),
        seeds=_seeds(result, found),
        tables=_tables(found),
        confusion=found.get("confusion") or {"labels": (), "counts": ()},
        scatter=_scatter(found),
        reliability=_reliability(found),
        curves=_curves(result, found, records),
        mistakes=_mistakes(found),
        protocol=_protocol(protocol),
        settings=str(protocol.get("recipe", "")),
    )


def _figures(result: Mapping[str, Any], found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Names, values and half of the 95 % interval, where several seeds tell it."""
    figures = []
    for name, one in result["summary"].items():
        spread = "" if one.get("low") is None else _number(name, one["high"] - one["mean"])
        figures.append((name_of(name, found), _number(name, one["mean"]), spread))
    counts = {"examples measured on": found.get("examples", 0), "words": found.get("words")}
    return figures + [(name, f"{count:,}", "") for name, count in counts.items() if count is not None]


def _baselines(result: Mapping[str, Any], found: Mapping[str, Any]) -> Table | None:
    """This model, what could be said without reading, and the model before training: figures that all share."""
    rows: list[tuple[str, Mapping[str, float]]] = []
    baseline, untrained = found.get("baseline"), result.get("untrained")
    own = {name: one["mean"] for name, one in result["summary"].items()}
    if baseline:
        rows.append((baseline["name"], baseline["metrics"]))
    if untrained:
        rows.append(("this model before training", untrained))
    if not rows:
        return None
    columns = [name for name in own if any(name in figures for _, figures in rows)]
    body = [
        [name, *(_number(column, figures[column]) if column in figures else "" for column in columns)]
        for name, figures in [("this model", own), *rows]
    ]
    return ["", *(name_of(column, found) for column in columns)], body


def _seeds(result: Mapping[str, Any], found: Mapping[str, Any]) -> Table | None:
    runs = result.get("runs") or ()
    if len(runs) < 2:
        return None
    names = [*result["summary"], "step", "seconds"]
    body = [[str(run["seed"]), *(_number(name, run["metrics"].get(name)) for name in names)] for run in runs]
    return ["seed", *(name_of(name, found) for name in names)], body


def _tables(found: Mapping[str, Any]) -> list[tuple[str, Sequence[str], list[list[str]], list[list[str]]]]:
    """Per class, per kind of entity, or per length of answer, whatever is there: heading, columns, rows and foot."""
    tables: list[tuple[str, Sequence[str], list[list[str]], list[list[str]]]] = []
    for key, heading, first in (("classes", "Class by class", "class"), ("entities", "Entities by kind", "kind")):
        if found.get(key):
            rows = sorted(found[key], key=lambda row: -row["support"]) if len(found[key]) > 30 else found[key]
            heading = "Label by label" if found.get("kind") == "labels" else heading
            body = [_score_cells(row["label"], row) for row in rows]
            foot = [_score_cells(f"{name} mean", row) for name, row in (found.get("averages") or {}).items()]
            tables.append((heading, [first, *COLUMNS], body, foot))
    if found.get("groups"):
        body = [[row["name"], f"{row['exact']:.3f}", f"{row['f1']:.3f}", f"{row['support']:,}"]
                for row in found["groups"]]  # fmt: skip
        tables.append(("By the length of the answer", ["", "exact match", "F1", "questions"], body, []))
    return tables


def _score_cells(name: str, row: Mapping[str, Any]) -> list[str]:
    return [name, *(f"{row[figure]:.3f}" for figure in ("precision", "recall", "f1")), f"{row['support']:,}"]


def _scatter(found: Mapping[str, Any]) -> Markup:
    one = found.get("scatter")
    if not one:
        return Markup()
    x_label, y_label = one["x_label"], one["y_label"]
    title = f"{y_label[:1].upper()}{y_label[1:]}, by {x_label}"
    return scatter(title, one["points"], x_label, y_label, diagonal=one["diagonal"])


def _reliability(found: Mapping[str, Any]) -> list[Markup]:
    one = found.get("calibration")
    if not one:
        return []
    titles = {"before": "As it is", "after": f"At temperature {one['temperature']:.3f}"}
    return [
        reliability_diagram(title, one[when], f"expected calibration error {one[f'error_{when}']:.3f}")
        for when, title in titles.items()
    ]


def _curves(result: Mapping[str, Any], found: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[Markup]:
    name, headline = name_of(result["headline"], found), result["headline"]
    steps = [record for record in records if record.get("kind") == "step"]
    scored = [record for record in records if record.get("kind") in ("validation", "untrained")]
    baseline = (found.get("baseline") or {}).get("metrics", {}).get(headline)
    reference = None if baseline is None else ("baseline", baseline)
    drawn = [
        chart("Training loss", [Series("loss", points_of(steps, "loss"), noisy=True)]),
        chart(f"Dev set: {name}", [Series(name, points_of(scored, headline))], reference=reference),
    ]
    return [one for one in drawn if one]


def _mistakes(found: Mapping[str, Any]) -> tuple[str, str]:
    """Heading and lead: what the worst mistakes are depends on what is predicted."""
    heading, order = "The most confident mistakes", "the most confident first"
    if found.get("kind") == "numbers":
        heading, order = "The largest errors", "the largest first"
    elif found.get("scatter"):
        heading, order = "Pairs that are furthest off", "those whose cosine differs most from the score first"
    elif found.get("kind") == "texts":
        heading, order = "What it wrote instead", "those with the fewest words in common first"
    return heading, f"{len(found.get('mistakes') or ()):,} of {found.get('mistake_count', 0):,}, {order}."


def _protocol(protocol: Mapping[str, Any]) -> dict[str, str]:
    rows = {}
    for name, value in protocol.items():
        if name == "recipe":
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {one}" for key, one in value.items())
        elif isinstance(value, list | tuple):
            value = "\n".join(map(str, value))
        rows[name.replace("_", " ")] = str(value).strip()
    return rows


def _number(name: str, value: Any) -> str:
    """A score to three decimals; errors, which have units, and counts to three digits."""
    if not is_number(value):
        return "" if value is None else str(value)
    if name == "step":
        return f"{value:,.0f}"
    if name in ("mae", "rmse", "seconds", "loss", "bleu", "best_threshold"):
        return format_number(float(value))
    return f"{value:.3f}"
