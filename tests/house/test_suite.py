"""What `make test` runs is all there is: tests that run alone stand where it looks for them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = "pytest.mark." + "alone"


def test_tests_that_run_alone_are_found() -> None:
    files = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py") if MARK in path.read_text("utf-8")}
    assert files
    assert all(file.is_relative_to("tests/data") for file in files)
    assert "-m alone tests/data" in (ROOT / "Makefile").read_text("utf-8")
