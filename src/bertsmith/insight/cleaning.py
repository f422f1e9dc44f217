"""The page of a cleaning: how much each rule dropped, with examples of text that it drops and that it keeps."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.insight.page import html_page, section

PAGE = "clean.html"
RULES_LEAD = (
    "A document is counted by the first rule that drops it. Lines are dropped from documents that are kept; "
    "in files without blank lines every line is judged by itself. Below, for every rule that dropped anything: on the "
    "left some of it, drawn at random, on the right text that was kept, nearest to the limit first."
)


def write(path: Path, result: Mapping[str, Any]) -> Path:
    """Write the page of a `clean.json` atomically."""
    files.write_atomic(path, page(result).encode())
    return path


def page(result: Mapping[str, Any]) -> str:
    """The page as a text. Whatever comes from the text is escaped."""
    share = result["kept_words"] / max(result["words"], 1)
    personal = result["personal"]
    sections = [
        section("Key figures", _cards(result)),
        section("Rules", _table(result), RULES_LEAD),
        *(section(_heading(rule["name"]), _examples(rule), f"Drops: {rule['what']}.") for rule in result["rules"]),
    ]
    if personal["on"]:
        lead = f"{personal['replaced']:,} e-mail, IP and street addresses. Left: before. Right: after."
        sections.append(section("Addresses replaced", _examples(personal), lead))
    return html_page(f"Cleaned text: {share:.1%} of the words are kept", sections)


def _cards(result: Mapping[str, Any]) -> str:
    read = result["share_read"]
    cards = [
        ("documents read", f"{result['documents']:,}"),
        ("documents kept", f"{result['kept_documents']:,}"),
        ("words read", f"{result['words']:,}"),
        ("words kept", f"{result['kept_words']:,}"),
        ("languages", ", ".join(result["languages"] or result["scripts"]) or "unknown"),
        *([("of the text read", f"{read:.0%}")] if read < 1 else []),
    ]
    if evaluation := result.get("evaluation"):
        cards.append(("evaluation texts", f"{evaluation['texts']:,}"))
        if evaluation["short_texts"]:
            cards.append(("evaluation texts too short to look for", f"{evaluation['short_texts']:,}"))
    entries = [f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in cards]
    return f'<dl class="cards">{"".join(entries)}</dl>'


def _table(result: Mapping[str, Any]) -> str:
    columns = ("rule", "drops", "documents", "lines", "words", "of all words")
    head = "".join(f'<th scope="col"{_class(at)}>{column}</th>' for at, column in enumerate(columns))
    rows = []
    for rule in result["rules"]:
        share = f"{rule['words'] / max(result['words'], 1):.2%}" if rule["on"] else "off"
        counts = (f"{rule[key]:,}" for key in ("documents", "lines", "words"))
        cells = (rule["name"], rule["what"], *counts, share)
        rows.append(f"<tr>{''.join(f'<td{_class(at)}>{escape(cell)}</td>' for at, cell in enumerate(cells))}</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="results named"><table>{body}</table></div>'


def _class(column: int) -> str:
    """The second column is a sentence, and is wrapped."""
    return ' class="what"' if column == 1 else ""


def _examples(rule: Mapping[str, Any]) -> str:
    """Dropped and kept examples side by side; none for a rule that dropped nothing."""
    if not rule["dropped"]:
        return ""
    sides = [("dropped", rule["dropped"]), ("kept", rule["kept"])]
    columns = (f"<div><h3>{name}</h3>{_cards_of(examples)}</div>" for name, examples in sides)
    return f'<div class="examples">{"".join(columns)}</div>'


def _cards_of(examples: Sequence[Mapping[str, Any]]) -> str:
    if not examples:
        return '<p class="origin">none came near</p>'
    return "".join(
        f'<article class="mistake"><p class="sentence" dir="auto">{escape(one["text"])}</p>'
        f'<p class="origin">{escape(", ".join(filter(None, (one["location"], one["note"]))))}</p></article>'
        for one in examples
    )


def _heading(name: str) -> str:
    return name.replace("-", " ").capitalize()
