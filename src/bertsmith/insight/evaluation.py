"""The page of a fine-tuning run or an evaluation: how good a model is, where it is wrong, and how sure it was.

It is made from the content of `result.json` alone, and the lines of the log where there was a training.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.insight import confusion_matrix
from bertsmith.insight.charts import Point, Series, chart, format_number
from bertsmith.insight.page import html_page, section
from bertsmith.insight.plots import reliability_diagram, scatter
from bertsmith.tasks.findings import name_of

PAGE = "report.html"
COLUMNS = ("precision", "recall", "F1", "support")
CLASSES_LEAD = (
    "Precision: of those predicted so, how many are right. Recall: of those that are so, how many were found."
)
CURVES_LEAD = "Faint: every step. Strong: the running mean. Point at a curve to read it."


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


def page(title: str, result: Mapping[str, Any], records: Sequence[Mapping[str, Any]] = ()) -> str:
    """The page as a text. Whatever comes from outside is escaped."""
    found, protocol = result.get("details") or {}, result.get("protocol") or {}
    tables, names = _tables(found), {"tags": "Kinds of words confused"}
    cut = "The largest classes; the others are one. " if "(others)" in confusion_matrix.labels(found) else ""
    return html_page(
        title,
        [
            _warnings(result.get("warnings") or ()),
            section("Key figures", _cards(result, found)),
            section("Compared with baselines", _baselines(result, found)),
            section("Seeds", _seeds(result)),
            *tables,
            section(
                names.get(found.get("kind", ""), "Confusion matrix"),
                confusion_matrix.table(found),
                cut + confusion_matrix.LEAD,
            ),
            section("Predicted against true", _scatter(found), _scatter_lead(found)),
            section("Calibration", _calibration(found), _calibration_lead(found)),
            section("Learning curves", _curves(result, found, records), CURVES_LEAD),
            section(*_mistakes(found)),
            section("How it was measured", _protocol(protocol)),
            section("Recipe", _recipe(str(protocol.get("recipe", "")))),
        ],
    )


def _warnings(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line[:1].upper() + line[1:])}.</li>" for line in lines)
    return f'<section class="warnings" role="note"><h2>Look here first</h2><ul>{items}</ul></section>'


def _cards(result: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    cards = []
    for name, one in result["summary"].items():
        spread = "" if one.get("low") is None else f" <small>± {_number(name, one['high'] - one['mean'])}</small>"
        cards.append((name_of(name, found), escape(_number(name, one["mean"])) + spread))
    cards.append(("examples measured on", f"{found.get('examples', 0):,}"))
    if "words" in found:
        cards.append(("words", f"{found['words']:,}"))
    entries = [f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in cards]
    return f'<dl class="cards">{"".join(entries)}</dl>'


def _baselines(result: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """This model, what could be said without reading, and the model before training: figures that all share."""
    rows: list[tuple[str, Mapping[str, float]]] = []
    baseline, untrained = found.get("baseline"), result.get("untrained")
    own = {name: one["mean"] for name, one in result["summary"].items()}
    if baseline:
        rows.append((baseline["name"], baseline["metrics"]))
    if untrained:
        rows.append(("this model before training", untrained))
    if not rows:
        return ""
    columns = [name for name in own if any(name in figures for _, figures in rows)]
    rows = [("this model", own), *rows]
    body = [
        [name, *(_number(column, figures[column]) if column in figures else "" for column in columns)]
        for name, figures in rows
    ]
    return _table(["", *(name_of(column, found) for column in columns)], body, kind="results named")


def _seeds(result: Mapping[str, Any]) -> str:
    runs = result.get("runs") or ()
    if len(runs) < 2:
        return ""
    names = [*result["summary"], "step", "seconds"]
    body = [[str(run["seed"]), *(_number(name, run["metrics"].get(name)) for name in names)] for run in runs]
    found = result.get("details") or {}
    return _table(["seed", *(name_of(name, found) for name in names)], body)


def _tables(found: Mapping[str, Any]) -> list[str]:
    """Per class, per kind of entity, or per length of answer: whatever is there."""
    tables = []
    for key, heading, first in (("classes", "Class by class", "class"), ("entities", "Entities by kind", "kind")):
        if found.get(key):
            rows = sorted(found[key], key=lambda row: -row["support"]) if len(found[key]) > 30 else found[key]
            heading = "Label by label" if found.get("kind") == "labels" else heading
            body = [_score_cells(row["label"], row) for row in rows]
            foot = [_score_cells(f"{name} mean", row) for name, row in (found.get("averages") or {}).items()]
            tables.append(section(heading, _table([first, *COLUMNS], body, foot), CLASSES_LEAD))
    if found.get("groups"):
        body = [[row["name"], f"{row['exact']:.3f}", f"{row['f1']:.3f}", f"{row['support']:,}"]
                for row in found["groups"]]  # fmt: skip
        tables.append(section("By the length of the answer", _table(["", "exact match", "F1", "questions"], body)))
    return tables


def _score_cells(name: str, row: Mapping[str, Any]) -> list[str]:
    return [name, *(f"{row[figure]:.3f}" for figure in ("precision", "recall", "f1")), f"{row['support']:,}"]


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], foot: Sequence[Sequence[str]] = (), kind: str = "results"
) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    parts = [_rows(rows), f"</tbody><tfoot>{_rows(foot)}</tfoot>" if foot else "</tbody>"]
    return f'<div class="{kind}"><table><thead><tr>{head}</tr></thead><tbody>{"".join(parts)}</table></div>'


def _rows(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)


def _scatter(found: Mapping[str, Any]) -> str:
    one = found.get("scatter")
    if not one:
        return ""
    x_label, y_label = one["x_label"], one["y_label"]
    title = f"{y_label[:1].upper()}{y_label[1:]}, by {x_label}"
    return f'<div class="plots">{scatter(title, one["points"], x_label, y_label, diagonal=one["diagonal"])}</div>'


def _scatter_lead(found: Mapping[str, Any]) -> str:
    shown = len((found.get("scatter") or {}).get("points", ()))
    return f"{shown:,} of {found.get('examples', 0):,} examples, evenly spread."


def _calibration(found: Mapping[str, Any]) -> str:
    one = found.get("calibration")
    if not one:
        return ""
    before = reliability_diagram("As it is", one["before"], f"expected calibration error {one['error_before']:.3f}")
    after = reliability_diagram(f"At temperature {one['temperature']:.3f}", one["after"],
                        f"expected calibration error {one['error_after']:.3f}")  # fmt: skip
    return f'<div class="plots">{before}{after}</div>'


def _calibration_lead(found: Mapping[str, Any]) -> str:
    one = found.get("calibration")
    if not one:
        return ""
    return (
        f"Whether a model that is 80 % sure is right in 80 % of such cases: then all bars end on the diagonal. "
        f"The temperature, {one['temperature']:.3f}, was fitted {one['fitted']}; it divides the logits, and lowers the "
        f"negative log-likelihood from {one['loss_before']:.3f} to {one['loss_after']:.3f}. "
        f"Predictions are given as they are, without it."
    )


def _curves(result: Mapping[str, Any], found: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> str:
    headline = result["headline"]
    scores = _points([record for record in records if record.get("kind") in ("validation", "untrained")], headline)
    baseline = (found.get("baseline") or {}).get("metrics", {}).get(headline)
    drawn = [
        chart("Training loss", [Series("loss", _points(_of_kind(records, "step"), "loss"), noisy=True)]),
        chart(
            f"Dev set: {name_of(headline, found)}",
            [Series(name_of(headline, found), scores)],
            reference=None if baseline is None else ("baseline", baseline),
        ),
    ]
    drawn = [one for one in drawn if one]
    return f'<div class="charts of{len(drawn)}">{"".join(drawn)}</div>' if drawn else ""


def _of_kind(records: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [record for record in records if record.get("kind") == kind]


def _points(records: Sequence[Mapping[str, Any]], name: str) -> list[Point]:
    """A figure over the steps; what is not a number is left out."""
    found = [(record.get("step"), record.get(name)) for record in records]
    return sorted((float(step), float(value)) for step, value in found if _is_number(step) and _is_number(value))  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _mistakes(found: Mapping[str, Any]) -> tuple[str, str, str]:
    """Heading, cards and lead: what the worst mistakes are depends on what is predicted."""
    cards = "".join(map(_mistake, found.get("mistakes") or ()))
    heading, order = "The most confident mistakes", "the most confident first"
    if found.get("kind") == "numbers":
        heading, order = "The largest errors", "the largest first"
    elif found.get("scatter"):
        heading, order = "Pairs that are furthest off", "those whose cosine differs most from the score first"
    elif found.get("kind") == "texts":
        heading, order = "What it wrote instead", "those with the fewest words in common first"
    lead = f"{len(found.get('mistakes') or ()):,} of {found.get('mistake_count', 0):,}, {order}."
    return heading, f'<div class="examples">{cards}</div>' if cards else "", lead


def _mistake(one: Mapping[str, Any]) -> str:
    if "word" in one:
        before, after = (escape(text) for text in one["texts"])
        text = f'<p class="sentence">{before} <b>{escape(one["word"])}</b> {after}</p>'
    else:
        text = "".join(f'<p class="sentence">{escape(part)}</p>' for part in one["texts"])
    chance = one.get("probability")
    sure = "" if chance is None else f" with {chance:.1%}"
    about = f", of '{escape(str(one['label']))}'" if one.get("label") else ""
    return (
        f'<article class="mistake">{text}<dl><div><dt>true</dt><dd>{escape(one["true"])}</dd></div>'
        f"<div><dt>predicted{sure}{about}</dt><dd>{escape(one['predicted'])}</dd></div></dl>"
        f'<p class="origin">{escape(str(one["location"]))}</p></article>'
    )


def _protocol(protocol: Mapping[str, Any]) -> str:
    rows = []
    for name, value in protocol.items():
        if name == "recipe":
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {one}" for key, one in value.items())
        elif isinstance(value, list | tuple):
            value = "\n".join(map(str, value))
        text = escape(str(value).strip())
        cell = f"<pre>{text}</pre>" if "\n" in text else text
        rows.append(f'<tr><th scope="row">{escape(name.replace("_", " "))}</th><td>{cell}</td></tr>')
    return f'<table class="protocol">{"".join(rows)}</table>' if rows else ""


def _recipe(recipe: str) -> str:
    summary = "<summary>All settings of this run, as TOML</summary>"
    return f"<details>{summary}<pre>{escape(recipe.strip())}</pre></details>" if recipe.strip() else ""


def _number(name: str, value: Any) -> str:
    """A score to three decimals; errors, which have units, and counts to three digits."""
    if not _is_number(value):
        return "" if value is None else str(value)
    if name == "step":
        return f"{value:,.0f}"
    if name in ("mae", "rmse", "seconds", "loss", "bleu", "best_threshold"):
        return format_number(float(value))
    return f"{value:.3f}"
