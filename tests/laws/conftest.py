"""The text of the laws, prepared once for each kind of tokenizer."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import tiny

from bertsmith.text.special_tokens import Kind


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind], Path]:
    @cache
    def prepared(kind: Kind) -> Path:
        return tiny.prepared(tmp_path_factory.mktemp(kind), kind)

    return prepared
