"""The page of a cleaning: how much each rule dropped, with examples of text that it drops and that it keeps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bertsmith import files
from bertsmith.insight.page import render

PAGE = "clean.html"


def write(path: Path, result: Mapping[str, Any]) -> Path:
    """Write the page of a `clean.json` atomically."""
    files.write_atomic(path, page(result).encode())
    return path


def page(result: Mapping[str, Any]) -> Markup:
    """The page as a text."""
    words = max(result["words"], 1)
    title = f"Cleaned text: {result['kept_words'] / words:.1%} of the words are kept"
    rows = []
    for rule in result["rules"]:
        counts = (f"{rule[key]:,}" for key in ("documents", "lines", "words"))
        rows.append([rule["name"], rule["what"], *counts, f"{rule['words'] / words:.2%}" if rule["on"] else "off"])
    return render("cleaning.html", title=title, result=result, figures=_figures(result), rows=rows)


def _figures(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    read = result["share_read"]
    figures = [
        ("documents read", f"{result['documents']:,}"),
        ("documents kept", f"{result['kept_documents']:,}"),
        ("words read", f"{result['words']:,}"),
        ("words kept", f"{result['kept_words']:,}"),
        ("languages", ", ".join(result["languages"] or result["scripts"]) or "unknown"),
        *([("of the text read", f"{read:.0%}")] if read < 1 else []),
    ]
    if evaluation := result.get("evaluation"):
        figures.append(("evaluation texts", f"{evaluation['texts']:,}"))
        if evaluation["short_texts"]:
            figures.append(("evaluation texts too short to look for", f"{evaluation['short_texts']:,}"))
    return figures
