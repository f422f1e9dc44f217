"""The reference pages say what the program says: they are generated, and committed as generated."""

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    sys.path.insert(0, str(DOCS))
    try:
        from generate import pages
    finally:
        sys.path.remove(str(DOCS))
    return pages()


@pytest.mark.parametrize("name", ["commands.md", "recipe.md", "python.md"])
def test_the_committed_page_is_the_generated_one(pages: dict[str, str], name: str) -> None:
    written = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert written == pages[name], f"docs/reference/{name} is out of date: run `python docs/generate`, or `make docs`"


def test_no_page_of_the_reference_is_written_by_hand(pages: dict[str, str]) -> None:
    assert sorted(pages) == sorted(path.name for path in (DOCS / "reference").glob("*.md"))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("commands.md", "| `--validation-share` | number | `0.01` |"),
        ("commands.md", "| `--on-bad-line` | `skip`, `replace`, `fail` | `replace` |"),
        ("recipe.md", '| `optimizer.hidden_optimizer` | `"adamw"`, `"muon"` | `"adamw"` |'),
        ("recipe.md", "#### `objective.kind=replaced_tokens`"),
        ("recipe.md", "| `bert-tiny` | `width=128`, `layers=2`, `heads=2`, `feed_forward=512` |"),
        ("python.md", 'bertsmith.load(\n    folder: str | Path,\n    device: str | torch.device = "auto",\n'),
        ("python.md", "#### Model.fill"),
    ],
)
def test_pages_hold_choices_defaults_and_signatures(pages: dict[str, str], name: str, line: str) -> None:
    assert line in pages[name]
