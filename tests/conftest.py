"""Shapes are checked at run time; nothing is downloaded; one thread, so that sums are the same everywhere."""

import gc
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from importlib.util import find_spec

# An accelerator machine may lack it; the fast tests do without, since it takes a fifth of their time.
if find_spec("beartype") and os.environ.get("SHAPES") != "unchecked":
    import shapes

    shapes.install()

import pytest
import torch

torch.set_num_threads(1)


KEPT: list[dict[str, object]] = []  # of each test that tortures: its promise, how often, how long, and what it measured


def pytest_addoption(parser: pytest.Parser) -> None:
    use = "run only tests marked `torture`, as often as they promise, and write the figures into this file"
    parser.addoption("--torture", metavar="FILE", type=Path, help=use)
    use = "of tests marked `exhaustive`, run all cases, or only those that the suite leaves out"
    parser.addoption("--exhaustive", choices=("all", "rest"), help=use)


@pytest.fixture
def times(request: pytest.FixtureRequest) -> int:
    """How often a test marked `torture` repeats itself: a few times in the suite, in full with --torture."""
    marker = request.node.get_closest_marker("torture")
    return marker.kwargs["suite" if request.config.getoption("--torture") is None else "whole"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marker = item.get_closest_marker("torture")
    if report.when == "call" and marker is not None:
        figures = {"promise": marker.args[0], "times": marker.kwargs["whole"], "test": item.nodeid}
        KEPT.append(
            {**figures, "outcome": report.outcome, "seconds": round(report.duration, 1), **dict(item.user_properties)}
        )
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    place = session.config.getoption("--torture")
    if place is None or not KEPT:
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
    from record import record

    from bertsmith.train import hardware

    sys.argv[:1] = ["-m", "pytest"]  # and not where this machine has it
    record(place, {"tests": KEPT}, hardware.describe(hardware.select_device("cpu")))


@pytest.fixture(scope="module")  # and no longer: while it runs, no test of its process can have an event loop
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    from insight.inspection.browser import chromium, launched

    program = chromium()
    if program is None:
        pytest.skip("Chromium is not installed")
    with launched(program) as running:
        yield running


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of datasets next to the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("the shared datasets are not next to the repository")
    return folder


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without slow tests a file of them need not be imported, with the libraries that it needs."""
    leave_out = config.getoption("markexpr") == "not slow" and collection_path.suffix == ".py"
    return True if leave_out and "\npytestmark = pytest.mark.slow" in collection_path.read_text("utf-8") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--torture") is not None:
        items[:] = [item for item in items if item.get_closest_marker("torture")]
    elif config.getoption("--exhaustive") != "all" and not any("::" in argument for argument in config.args):
        suite, rest = _divided(items)
        items[:], left_out = (rest, suite) if config.getoption("--exhaustive") == "rest" else (suite, rest)
        config.hook.pytest_deselected(items=left_out)
    items[:] = _dealt(items, getattr(config, "workerinput", {"workercount": 1})["workercount"])
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device here"))


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end; a garbage collection that looked at them all each time would take 0.2 s."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a file leaves stays, too: 200,000 objects of libraries that it imported, such as the exporter of graphs."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # extension modules report what is left when Python ends


def _divided(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of the suite, and the cases of tests marked `exhaustive` that it leaves out."""
    parts: tuple[list[pytest.Item], list[pytest.Item]] = [], []
    seen = Counter[tuple[Path, str]]()
    for item in items:
        marker = item.get_closest_marker("exhaustive")
        test = item.path, getattr(item, "originalname", item.name)
        parts[marker is not None and seen[test] >= marker.kwargs.get("suite", 0)].append(item)
        seen[test] += 1
    return parts


def _dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The same tests with slow files first in the part of every worker, so that no worker waits for one at the end.

    xdist gives every worker an equal part of the list, and who is done takes over from the end of another's part. The
    tests of a file stay together, since they share fixtures.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            files.setdefault(item.path, []).append(item)
    fast = [item for item in items if not item.get_closest_marker("slow")]
    slow = [[item for file in list(files.values())[worker::workers] for item in file] for worker in range(workers)]
    dealt: list[pytest.Item] = []
    for worker, part in enumerate(slow):
        end = len(items) * (worker + 1) // workers
        many = max(0, end - len(dealt) - len(part))
        dealt += part + fast[:many]
        fast = fast[many:]
    return dealt + fast
