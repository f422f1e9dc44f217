"""Tables of results: for the terminal, as JSON, and as an HTML page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.table import Table as Printed
from rich.text import Text

from bertsmith import files
from bertsmith.insight.page import render


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
    chart: Markup = Markup()  # figures with SVG

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


def page(results: Results) -> Markup:
    """The page as HTML, which loads nothing else."""
    return render("results.html", title=results.title, results=results)
