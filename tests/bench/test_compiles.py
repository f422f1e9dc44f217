"""Steps are compiled for a GPU that is not there: what a compiler makes of our own arithmetic, Triton takes."""

import pytest
import torch
from scripts import run

pytest.importorskip("triton", reason="Triton is not installed here")


@pytest.mark.skipif(torch.version.cuda is not None, reason="A torch for CUDA asks its driver")
def test_what_dropout_draws_for_a_row_compiles_where_rows_are_added_up_in_parts() -> None:
    run(__file__, "compiled.py", "dropout")
