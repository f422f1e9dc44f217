"""What `make test` runs is all there is: tests that run alone stand where it looks for them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = "pytest.mark." + "alone"


def test_tests_that_run_alone_are_found() -> None:
    files = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py") if MARK in path.read_text("utf-8")}
    _, asked = (ROOT / "Makefile").read_text("utf-8").split("$(PYTEST) -m alone ")
    places = asked.partition("#")[0].split()
    assert files
    assert all(any(file.is_relative_to(place) for place in places) for file in files)
