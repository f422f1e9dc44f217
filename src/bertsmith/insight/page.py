"""A page for people that loads nothing, with the style that all our pages share."""

from collections.abc import Iterable
from html import escape
from importlib import resources
from string import Template


def html_page(title: str, sections: Iterable[str]) -> str:
    """The sections, already HTML, below a title. Charts among them are brought to life."""
    parts = resources.files(__package__)
    body = "\n".join(filter(None, sections))
    return Template((parts / "report.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=(parts / "report.css").read_text(encoding="utf-8"),
        script=(parts / "report.js").read_text(encoding="utf-8") if 'class="chart' in body else "",
        body=body,
    )


def section(heading: str, body: str, lead: str = "") -> str:
    """A part of the page; nothing where there is nothing to say."""
    if not body:
        return ""
    lead = f'<p class="lead">{escape(lead)}</p>' if lead else ""
    return f"<section><h2>{escape(heading)}</h2>{lead}{body}</section>"
