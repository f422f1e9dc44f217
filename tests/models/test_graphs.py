"""The forward pass is one graph: no value of a tensor is needed on the host."""

import pytest
from scripts import run

pytestmark = pytest.mark.slow("compiles")


@pytest.mark.exhaustive
def test_equal_and_ragged_rows_compile_as_one_graph() -> None:
    run(__file__, "graphs.py", "without_a_device")


@pytest.mark.gpu
def test_ragged_rows_compile_as_one_graph_without_synchronisation() -> None:
    run(__file__, "graphs.py", "ragged_rows_by_autocast")


@pytest.mark.gpu
def test_ragged_rows_train_as_one_graph_with_dropout_by_seed() -> None:
    run(__file__, "graphs.py", "ragged_rows_in_training")
