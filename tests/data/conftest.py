"""What tests of addresses share."""

from collections.abc import Iterator
from typing import Any

import fsspec
import pytest


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's files in memory, empty again after a test."""
    found = fsspec.filesystem("memory")
    yield found
    found.store.clear()
    found.pseudo_dirs[:] = [""]
