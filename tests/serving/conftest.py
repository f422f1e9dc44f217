"""A server with a small model for each kind of use, shared by the tests of a module."""

from collections.abc import Iterator

import pytest
from inference.test_load import plain, saved
from serving.local import LocalServer, local

from bertsmith.inference.load import load
from bertsmith.inference.model import Model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("models")
    paths = {"plain": plain(folder / "plain"), "reviews": saved(folder / "reviews", "class")}
    paths |= {"ner": saved(folder / "ner", "tag"), "squad": saved(folder / "squad", "answer")}
    return {name: load(path, "cpu") for name, path in paths.items()}


@pytest.fixture(scope="module")
def server(models: dict[str, Model]) -> Iterator[LocalServer]:
    with local(models) as running:
        yield running
