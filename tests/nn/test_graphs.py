"""Compiled modules give the same as eager ones: scripts in processes without run-time shape checks."""

import pytest
from scripts import run

pytestmark = pytest.mark.slow("compiles")


@pytest.mark.exhaustive
def test_dropout_fits_into_one_graph() -> None:
    run(__file__, "graphs.py", "without_a_device")


@pytest.mark.gpu
@pytest.mark.parametrize("script", ["seeded_dropout", "summed_dropout", "head", "attention", "feed_forward"])
def test_compiled_on_a_gpu_gives_the_same_as_eager(script: str) -> None:
    run(__file__, "graphs.py", script)
