"""Law: a step is one graph, whose compiled losses and gradients are those of the plain one; on a GPU it never waits."""

import pytest
import scripts
from laws.objectives import FIRST

from bertsmith.train.forward import is_recurrent

pytestmark = pytest.mark.slow("compiles")

# Recurrent layers are not compiled: on a GPU their steps are captured.
COMPILED = [case.objective for case in FIRST if not is_recurrent(case.hollow())]


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("objective", COMPILED)
def test_a_step_is_one_graph_and_gives_what_a_plain_one_gives(objective: str) -> None:
    scripts.run(__file__, "graphs.py", f"{objective}:cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("objective", COMPILED)
def test_on_a_gpu_a_step_is_one_graph_that_never_waits(objective: str) -> None:
    scripts.run(__file__, "graphs.py", f"{objective}:cuda")
