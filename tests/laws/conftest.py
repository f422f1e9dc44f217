"""The text of the laws, prepared once for each kind of tokenizer; and each objective with its batches, built once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import tiny
from laws.objectives import Case

from bertsmith.data.feed import Feed
from bertsmith.objectives.base import Pretraining
from bertsmith.text.special_tokens import Kind


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind], Path]:
    @cache
    def prepared(kind: Kind) -> Path:
        return tiny.prepared(tmp_path_factory.mktemp(kind), kind)

    return prepared


@pytest.fixture(scope="session")
def built(data: Callable[[Kind], Path]) -> Callable[[Case], tuple[Pretraining, Feed]]:
    """An objective and its feed, for tests that leave both as they are."""
    made: dict[str, tuple[Pretraining, Feed]] = {}

    def get(case: Case) -> tuple[Pretraining, Feed]:
        if str(case) not in made:
            made[str(case)] = case.built(data(case.kind))
        return made[str(case)]

    return get
