"""The glossary is true: every term stands in the docstring of the file that it names."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| ([^|]+) \| \[`([\w/.]+)`\]\(([^)]+)\) \| ([^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))


def spellings(term: str) -> list[str]:
    """A term by its name, and by the abbreviation in brackets after it."""
    name, _, short = term.rstrip(")").partition(" (")
    return [name.lower(), *([short.lower()] if short else [])]


def test_there_are_eighty_terms_and_none_twice() -> None:
    assert len(ROWS) >= 80
    assert len({term.lower() for term, *_ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("term", "file", "link", "meaning"), ROWS, ids=[row[0] for row in ROWS])
def test_a_term_stands_in_the_docstring_of_its_file(term: str, file: str, link: str, meaning: str) -> None:
    assert meaning.strip()
    path = ROOT / "src" / "bertsmith" / file
    assert (ROOT / "docs" / link).resolve() == path
    tree = ast.parse(path.read_text(encoding="utf-8"))
    owners = [
        tree,
        *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)),
    ]
    said = " ".join(" ".join(filter(None, map(ast.get_docstring, owners))).lower().split())
    assert any(spelling in said for spelling in spellings(term))
