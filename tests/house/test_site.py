"""The site holds together without being built: every page is in its menu, and every link leads to a page and a heading.

`make docs` builds it strictly, which finds the same and more; this test needs no mkdocs.
"""

import re
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: str) -> set[str]:
    """The names that headings get, by Python-Markdown's rule."""
    found, seen = set(), dict[str, int]()
    for title in re.findall(r"^#+ (.+)$", text(page), re.M):
        plain = unicodedata.normalize("NFKD", re.sub(r"[`\[\]]|\([^)]*\.md[^)]*\)", "", title)).encode(
            "ascii", "ignore"
        )
        name = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain.decode()).strip().lower())
        found.add(f"{name}_{seen[name]}" if name in seen else name)
        seen[name] = seen.get(name, 0) + 1
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    for link in LINK.findall(text(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert target.is_file(), f"{page}: nothing is at {link}"
        if anchor:
            assert anchor in anchors(target.relative_to(ROOT).as_posix()), f"{page}: no heading is named {link}"


def test_the_menu_names_every_page_once() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    assert sorted(re.findall(r"[\w/.-]+\.md", menu)) == sorted(page[5:] for page in PAGES if page.startswith("docs/"))


def test_headings_are_named_as_the_site_names_them() -> None:
    assert {"model-of-pretraining", "data-of-fine-tuning"} <= anchors("docs/reference/recipe.md")
    assert "a-runs-folder" in anchors("docs/map.md")
