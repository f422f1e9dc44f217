"""A shape is said of a plain array: numpy 2.5 made NDArray an alias, which jaxtyping cannot look into."""

import ast
from pathlib import Path

import jaxtyping
import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "bertsmith"


def of_aliases(text: str) -> list[int]:
    """The lines on which a shape is said of NDArray."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in dir(jaxtyping)
        and "NDArray" in ast.unparse(node.slice)
    ]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_shape_is_said_of_an_alias(path: Path) -> None:
    assert not of_aliases(path.read_text(encoding="utf-8"))


def test_one_would_be_seen() -> None:
    assert of_aliases('Whole = Int64[NDArray[np.int64], "_"]') == [1]
