"""`make test-fast` leaves slow tests out and still looks into every room."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src" / "bertsmith"
ROOMS = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())


def count(path: Path) -> tuple[int, int]:
    """How many tests of a file are fast, and how many there are."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    slow = [node for node in found if any("mark.slow" in ast.unparse(one) for one in node.decorator_list)]
    whole = any(isinstance(node, ast.Assign) and "mark.slow" in ast.unparse(node) for node in tree.body)
    return 0 if whole else len(found) - len(slow), len(found)


@pytest.mark.parametrize("room", ROOMS)
def test_a_good_part_of_a_room_is_tested_fast(room: str) -> None:
    counts = [count(path) for path in [*(TESTS / room).rglob("test_*.py"), *TESTS.glob(f"test_{room}.py")]]
    fast, whole = (sum(one) for one in zip(*counts, strict=True))
    assert fast > whole / 4, f"{fast} of {whole} tests are fast"


def test_a_slow_test_and_a_slow_file_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text("def test_a(): ...\n@pytest.mark.slow\n@other\ndef test_b(): ...\ndef c(): ...\n")
    assert count(path) == (1, 2)
    path.write_text(path.read_text() + 'pytestmark = pytest.mark.slow("trains")\n')
    assert count(path) == (0, 2)
