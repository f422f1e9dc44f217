"""A self-contained HTML page, in the style that all pages share."""

from collections.abc import Iterable
from html import escape
from importlib import resources
from string import Template


def html_page(title: str, sections: Iterable[str]) -> str:
    """A title and sections of HTML, with the script that reads out charts under the pointer."""
    parts = resources.files(__package__)
    body = "\n".join(filter(None, sections))
    return Template((parts / "report.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=(parts / "report.css").read_text(encoding="utf-8"),
        script=(parts / "report.js").read_text(encoding="utf-8") if 'class="chart' in body else "",
        body=body,
    )


def section(heading: str, body: str, lead: str = "") -> str:
    """A section of the page; empty if it has no content."""
    if not body:
        return ""
    lead = f'<p class="lead">{escape(lead)}</p>' if lead else ""
    return f"<section><h2>{escape(heading)}</h2>{lead}{body}</section>"
