"""`make test-fast` leaves slow tests out and still looks into every room; `make test-rest` has what the suite left."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
CONFIG = TESTS.parent / "pyproject.toml"
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


@pytest.mark.slow("starts Python three times")
@pytest.mark.exhaustive
def test_the_suite_and_the_rest_are_all_cases_each_once(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(
        "import pytest\n"
        "@pytest.mark.exhaustive(suite=2)\n@pytest.mark.parametrize('n', range(5))\ndef test_a(n): ...\n"
        "@pytest.mark.exhaustive\ndef test_b(): ...\n"
        "def test_c(): ...\n"
    )

    def collected(*options: str) -> list[str]:
        words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "conftest", "-c", str(CONFIG), *options]
        environment = os.environ | {"PYTHONPATH": str(TESTS)}
        found = subprocess.run([*words, str(path)], capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert found.returncode == 0, found.stdout + found.stderr
        return re.findall(r"::(\S+)", found.stdout)

    suite, rest = ["test_a[0]", "test_a[1]", "test_c"], ["test_a[2]", "test_a[3]", "test_a[4]", "test_b"]
    assert sorted(collected()) == suite
    assert sorted(collected("--exhaustive", "rest")) == rest
    assert sorted(collected("--exhaustive", "all")) == sorted(suite + rest)
