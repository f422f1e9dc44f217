"""Shapes are checked at run time; nothing is downloaded; one thread, so that sums are the same everywhere."""

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from importlib.util import find_spec

from jaxtyping import install_import_hook

if find_spec("beartype"):  # an accelerator machine may lack it
    install_import_hook("bertsmith", "shapes.checked")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of datasets beside the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("the shared datasets are not beside the repository")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "test_kills" not in item.nodeid)  # what takes minutes goes on while the rest is done
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device here"))
