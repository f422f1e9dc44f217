"""What a compiled step does in its own way, it does right: scripts in processes where no shapes are checked."""

import pytest
from scripts import run

pytestmark = pytest.mark.slow("compiles")


def test_dropout_fits_into_one_graph() -> None:
    run(__file__, "graphs.py", "without_a_device")


@pytest.mark.gpu
@pytest.mark.parametrize("script", ["forgetting", "summing", "a_head", "attention", "feeding"])
def test_on_a_gpu_they_are_what_they_are_elsewhere(script: str) -> None:
    run(__file__, "graphs.py", script)
