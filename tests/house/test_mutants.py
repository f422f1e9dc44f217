"""The table of guards fits the source: each stands there exactly once, and the tests that must miss it exist."""

import ast
from pathlib import Path

import pytest
from torture.guards import TABLE, Guard

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("guard", TABLE, ids=lambda guard: guard.promise.replace(" ", "-"))
def test_a_guard_stands_in_its_file_exactly_once(guard: Guard) -> None:
    text = (ROOT / "src" / "bertsmith" / guard.file).read_text(encoding="utf-8")
    assert text.count(guard.text) == 1
    ast.parse(text.replace(guard.text, guard.without))  # or every test would fail for the wrong reason
    for name in guard.tests.split():
        file, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def test_there_are_at_least_as_many_as_were_once_tried_from_outside() -> None:
    assert len(TABLE) >= 49
    assert len({guard.promise for guard in TABLE}) == len(TABLE)
