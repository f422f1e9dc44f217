"""The confusion matrix of an evaluation, as an HTML table: predicted against true classes."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

LEAD = (
    "A row for each true class, a column for each prediction; the stronger the colour, the larger the share of its row."
)
MAX_NAMED_COLUMNS = 8  # classes whose names still fit above the columns of a matrix


def labels(found: Mapping[str, Any]) -> Sequence[str]:
    """The classes of the matrix, by their order in it."""
    names: Sequence[str] = (found.get("confusion") or {}).get("labels", ())
    return names


def table(found: Mapping[str, Any]) -> str:
    """The matrix as an HTML table; empty without two classes."""
    names = labels(found)
    if len(names) < 2:
        return ""
    many = len(names) > MAX_NAMED_COLUMNS
    heads = "".join(
        f'<th scope="col" title="{escape(label)}"><span>{number if many else escape(label)}</span></th>'
        for number, label in enumerate(names, 1)
    )
    body = []
    for number, (label, row) in enumerate(zip(names, found["confusion"]["counts"], strict=True), 1):
        total = sum(row) or 1
        cells = "".join(
            f'<td{" class=right-cell" if at == number else ""} style="--share:{count / total:.3f}" '
            f'title="true {escape(label)}, predicted {escape(other)}: {count:,}"><span>{count:,}</span></td>'
            for at, (other, count) in enumerate(zip(names, row, strict=True), 1)
        )
        name = f"{number} {label}" if many else label
        body.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    corner = '<th scope="col" class="corner">true ↓ · predicted →</th>'
    kind = "matrix many" if many else "matrix"
    head = f"<thead><tr>{corner}{heads}</tr></thead>"
    return f'<div class="results"><table class="{kind}">{head}<tbody>{"".join(body)}</tbody></table></div>'
