"""Tables of results: for the terminal, as JSON, and as an HTML page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table as Printed
from rich.text import Text

from bertsmith import files
from bertsmith.insight.page import html_page, section


@dataclass(frozen=True, kw_only=True)
class Results:
    """A table of results, with its protocol and the figures without rounding.

    >>> results = Results(title="GLUE", columns=["task", "score"], rows=[["CoLA", "52.1"]])
    >>> results.rows[0]
    ['CoLA', '52.1']
    """

    title: str
    subtitle: str = ""  # a remark about all rows
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]  # a cell for each column; the first is the name of the row
    protocol: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)  # the values without rounding
    chart: str = ""  # SVG

    def to_table(self) -> Printed:
        """The table for the terminal, by the library `rich`.

        >>> Results(title="GLUE", columns=["task", "score"], rows=[["CoLA", "52.1"]]).to_table().row_count
        1
        """
        under = f"\n{self.subtitle}" if self.subtitle else ""
        title = Text(self.title, "bold").append(under, "not bold")
        table = Printed(box=None, title=title, title_justify="left", title_style="")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="left" if number == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        return table


def write(folder: Path, name: str, results: Results) -> None:
    """Write NAME.json and NAME.html into the folder, each atomically."""
    plain = {
        "title": results.title,
        "columns": list(results.columns),
        "rows": [list(row) for row in results.rows],
        "protocol": dict(results.protocol),
        "figures": dict(results.figures),
    }
    files.write_json(folder / f"{name}.json", plain)
    files.write_atomic(folder / f"{name}.html", page(results).encode())


def page(results: Results) -> str:
    """The page as HTML, which loads nothing else; all texts are escaped."""
    sections = [f'<section><div class="results">{_table(results.columns, results.rows)}</div></section>']
    if results.chart:
        sections.insert(0, f"<section>{results.chart}</section>")
    if results.subtitle:
        sections.insert(0, f'<p class="lead">{escape(results.subtitle)}</p>')
    if results.protocol:
        rows = [(name, value) for name, value in results.protocol.items()]
        sections.append(section("How it was measured", _pairs(rows)))
    return html_page(results.title, sections)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _pairs(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{_value(value)}</td></tr>" for name, value in rows)
    return f'<table class="protocol">{cells}</table>'


def _value(text: str) -> str:
    """A cell; a text of several lines keeps them."""
    return f"<pre>{escape(text)}</pre>" if "\n" in text else escape(text)
