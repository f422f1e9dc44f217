"""Tables: results side by side, for a terminal, for other programs, and as one page for people."""

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
    """A table, what it was made by, and the figures behind it."""

    title: str
    subtitle: str = ""  # what holds for all rows
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]  # each as long as the columns; the first cell names it
    protocol: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)  # the same, not rounded
    chart: str = ""  # SVG, where there is more to see than to read

    def to_table(self) -> Printed:
        under = f"\n{self.subtitle}" if self.subtitle else ""
        title = Text(self.title, "bold").append(under, "not bold")
        table = Printed(box=None, title=title, title_justify="left", title_style="")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="left" if number == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        return table


def write(folder: Path, name: str, results: Results) -> None:
    """NAME.json and NAME.html in the folder, each put there at once."""
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
    """One page that loads nothing. Whatever comes from outside is escaped."""
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
    """What has lines of its own keeps them."""
    return f"<pre>{escape(text)}</pre>" if "\n" in text else escape(text)
